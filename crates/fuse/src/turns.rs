//! Several programs that write one file through this mount take turns: the kernel lets one at a time write past the end that it
//! knows, so that each waits for the answer to the one before it, and with small writes most of that is waking each other.
//!
//! So after such a write the shard looks for the next one for a moment before it sleeps, as between small messages.
//!
//! Invariant: the kernel is told no size but the file's, though a larger one would let them all write at once: what it does
//! by the size that it knows it does without asking (docs/decisions/0022).

use forebay_client::limits::KEEP_BYTES;
use forebay_env::real::expect_another;

/// `written` bytes of a file that `writers` handles of this mount write to are about to be acknowledged.
pub(crate) fn after_write(writers: usize, written: usize) {
    if wait_for_each_other(writers, written) {
        expect_another();
    }
}

/// Of larger writes, and such as are no more than a file's only writer makes, bytes are what they cost.
fn wait_for_each_other(writers: usize, written: usize) -> bool {
    writers > 1 && (1..=KEEP_BYTES).contains(&written)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_writes_of_several_are_waited_for() {
        assert!(wait_for_each_other(2, 1) && wait_for_each_other(4, 47_008) && wait_for_each_other(9, KEEP_BYTES));
        assert!(!wait_for_each_other(1, 47_008), "who is alone waits for nobody");
        assert!(!wait_for_each_other(4, 1 << 20) && !wait_for_each_other(4, 0));
    }
}
