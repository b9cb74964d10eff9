//! Bounds of the checker.

/// States the search looks at before it gives a history up as undecided: seconds, and some hundred megabytes.
pub const STATES: usize = 400_000;
/// Operations shown of a history that is refused, around the place where it got stuck.
pub const SHOWN: usize = 40;
