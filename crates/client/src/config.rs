//! How a client is mounted.

use forebay_env::Address;
use forebay_proto::message::CommitLevel;

use crate::{AccessTimes, limits};

/// Options of a client at its start.
#[derive(Clone, Debug)]
pub struct MountOptions {
    /// Where MDT0000 (the MGS) can be reached, best first.
    pub addresses: Vec<Address>,
    /// When replies to changes may leave.
    pub level: CommitLevel,
    /// What the client is, for `forebay status` and logs: `mount host:/path`.
    pub description: String,
    /// Most bytes kept for replay; writers wait beyond it.
    pub pin_bytes: u64,
    /// Most data in one request; a multiple of 64 KiB.
    pub max_rpc_bytes: u32,
    /// Data requests in flight to one OST.
    pub rpcs_in_flight: usize,
    /// Most bytes of small writes that are buffered for a moment to be sent together, if nobody else has the file open;
    /// 0: every write is sent before it is acknowledged.
    pub write_back_bytes: u64,
    /// Most bytes of files that were read, or will be read next, and are kept as long as nobody else may change them; 0: none.
    pub read_cache_bytes: u64,
    /// Files of at most this many bytes are sent to the MDT with their last close, if they were created and closed
    /// without a pause; 0: none. A bound of the directory or file takes precedence.
    pub inline_bytes: usize,
    /// Which reads move access times.
    pub access_times: AccessTimes,
    /// No listing moves the access time of its directory.
    pub no_directory_access_times: bool,
}

impl MountOptions {
    /// The defaults, with MDT0000 at `addresses`.
    pub fn new(addresses: Vec<Address>) -> Self {
        Self {
            addresses,
            level: CommitLevel::Data,
            description: "library".into(),
            pin_bytes: limits::PIN_BYTES,
            max_rpc_bytes: limits::RPC_BYTES,
            rpcs_in_flight: limits::RPCS_IN_FLIGHT,
            write_back_bytes: limits::WRITE_BACK_BYTES,
            read_cache_bytes: limits::READ_CACHE_BYTES,
            inline_bytes: forebay_proto::limits::INLINE_BYTES,
            access_times: AccessTimes::default(),
            no_directory_access_times: false,
        }
    }
}
