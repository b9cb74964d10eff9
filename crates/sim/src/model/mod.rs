//! The oracle of one worker's files and names: what the file system must return.
//!
//! Everything that was acknowledged to the worker is *current*. Earlier states may come back if client and server die
//! together (P3 in docs/promises.md). The model keeps them as history until a sync.

mod file;
mod names;

pub use file::{FileModel, WriteTag, fill, tag_byte};
pub use names::{Entry, Names, Node, NodeId, attribute_key};
