//! Bounds that both ends of the wire must agree on.

use std::time::Duration;

/// Longest file name, in bytes.
pub const NAME_BYTES: usize = 255;
/// Longest symbolic link target, in bytes.
pub const SYMLINK_BYTES: usize = 4095;
/// Largest extended attribute value, in bytes.
pub const XATTR_BYTES: usize = 64 << 10;
/// Names and values of all extended attributes of one inode, in bytes.
pub const XATTRS_BYTES: usize = 128 << 10;
/// Largest file whose bytes may be kept inline at the MDT. At most a stripe, so that all of them belong to the home.
pub const INLINE_BYTES: usize = 16 << 10;
/// Most hard links to one file.
pub const LINKS: u32 = 65_000;
/// Largest bulk payload of one frame.
pub const BULK_BYTES: usize = 4 << 20;
/// Largest body of one frame.
pub const BODY_BYTES: usize = 1 << 20;
/// File data is checksummed in blocks cut at multiples of this object offset (4 to 64 KiB).
pub const BLOCK_BYTES: u64 = 64 << 10;
/// Holes are reported in whole blocks of this many bytes: a block with some data is data.
pub const HOLE_BYTES: u64 = 4096;
/// Largest file, in bytes.
pub const FILE_BYTES: u64 = 1 << 60;
/// Largest hole that one request is sure to make: its extents fit one transaction. A longer hole may fit too, if it has
/// few extents.
pub const PUNCH_BYTES: u64 = 16 << 10;
/// Smallest stripe; stripe sizes are multiples of it, as Lustre's are.
pub const STRIPE_BYTES_MIN: u32 = 64 << 10;
/// Most stripes of one file.
pub const STRIPES: usize = 2000;
/// Most components of one layout.
pub const COMPONENTS: usize = 64;
/// Longest name of a pool, as Lustre's.
pub const POOL_NAME_BYTES: usize = 15;
/// Requests one session may have in flight.
pub const SLOTS: u16 = 64;
/// Files that one client may have open: it refuses more with ENFILE. If the client does not, the MDT does.
pub const OPEN_FILES: usize = 2 << 20;
/// How long a client may use its leases after it sent the last request that the MDT replied to.
pub const LEASE_CLIENT_TERM: Duration = Duration::from_millis(1600);
/// How long the MDT waits, after a client's last request, for its reply to a recall of an inode lease. (For other leases: `RECALL_TIMEOUT`
/// of `mds`.) Longer than [`LEASE_CLIENT_TERM`],
/// by more than clocks drift apart in that time. No recovery window is shorter.
pub const LEASE_TERM: Duration = Duration::from_secs(2);
/// Recalls in one reply.
pub const RECALLS: usize = 1000;
/// Pieces of an object that one request writes or reads.
pub const OBJECT_PIECES: usize = 1024;
/// Sets of pieces in one range claim.
pub const CLAIM_PIECES: usize = 16;
