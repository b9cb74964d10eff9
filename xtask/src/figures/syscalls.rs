//! System calls per MiB written and read, counted by strace.

use std::{
    collections::BTreeMap,
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use super::{
    Outcome, Plan,
    cluster::Cluster,
    forebay::Forebay,
    process::{Pids, output},
    summary::{commands, table},
};

/// Calls below this number per MiB are left out.
const LEAST_PER_MIB: f64 = 0.02;

/// Counts calls while files are written and read. The counting slows everything down, so nothing else is measured here.
pub fn measure(forebay: &Forebay, plan: &Plan) -> Outcome<String> {
    if Command::new("strace").arg("-V").output().is_err() {
        return Ok("strace is not installed here: not counted.".into());
    }
    let cluster = Cluster::make(forebay, plan)?;
    let block = plan.size("256MiB", "64MiB", "4MiB");
    let mnt = cluster.mnt.to_string_lossy();
    let mut rows: BTreeMap<String, [f64; 4]> = BTreeMap::new();
    for (column, flags) in [(0, &["-w", "-k"][..]), (2, &["-r"][..])] {
        let tracers =
            [Tracer::start(&cluster.mount, plan, "mount")?, Tracer::start(&cluster.servers, plan, "servers")?];
        let args: Vec<&str> = [&["ior", "-F", "-t", "1MiB", "-b", block, "-N", "4", "-e"], flags, &[&mnt]].concat();
        let measured = forebay.bench(&args)?;
        let phase = if column == 0 { "write" } else { "read" };
        let mib = measured.details(phase, "MiB")?.0[0];
        for (place, tracer) in tracers.into_iter().enumerate() {
            for (call, count) in tracer.stop()? {
                rows.entry(call).or_default()[column + place] = count as f64 / mib;
            }
        }
    }
    let shown = rows.into_iter().filter(|(_, counts)| counts.iter().any(|count| *count >= LEAST_PER_MIB));
    let line = |(call, counts): (String, [f64; 4])| {
        [call].into_iter().chain(counts.map(|count| format!("{count:.2}"))).collect::<Vec<_>>()
    };
    let rows: Vec<Vec<String>> = shown.map(line).collect();
    let heads = ["system calls per MiB", "mount, write", "servers, write", "mount, read", "servers, read"];
    let typed = format!("strace -f -c -p PID & forebay bench ior -F -t 1MiB -b {block} -N 4 -e MNT");
    Ok(format!("{}\n{}", table(&heads, &rows), commands(&[typed])))
}

struct Tracer {
    child: Child,
    out: std::path::PathBuf,
}

impl Tracer {
    fn start(pids: &Pids, plan: &Plan, name: &str) -> Outcome<Self> {
        let out = plan.dir.join(format!("strace.{name}"));
        let mut command = Command::new("strace");
        command.args(["-f", "-c", "-o"]).arg(&out);
        command.args(pids.0.iter().flat_map(|pid| ["-p".to_owned(), pid.to_string()]));
        let child = command.stderr(Stdio::null()).spawn().map_err(|error| format!("strace: {error}"))?;
        // strace prints nothing when it has attached.
        thread::sleep(Duration::from_secs(1));
        Ok(Self { child, out })
    }

    fn stop(mut self) -> Outcome<Vec<(String, u64)>> {
        output(Command::new("kill").args(["-INT", &self.child.id().to_string()]))?;
        self.child.wait().map_err(|error| format!("strace: {error}"))?;
        read_counts(&self.out)
    }
}

fn read_counts(path: &Path) -> Outcome<Vec<(String, u64)>> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(text.lines().filter_map(parse_line).collect())
}

/// `% time  seconds  usecs/call  calls  [errors]  syscall`.
fn parse_line(line: &str) -> Option<(String, u64)> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let (name, calls) = (fields.last()?, fields.get(3)?.parse().ok()?);
    (*name != "total" && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')).then(|| ((*name).into(), calls))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_straces_summary_are_read_with_and_without_errors() {
        assert_eq!(
            parse_line(" 50.00    0.1      2       512           io_uring_enter"),
            Some(("io_uring_enter".into(), 512))
        );
        assert_eq!(parse_line(" 50.00    0.1      2       512        3 futex"), Some(("futex".into(), 512)));
        assert_eq!(parse_line("100.00    0.2      2       600        3 total"), None);
        assert_eq!(parse_line("------ ----------- ----------- --------- --------- ----------------"), None);
    }
}
