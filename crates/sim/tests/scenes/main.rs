//! Scenes of a simulated cluster, each a test of what it is named for. One program: a cluster takes a minute to compile.

mod access_times;
mod ahead;
mod appends;
mod clocks;
mod closing;
mod early;
mod fsync;
mod full;
mod granted;
mod holes;
mod inline;
mod inline_bounds;
mod laboratory;
mod layouts;
mod leases;
mod levels;
mod listings;
mod locks;
mod mirror;
mod outage;
mod pins;
mod reading;
mod rejoining;
mod returning;
mod set_ahead;
mod sharing;
mod slow_disk;
mod small;
mod times;
mod truncates;
mod watches;
mod write_back;

/// As of the program itself.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;
