//! The laboratory: the real servers and clients on described machines, with the papers' experiments.
//!
//! Servers, journals, sessions, checksums and group commits run the production code. Devices, links and CPU time are
//! modelled (docs/laboratory.md). The payload is zeros. They are sent, checksummed and verified like any bytes, and
//! take no memory.
//!
//! Invariant: the same machine, mode and seed give the same numbers, byte for byte.
//! Invariant: models are calibrated on what the hardware does without the file system, and on nothing else.

mod barrier;
mod costs;
mod gtc;
mod ior;
mod machine;
mod mode;
mod mounted;
mod payload;
mod picture;
mod plot;
mod room;
mod rwsem;
mod sections;
mod site;
mod spider;
mod survey;
mod wall;
mod window;
mod xdd;

pub use costs::MeasuredCosts;
pub use gtc::{CORES as GTC_CORES, Gtc, Run as GtcRun};
pub use ior::{Ior, ior};
pub use machine::Machine;
pub use mode::{JournalPlace, MODES, Mode, mode};
pub use mounted::{PATTERNS, Pattern, Predicted, mounted};
pub use picture::Plot;
pub use plot::plot;
pub use sections::Param;
pub use site::Outcome;
pub use spider::{Curve, Row, Spider, SpiderOptions, spider};
pub use survey::survey;
pub use wall::{
    COMPARED_AT as WALL_COMPARED_AT, DEVICES as WALL_DEVICES, FILES as WALL_FILES, OPERATIONS as WALL_OPERATIONS,
    TASKS as WALL_TASKS, Wall, WallOptions, WallRun, wall,
};
pub use window::Window;
pub use xdd::{Baseline, xdd};

/// The machine of [Spider].
pub const SPIDER: &str = include_str!("../../../machines/spider.toml");
/// The testbed of [Wall].
pub const WALL: &str = include_str!("../../../machines/wall.toml");
/// CPU costs as they were measured.
pub const CPU_COSTS: &str = include_str!("../../../machines/cpu-costs.toml");
