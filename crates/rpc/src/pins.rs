//! The bound of what a client keeps in memory for replay.

/// Bytes of modifying requests that may be in flight or replied-but-uncommitted, over all sessions that share it.
///
/// A call waits (first come, first served) while the budget is used up; sessions that hold pins are then made to ask for a
/// commit. One request larger than the whole budget passes alone.
#[derive(Clone)]
pub struct PinBudget {}

impl PinBudget {
    /// A budget of `bytes`.
    pub fn new(_bytes: u64) -> Self {
        todo!()
    }

    /// Bytes taken now.
    pub fn used_bytes(&self) -> u64 {
        todo!()
    }
}
