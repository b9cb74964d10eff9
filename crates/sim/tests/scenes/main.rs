//! Scenes of a simulated cluster, in one program because a cluster takes a minute to compile. Each test's name says
//! what it checks.

mod access_times;
mod addresses;
mod appends;
mod cancelled;
mod client_instances;
mod clocks;
mod closing;
mod delayed_entries;
mod delayed_setattr;
mod fsync;
mod full;
mod grants;
mod holes;
mod inline;
mod inline_bounds;
mod keys;
mod late_recovery;
mod layouts;
mod leases;
mod levels;
mod listings;
mod locks;
mod members;
mod mirror;
mod older_release;
mod outage;
mod pending_create;
mod pins;
mod posix;
mod rails;
mod range_leases;
mod reading;
mod requests;
mod scene;
mod site;
mod size_watches;
mod slow_disk;
mod streaming;
mod tenants;
mod times;
mod truncates;
mod write_back;

/// The allocator of the real program.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;
