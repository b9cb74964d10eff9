//! Histories: what several clients asked and were told of the same names, bytes and locks, and whether some order explains it.
//!
//! Everybody's operations are noted with the times of call and return. A history is good if each operation can be given one
//! point between its call and its return so that, in the order of these points, every answer is what one local file system
//! would have said: no stale read, no lost append, one winner for every name and lock.
//!
//! Invariant: an operation that was never answered (its client died or was evicted) may have happened at any time after its
//! call, or not at all; everything else must be explained.
//! Invariant: a history that could not be decided is refused.
//! Not here: running the operations. The simulator does that with client libraries, `xtask histories` with system calls.

mod dice;
mod event;
pub mod file;
pub mod limits;
pub mod lock;
pub mod log;
pub mod names;
mod play;
mod search;
pub mod stamp;

pub use dice::Dice;
pub use event::{Ask, Event, Kind, STRIPE_BYTES, Summary, judge};
pub use play::Player;
pub use search::{Object, Operation, explain};
