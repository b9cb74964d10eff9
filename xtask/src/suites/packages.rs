//! A database, a hierarchical data format, and load generators that verify what they read, as packaged by Debian.

use std::{
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use super::{Plan, cluster::Cluster, programs::sh};
use crate::figures::Outcome;

/// PostgreSQL: transactions while every server is killed, a stop without a checkpoint, and recovery. The sums match,
/// and so does every page's checksum.
pub fn postgres(cluster: &Cluster<'_>, plan: &Plan) -> Outcome<String> {
    let bin = sh(Path::new("/"), "ls -d /usr/lib/postgresql/*/bin | sort -V | tail -n 1")?;
    let bin = bin.trim();
    let seconds = if plan.quick { 10 } else { 60 };
    let dir = cluster.first.join("pg");
    let as_user = "setpriv --reuid=postgres --regid=postgres --init-groups";
    let socket = "-h $PWD -p 54321";
    sh(&cluster.first, "mkdir pg && chown postgres:postgres pg && chmod 700 pg")?;
    let pg = |words: &str| sh(&dir, &format!("run() {{ {as_user} {bin}/\"$@\"; }}; {words}"));
    let start = "run pg_ctl -D data -l log -w -t 120 -o \"-k $PWD -p 54321 -c listen_addresses=''\" start >/dev/null </dev/null";
    pg("run initdb -k -D data >/dev/null")?;
    let worked = (|| {
        pg(start)?;
        pg(&format!("run createdb {socket} bench && run pgbench {socket} -q -i -s 5 bench 2>&1"))?;
        let mut load = Command::new("sh");
        load.current_dir(&dir).stdout(Stdio::piped()).stderr(Stdio::piped());
        load.args(["-euc", &format!("exec {as_user} {bin}/pgbench {socket} -n -c 4 -T {seconds} bench")]);
        let load = load.spawn().map_err(|error| format!("pgbench: {error}"))?;
        std::thread::sleep(Duration::from_secs(seconds / 2));
        cluster.kill_servers()?;
        let load = load.wait_with_output().map_err(|error| format!("pgbench: {error}"))?;
        let (said, complained) = (String::from_utf8_lossy(&load.stdout), String::from_utf8_lossy(&load.stderr));
        let rate = said.lines().find(|line| line.starts_with("tps")).unwrap_or_default().to_owned();
        if !load.status.success() || !said.contains("number of failed transactions: 0 ") {
            return Err(format!("pgbench: {}: {said}{complained}", load.status));
        }
        pg("run pg_ctl -D data -m immediate stop >/dev/null")?;
        pg(start)?;
        let differs = "select (select sum(abalance) from pgbench_accounts) - (select sum(delta) from pgbench_history), \
                       (select sum(bbalance) from pgbench_branches) - (select sum(delta) from pgbench_history)";
        let sums = pg(&format!("run psql {socket} -Atc '{differs}' bench"))?;
        if sums.trim() != "0|0" {
            return Err(format!("the sums of PostgreSQL's tables differ by {sums}"));
        }
        Ok(rate)
    })();
    let stopped = pg("run pg_ctl -D data -m fast stop >/dev/null");
    let rate = worked?;
    stopped?;
    cluster.kill_servers()?;
    let checked = pg("run pg_checksums --check -D data")?;
    if !checked.contains("Bad checksums:  0") {
        return Err(format!("pg_checksums: {checked}"));
    }
    sh(&cluster.first, "rm -rf pg")?;
    Ok(format!("PostgreSQL, {seconds} s: {rate}"))
}

/// h5py with its file locking on: a second writer on the other mount is denied, and a reader there sees what was
/// closed.
pub fn hdf5(cluster: &Cluster<'_>, _plan: &Plan) -> Outcome<String> {
    let python = "/usr/bin/python3";
    let script = r#"
import sys, h5py, numpy as np
first, second = (mount + "/data.h5" for mount in sys.argv[1:3])
noise = np.random.default_rng(1).random((400, 400))
with h5py.File(first, "w") as f:
    f["plain"] = np.arange(1_000_000).reshape(1000, 1000)
    f.create_dataset("chunked", data=noise, chunks=(50, 50), compression="gzip", maxshape=(None, 400))
    try:
        h5py.File(second, "r+")
        sys.exit("a second writer was let in")
    except OSError as error:
        assert error.errno == 11, error
with h5py.File(second, "r") as f:
    assert f["plain"][999, 999] == 999_999 and (f["chunked"][:] == noise).all()
with h5py.File(second, "a", libver="latest") as f:
    f["chunked"].resize((800, 400))
    f["chunked"][400:] = noise[::-1]
with h5py.File(first, "r") as f:
    assert (f["chunked"][:400] == noise).all() and (f["chunked"][400:] == noise[::-1]).all()
"#;
    let run = |words: &str| {
        let mut python = Command::new(python);
        python.args(["-c", words]).arg(&cluster.first).arg(&cluster.second).env_remove("HDF5_USE_FILE_LOCKING");
        crate::figures::process::output(&mut python)
    };
    run(script)?;
    cluster.kill_servers()?;
    run("import sys, h5py; assert h5py.File(sys.argv[1] + '/data.h5', 'r')['chunked'].shape == (800, 400)")?;
    sh(&cluster.first, "rm data.h5")?;
    Ok("h5py, locking on".into())
}

/// fio: random writes of many sizes, verified, through the page cache and past it.
pub fn fio(cluster: &Cluster<'_>, plan: &Plan) -> Outcome<String> {
    let megabytes = if plan.quick { 32 } else { 512 };
    let common = format!("--size={megabytes}m --verify=crc32c --verify_fatal=1 --group_reporting --directory=.");
    let kept = "--do_verify=0 --verify_state_save=0";
    sh(&cluster.first, &format!("fio --name=mix --rw=randrw --bs=4k-256k --numjobs=2 --ioengine=psync {common}"))?;
    sh(&cluster.first, &format!("fio --name=mmap --rw=randwrite --bs=4k-64k --ioengine=mmap {common}"))?;
    let queued = format!("fio --name=aio --rw=randwrite --bs=4k --iodepth=16 --direct=1 --ioengine=libaio {common}");
    sh(&cluster.first, &format!("{queued} {kept} --end_fsync=1"))?;
    cluster.kill_servers()?;
    sh(&cluster.second, &format!("{queued} --verify_only"))?;
    sh(&cluster.first, "rm -f mix.* mmap.* aio.*")?;
    Ok(format!("fio, {megabytes} MiB verified four times"))
}

const QUICK_DBENCH_SECONDS: u32 = 10;

/// dbench with four clients: the requests of office programs to a file server. It ends at the first unexpected answer.
pub fn dbench(cluster: &Cluster<'_>, plan: &Plan) -> Outcome<String> {
    let seconds = if plan.quick { QUICK_DBENCH_SECONDS } else { 60 };
    let run = |mnt: &Path, seconds: u32| {
        let said = sh(mnt, &format!("dbench -D . -t {seconds} 4 2>&1"))?;
        let rate = said.lines().find(|line| line.starts_with("Throughput"));
        rate.map(str::to_owned).ok_or(format!("dbench: {said}"))
    };
    let rate = run(&cluster.first, seconds)?;
    cluster.kill_servers()?;
    run(&cluster.second, QUICK_DBENCH_SECONDS)?;
    Ok(format!("dbench 4, {seconds} s: {rate}"))
}

/// stress-ng's file system stressors. Its exit code does not distinguish skipped stressors, so its log is read.
pub fn stress(cluster: &Cluster<'_>, plan: &Plan) -> Outcome<String> {
    let seconds = if plan.quick { 1 } else { 10 };
    let run = |mnt: &Path, seconds: u32| {
        let words = format!(
            "stress-ng --class filesystem --sequential 2 -t {seconds} --verify --temp-path . --oom-avoid 2>&1 || true"
        );
        stressed(&sh(&mnt.join("stress"), &words)?)
    };
    sh(&cluster.first, "mkdir stress")?;
    let passed_over = run(&cluster.first, seconds)?;
    cluster.kill_servers()?;
    run(&cluster.second, 1)?;
    sh(&cluster.first, "rm -rf stress")?;
    let words = if passed_over.is_empty() { "none".to_owned() } else { passed_over.join(", ") };
    Ok(format!("stress-ng's file system class, {seconds} s each; it passed over: {words}"))
}

/// The stressors that stress-ng's log reports as skipped. Errors: the failures in the log.
fn stressed(log: &str) -> Outcome<Vec<String>> {
    let is_bad = |line: &&str| ["fail:", "error:", "unsuccessful run"].iter().any(|word| line.contains(word));
    let bad: Vec<&str> = log.lines().filter(is_bad).collect();
    if !bad.is_empty() || !log.contains("successful run completed") {
        return Err(format!("stress-ng: {}", if bad.is_empty() { log.to_owned() } else { bad.join("\n") }));
    }
    // `stress-ng: info:  [PID] NAME: ..., skipping stress test`
    let passed_over = log.lines().filter(|line| line.contains("skipping stress") || line.contains("skipped"));
    let name = |line: &str| line.split("] ").nth(1)?.split(':').next().map(str::to_owned);
    let mut names: Vec<String> = passed_over.filter_map(name).collect();
    names.sort();
    names.dedup();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str =
        "stress-ng: info:  [7626] binderfs: not supported, errno=19 (No such device), skipping stress test
stress-ng: info:  [7633] dentry: 20492 dentries allocated
stress-ng: info:  [7622] successful run completed in 48.45s\n";

    #[test]
    fn a_log_of_stress_ng_tells_what_was_passed_over_and_what_failed() {
        assert_eq!(stressed(GOOD), Ok(vec!["binderfs".to_owned()]));
        assert!(stressed(&GOOD.replace("successful", "unsuccessful")).is_err());
        assert!(stressed(&format!("stress-ng: fail:  [1] dir: readdir failed\n{GOOD}")).is_err());
        assert!(stressed("stress-ng: info:  [1] setting to a 1 second run\n").is_err(), "it never ended");
    }
}
