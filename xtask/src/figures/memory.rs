//! Peak memory of servers and mount during large writes.

use super::{
    Outcome, Plan,
    cluster::Cluster,
    forebay::Forebay,
    summary::{commands, table},
};

/// Writes 10 GiB through a new mount.
pub fn measure(forebay: &Forebay, plan: &Plan) -> Outcome<String> {
    let mut cluster = Cluster::make(forebay, plan)?;
    cluster.restart()?;
    let mib = |bytes: u64| format!("{} MiB", bytes >> 20);
    let idle = [cluster.servers.peak_bytes(), cluster.mount.peak_bytes()];
    let block = plan.size("2560MiB", "256MiB", "8MiB");
    let mnt = cluster.mnt.to_string_lossy();
    let args = ["ior", "-F", "-t", "1MiB", "-b", block, "-N", "4", "-e", "-w", &mnt];
    let measured = forebay.bench(&args)?;
    let rows = [
        vec!["servers (1 MDT, 4 OSTs, one process)".into(), mib(idle[0]), mib(cluster.servers.peak_bytes())],
        vec!["mount".into(), mib(idle[1]), mib(cluster.mount.peak_bytes())],
    ];
    let written = measured.details("write", "MiB")?.0[0] / 1024.0;
    let typed = format!("forebay bench ior -F -t 1MiB -b {block} -N 4 -e -w MNT   # then VmHWM of /proc/PID/status");
    let head = format!("after {written:.1} GiB were written");
    Ok(format!("{}\n{}", table(&["peak memory", "after the start", &head], &rows), commands(&[typed])))
}
