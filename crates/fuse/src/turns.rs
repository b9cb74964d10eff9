//! Busy-polling between small writes of several programs to one file through this mount. The kernel admits one write at
//! a time past the end of file that it knows. So each program waits for the reply to the previous write, and with small
//! writes most of that time is spent on wake-ups.
//!
//! So after such a write the shard polls for the next one for a moment before it sleeps, as between small messages.
//!
//! Invariant: the kernel learns no size but the file's own. A larger one would let all of the programs write at once.
//! But the kernel acts on the size that it knows without asking (docs/decisions/0022).

use forebay_client::limits::BUFFERED_WRITE_BYTES;
use forebay_env::real::expect_another;

/// `written` bytes are about to be acknowledged. `writers`: how many handles of this mount write to the file.
pub(crate) fn after_write(writers: usize, written: usize) {
    if wait_for_each_other(writers, written) {
        expect_another();
    }
}

/// Whether the writers wait for each other. Larger writes, and those of a file's only writer, cost as much as their
/// bytes do.
fn wait_for_each_other(writers: usize, written: usize) -> bool {
    writers > 1 && (1..=BUFFERED_WRITE_BYTES).contains(&written)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_writes_of_several_are_waited_for() {
        assert!(
            wait_for_each_other(2, 1) && wait_for_each_other(4, 47_008) && wait_for_each_other(9, BUFFERED_WRITE_BYTES)
        );
        assert!(!wait_for_each_other(1, 47_008), "who is alone waits for nobody");
        assert!(!wait_for_each_other(4, 1 << 20) && !wait_for_each_other(4, 0));
    }
}
