//! Shared code of the whole-system tests. The tests are in the folders beside `src`.
