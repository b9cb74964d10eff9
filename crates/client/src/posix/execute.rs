//! Programs that run: a file that a handle has open to execute it is not truncated (ETXTBSY).
//!
//! Only truncates through opens that do not write are refused here. Writers are refused by their kernel, which knows
//! when the program ends. The handle may outlive the program by a moment: then the next writer would be refused.

use forebay_proto::{Errno, Fid};

use crate::{Client, ClientResult, OpenMode};

impl Client {
    /// Fails with ETXTBSY if an open of the file with `mode` would truncate a running program. [`Client::open`] checks
    /// the same.
    pub fn check_not_running(&self, fid: Fid, mode: OpenMode) -> ClientResult<()> {
        match truncates_unseen(mode) && self.is_running(fid) {
            true => Err(Errno::ETXTBSY.into()),
            false => Ok(()),
        }
    }

    fn is_running(&self, fid: Fid) -> bool {
        self.inner.handles_of(fid).iter().any(|file| file.mode().execute && file.is_open())
    }
}

/// Whether the open truncates, and no kernel has refused it as it refuses writers.
fn truncates_unseen(mode: OpenMode) -> bool {
    mode.truncate && !mode.write
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_truncate_by_a_reader_is_checked_here() {
        let cut = |mode: OpenMode| OpenMode { truncate: true, ..mode };
        assert!(truncates_unseen(cut(OpenMode::READ)));
        assert!(!truncates_unseen(cut(OpenMode::READ_WRITE)) && !truncates_unseen(OpenMode::READ));
    }
}
