//! What a file system must return: the oracle of one worker's files and names.
//!
//! Everything a worker was acknowledged is *current*. What could come back after client and server died together (FAULTS
//! P3) is kept beside it as history, until a sync.

mod file;
mod names;

pub use file::{FileModel, WriteTag, fill, tag_byte};
pub use names::{Entry, Names, Node, NodeId, attribute_key};
