//! Shared code of the whole-system tests, which are in the folders beside `src`, and of `xtask code`.

pub mod crates;
pub mod source;
