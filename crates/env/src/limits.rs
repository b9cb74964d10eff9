//! Bounds of the queues, buffers and waits of this crate.

use std::time::Duration;

/// Bytes written to a stream and not yet read at its other end before `write_all` waits (in-process and simulated
/// streams; TCP and Unix sockets have the system's own buffers).
pub const STREAM_BYTES: usize = 4 << 20;
/// Read-ahead buffer of a socket's reading end: it holds many small frames. Of a large frame this much is copied once
/// more.
pub const READ_AHEAD_BYTES: usize = 8 << 10;
/// Connections that wait to be accepted, per listener.
pub const ACCEPT_BACKLOG: usize = 1024;
/// Requests of one device in flight in the kernel.
pub const DEVICE_QUEUE_DEPTH: usize = 256;
/// Requests of one device that may wait for a slot in flight; more are refused.
pub const DEVICE_REQUESTS: usize = 1 << 16;
/// Free buffer memory that a thread keeps for reuse: about what a mount under load gets back at one commit, with the
/// free remains in chunks of small writes.
pub const POOL_BYTES: usize = 320 << 20;
/// Buffers from this size on are cut from huge pages.
pub const MAPPED_BYTES_MIN: usize = 256 << 10;
/// Memory for such buffers that is mapped at once.
pub const MAPPED_AT_ONCE_BYTES: usize = 8 << 20;
/// Buffers from this size on are pooled; smaller ones are left to the allocator.
pub const POOLED_BYTES_MIN: usize = 16 << 10;
/// Largest pooled buffer: larger ones are rare. The chunks that a mount reads to are no larger.
pub const POOLED_BYTES_MAX: usize = 8 << 20;
/// Bytes that a TCP socket may have sent without an acknowledgement: enough for 10 Gb/s over 20 ms. By itself the kernel stops at 4 MiB in
/// many systems. It takes memory only for what is on its way.
pub const TCP_SEND_BYTES: i32 = 16 << 20;
/// Bytes that may wait in a TCP socket before they are sent: two large frames.
pub const TCP_UNSENT_BYTES: i32 = 2 << 20;
/// Bytes that a Unix socket may hold: a frame of 1 MiB goes out in one call, and wakes its reader rarely.
pub const UNIX_SOCKET_BYTES: i32 = 2 << 20;
/// How long a shard polls for the next small message before it sleeps. A wake-up on another processor takes 30 to 80
/// µs, so a reply that is one wake-up away arrives within this time.
pub const BUSY_POLL: Duration = Duration::from_micros(100);
/// Messages from this size on are bulk data, for which no shard polls.
pub const BUSY_POLL_MESSAGE_BYTES: usize = 16 << 10;
/// Bytes read from a descriptor after which the other tasks of the shard get a turn. With fewer, each request would
/// cost a poll of all descriptors. It is less than a frame, so that one frame leaves while the next is read.
pub const TURN_BYTES: usize = 256 << 10;
/// Bytes that a TLS stream reads or seals at a time, about: 16 records. They stay in a core's cache.
pub const TLS_PIECE_BYTES: usize = 256 << 10;
/// Largest TLS record, with its header and tag (RFC 8446, 5.2).
pub const TLS_RECORD_BYTES: usize = 5 + (16 << 10) + 256;
/// Longest content of a record with integrity only.
pub const TLS_CLEAR_BYTES: usize = 256 << 10;
/// Records of one TLS key, about: rustls' bound for AES-GCM. Then the sender takes the next key.
pub const TLS_RECORDS_PER_KEY: u64 = 1 << 24;
/// Longest handshake message that is read, about: a certificate takes less than 1 KiB.
pub const TLS_HANDSHAKE_BYTES: usize = 32 << 10;
/// Parts of one vectored system call (IOV_MAX).
pub const IO_PARTS: usize = 1024;
/// Largest small file that `read_file` takes.
pub const SMALL_FILE_BYTES: u64 = 64 << 20;
/// Cache of a simulated disk's unflushed writes, in bytes; beyond it, the oldest writes become durable, as in a real
/// drive.
pub const SIM_DISK_CACHE_BYTES: usize = 64 << 20;
/// Bytes of a forgetful real disk that are in memory alone; beyond that, the oldest go to the file, as in a real drive.
pub const FORGETFUL_DISK_BYTES: usize = 64 << 20;
/// Retransmission timeout of a lost simulated message.
pub const SIM_RETRANSMIT: Duration = Duration::from_millis(200);
/// A simulated stream resets, and a connection attempt ends, after this long without passage.
pub const SIM_IDLE_TIMEOUT: Duration = Duration::from_secs(10);
/// Polls at one instant of virtual time after which the simulator reports a livelock.
pub const SIM_POLLS_AT_ONE_INSTANT: u64 = 50_000_000;
/// Entries that a processor's queue of FUSE over io_uring starts with; more are added once more than half are in use.
/// Each is address space for a header and the longest request. Memory is used only for what requests have filled, and
/// the entry used last is used first.
pub const FUSE_RING_ENTRIES: usize = 64;
/// Replies that wait for one system call; with more, the call is made sooner.
pub const FUSE_RING_SUBMISSIONS: u32 = 256;
/// Requests that may arrive between two turns of the shard before the kernel has to store them elsewhere.
pub const FUSE_RING_COMPLETIONS: u32 = 4096;
