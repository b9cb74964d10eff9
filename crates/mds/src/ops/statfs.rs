//! Returns the numbers of used and free inodes.

use forebay_proto::message::MdtStatFsReply;
use forebay_store::Space;

use crate::limits;

/// Counts inodes exactly and estimates how many more the device can hold.
pub fn reply(inodes: u64, space: &Space) -> MdtStatFsReply {
    let free_bytes = space.available_bytes.saturating_sub(limits::KEEP_FREE_BYTES);
    MdtStatFsReply {
        files: inodes,
        files_free: free_bytes / limits::FILE_ROW_BYTES,
        total_bytes: space.total_bytes,
        free_bytes,
    }
}
