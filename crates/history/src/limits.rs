//! Bounds of the checker.

/// States that the search visits before it gives up on a history as undecided. That takes half a minute and some
/// gigabytes. Eight clients that start to append to one file at the same time have needed half a million.
pub const STATES: usize = 4_000_000;
/// Operations shown of a rejected history, around the point where the search got stuck.
pub const SHOWN: usize = 40;
