//! Fuzz targets: what reads bytes from outside, before and after the sender has shown a certificate.
//!
//! A target is a function of bytes. It returns whether its decoder has taken them. It panics if the decoder does, or if
//! what was read is not the same after it was encoded and decoded again.
//! The tests of this crate feed damaged seeds to each target, on any Rust. `cargo fuzz` (the folder `fuzz`) searches with
//! the compiler's help.
//! Not here: single bodies of messages under every kind of damage (`crates/proto/tests/bodies`), a whole server
//! (`crates/rpc/tests/hostile`).

mod corpus;
mod keys;
mod messages;
mod texts;
mod tls;

pub use keys::{bans, capabilities, certificates};
pub use messages::{bodies, frame_header, frames};
pub use texts::{description, texts};
pub use tls::{handshake, records};

/// A fuzz target.
#[derive(Clone, Copy, Debug)]
pub struct FuzzTarget {
    /// Its name, as `cargo fuzz` has it.
    pub name: &'static str,
    /// Feeds it with bytes. True: its decoder takes them.
    pub run: fn(&[u8]) -> bool,
    /// Inputs to begin with.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// How many damaged inputs the test command tries: what takes about a second.
    pub rounds: u64,
    /// Most memory that one input takes, beside 16 bytes for each of its bytes.
    pub memory_bytes: usize,
}

/// Memory for words about what is wrong.
const SMALL: usize = 64 << 10;
/// Keys with their certificates, and what judges those of others.
const KEYS: usize = 128 << 10;
/// A simulated connection.
const WIRE: usize = 256 << 10;
/// A frame whose header is right is read into memory of the length that it names.
const FRAME: usize = forebay_proto::limits::BODY_BYTES + forebay_proto::limits::BULK_BYTES;

/// All targets.
pub const ALL: [FuzzTarget; 10] = [
    target("frame_header", frame_header, messages::header_seeds, 200_000, SMALL),
    target("frames", frames, messages::frame_seeds, 20_000, WIRE + FRAME),
    target("bodies", bodies, messages::body_seeds, 200_000, SMALL),
    target("handshake", handshake, tls::handshake_seeds, 2_000, WIRE),
    target("records", records, tls::record_seeds, 1_000, 2 * WIRE),
    target("certificates", certificates, keys::certificate_seeds, 10_000, KEYS),
    target("capabilities", capabilities, keys::capability_seeds, 100_000, SMALL),
    target("bans", bans, keys::ban_seeds, 100_000, SMALL),
    target("texts", texts, texts::text_seeds, 100_000, SMALL),
    target("description", description, texts::description_seeds, 10_000, SMALL),
];

const fn target(
    name: &'static str,
    run: fn(&[u8]) -> bool,
    seeds: fn() -> Vec<Vec<u8>>,
    rounds: u64,
    memory_bytes: usize,
) -> FuzzTarget {
    FuzzTarget { name, run, seeds, rounds, memory_bytes }
}
