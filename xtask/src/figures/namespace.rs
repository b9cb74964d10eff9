//! Ten million files: memory and restarts.

use super::{
    Outcome, Plan,
    forebay::Forebay,
    summary::{commands, table},
};

/// Runs `bench namespace` once.
pub fn measure(forebay: &Forebay, plan: &Plan) -> Outcome<String> {
    let dir = plan.dir.to_string_lossy();
    let files = plan.size("10M", "200k", "2k");
    let measured =
        forebay.bench(&["namespace", &dir, "--files", files, "--before-crash", plan.size("100k", "100k", "1k")])?;
    let value = |phase: &str| measured.value(phase);
    let detail = |phase: &str, name: &str| measured.details(phase, name).map(|values| values.0[0]);
    let mut rows = vec![
        vec!["creates per second, client and server in one process".into(), format!("{:.0}", value("create")?)],
        vec!["memory, all files made".into(), format!("{:.0} MiB", value("create-memory")?)],
        vec!["peak memory".into(), format!("{:.0} MiB", value("create-peak-memory")?)],
        vec!["table in memory, per file".into(), format!("{:.0} bytes", detail("create", "table_bytes_per_file")?)],
        vec!["clean stop".into(), format!("{:.1} s", value("clean-stop")?)],
    ];
    for (phase, name) in [("restart", "restart"), ("restart-after-crash", "restart after a crash")] {
        let lookup = format!("{phase}-lookup");
        rows.extend([
            vec![format!("{name}, until it serves"), format!("{:.2} s", value(&format!("{phase}-serving"))?)],
            vec![
                format!("{name}: 1000 random lookups, cold"),
                format!(
                    "median {:.0} us, 99 % {:.0} us, all {:.2} s",
                    value(&lookup)?,
                    detail(&lookup, "p99")?,
                    detail(&lookup, "all_s")?
                ),
            ],
            vec![format!("{name}: peak memory"), format!("{:.0} MiB", value(&format!("{phase}-peak-memory"))?)],
        ]);
    }
    let typed = format!("forebay bench namespace DIR --files {files}");
    Ok(format!("{}\n{}", table(&[&format!("{files} files in directories of 1000"), ""], &rows), commands(&[typed])))
}
