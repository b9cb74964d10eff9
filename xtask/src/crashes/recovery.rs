//! `--recovery`: eight mounts write 256 MiB. All OSTs lose power before most of it is committed. The run measures how
//! soon they answer again.

use std::{fs::OpenOptions, io::Write as _, path::Path};

use super::{probe::Probes, site::Site, stamp, tally::Samples};
use crate::figures::Outcome;

/// Number of mounts.
pub const MOUNTS: usize = 8;
/// Writes of 1 MiB per mount.
const WRITES: u64 = 32;
const WRITE_BYTES: u64 = 1 << 20;

/// Runs this many rounds.
pub fn run(mut site: Site, rounds: u64) -> Outcome<(Site, String)> {
    site.start()?;
    let mut probes = Probes::make(&site)?;
    probes.open(&site)?;
    let base = site.point(0).join("replay");
    std::fs::create_dir_all(&base).map_err(|error| format!("a directory: {error}"))?;
    site.setstripe(&base, &["-c", "-1"])?;
    let (mut first, mut last, mut requests) = (Samples::default(), Samples::default(), Vec::new());
    // Without the MDT: its process is a client of the OSTs that would not come back. The other figures cover that case.
    let osts: Vec<usize> = (1..site.servers.len()).collect();
    for round in 0..rounds {
        let paths: Vec<_> = (0..MOUNTS).map(|m| site.point(m).join("replay").join(format!("r{round}-{m}"))).collect();
        on_all(&paths, |number, path| write(path, round, number))?;
        osts.iter().for_each(|server| site.servers[*server].signal(libc::SIGKILL));
        osts.iter().try_for_each(|server| site.servers[*server].wait())?;
        osts.iter().try_for_each(|server| site.start_server(*server))?;
        probes.ask(&osts)?;
        osts.iter().try_for_each(|server| site.servers[*server].ready())?;
        let answers = probes.answers(&site, &osts)?;
        for server in &osts {
            let times = answers.iter().filter(|answer| answer.server == *server);
            let times = times.map(|answer| answer.time.ok_or("a probe was told an error".to_owned()));
            let times = times.collect::<Outcome<Vec<_>>>()?;
            first.push(times.iter().min().copied().unwrap_or_default());
            last.push(times.iter().max().copied().unwrap_or_default());
        }
        requests.push(replayed(&site)?);
        on_all(&paths, |number, path| check(path, round, number))?;
    }
    site.stop()?;
    let fsck = site.fsck()?;
    requests.sort_unstable();
    let (least, most) = (requests.first().copied().unwrap_or(0), requests.last().copied().unwrap_or(0));
    let words = format!(
        "{rounds} power cuts of all OSTs, {MOUNTS} mounts, {} MiB written before each and compared after it\n\
         requests replayed per cut: {least} to {most}\n\
         a server's start to its first new reply: {first}\n... to the reply to its last client: {last}\nfsck: {fsck}",
        (MOUNTS as u64 * WRITES * WRITE_BYTES) >> 20
    );
    Ok((site, words))
}

fn file(round: u64, number: usize) -> u32 {
    stamp::file_of(number as u64, round + 1)
}

fn on_all<P: AsRef<Path> + Sync>(paths: &[P], work: impl Fn(usize, &Path) -> Outcome + Sync) -> Outcome {
    std::thread::scope(|scope| {
        let work = &work;
        let one = |(number, path): (usize, &'_ P)| {
            let path = path.as_ref().to_owned();
            scope.spawn(move || work(number, &path))
        };
        let threads: Vec<_> = paths.iter().enumerate().map(one).collect();
        threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| "a thread panicked".to_owned())?)
    })
}

fn write(path: &Path, round: u64, number: usize) -> Outcome {
    let words = |error: std::io::Error| format!("{}: {error}", path.display());
    let mut out = OpenOptions::new().write(true).create_new(true).open(path).map_err(words)?;
    let mut bytes = vec![0; WRITE_BYTES as usize];
    for write in 0..WRITES {
        stamp::fill(&mut bytes, file(round, number), write as u32 + 1, write * WRITE_BYTES);
        out.write_all(&bytes).map_err(words)?;
    }
    Ok(())
}

fn check(path: &Path, round: u64, number: usize) -> Outcome {
    let bytes = std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let expected: Vec<_> =
        (0..WRITES).map(|write| (write * WRITE_BYTES..(write + 1) * WRITE_BYTES, write as u32 + 1)).collect();
    let found = stamp::writes(&bytes, file(round, number)).map_err(|error| format!("{}: {error}", path.display()))?;
    if found == expected { Ok(()) } else { Err(format!("{}: acknowledged bytes are lost: {found:?}", path.display())) }
}

/// Number of requests that clients replayed to the targets.
fn replayed(site: &Site) -> Outcome<u64> {
    let status = site.status()?;
    let targets = status["targets"].as_array().ok_or("status tells of no targets")?;
    Ok(targets.iter().filter_map(|target| target["recovery"]["replayed"].as_u64()).sum())
}
