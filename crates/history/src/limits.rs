//! Bounds of the checker.

/// States the search looks at before it gives a history up as undecided: half a minute, and some gigabytes. Eight clients that begin
/// to append to one file at once have needed half a million.
pub const STATES: usize = 4_000_000;
/// Operations shown of a history that is refused, around the place where it got stuck.
pub const SHOWN: usize = 40;
