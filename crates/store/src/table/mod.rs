//! The ordered table of a store: keys to values, paged, with exact checkpoints.
//!
//! Three levels: the root lists inner pages, an inner page lists leaves, leaves hold rows. The root and all inner pages
//! are resident; leaves come and go. The table never does I/O. It says which pages it misses ([`MissingPage`]), is
//! given their bytes ([`Table::install`]), and hands out the bytes of a checkpoint's pages ([`Table::next_page`]).
//!
//! Invariant: an operation that meets a missing page has changed nothing.
//! Invariant: a checkpoint is the table as it was at [`Table::begin_checkpoint`], whatever is put or deleted meanwhile.
//! Invariant: a location of the last durable checkpoint is given up only by a later [`Table::finish_checkpoint`].
//! Invariant: no leaf is empty, except the only one of an empty table.
//! Not here: where pages lie (slabs), the order of changes (journal), what rows mean (their owners).

mod balance;
mod branch;
mod checkpoint;
mod codec;
mod evict;
mod frames;
mod key;
pub mod limits;
mod load;
mod locations;
mod page;
mod places;
mod range;
mod relocate;
mod row;
mod rows;
mod search;
mod tree;

#[cfg(test)]
mod tests;

pub use key::Key;
pub use page::{CorruptPage, MissingPage, PageId, PageLocation};
pub use range::Row;
pub use tree::Table;
