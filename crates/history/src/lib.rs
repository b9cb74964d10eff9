//! Checks histories: what several clients requested on the same names, bytes and locks, and what they were answered.
//!
//! A history holds the operations of all clients with the times of call and return. It is good if it is linearizable:
//! each operation has a point between its call and its return, and in the order of these points every answer is what
//! one local file system would give. So a good history has no stale read and no lost append, and one winner for every
//! name and lock.
//!
//! Invariant: an operation without an answer (its client died or was evicted) may have taken effect at any time after
//! its call, or never. Every other operation must be explained.
//! Invariant: a history that the search could not decide is rejected.
//! Not here: running the operations. The simulator runs them with client libraries, `xtask histories` with system
//! calls.

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
