//! The client library by itself on small requests, several programs taking turns in one file: writes that it gathers, reads
//! that it finds in what it keeps.
//!
//! What the messages cost that come of them is known (`bench cpu-costs`), and taken off: what is left is the library's.

use std::path::Path;

use forebay_client::{Client, ClientError, ClientResult, MountOptions, OpenFile, OpenMode};
use forebay_env::{Address, Env, real};
use forebay_proto::{
    Errno, Fid,
    message::{Caller, LayoutSpec},
};

use crate::{
    bench::{
        cpu_costs::{Servers, costs::Costs, payload},
        line::Line,
    },
    error::{CliResult, Doing},
    posix, progress,
    summary::median,
};

/// Two lengths tell the cost of a request from that of its bytes. Neither is of whole sectors, nor long enough to be sent as it is.
const FEW_BYTES: u64 = 16_000;
/// See above.
const MANY_BYTES: u64 = 128_000;
/// Requests to the servers have so many bytes.
const MESSAGE_BYTES: u64 = 1 << 20;
/// All payload there is.
const PAYLOAD_BYTES: u64 = 64 << 20;

/// CPU time of a small request, beside that of messages.
#[derive(Clone, Copy, Debug)]
pub struct Library {
    /// A write that is gathered with others.
    pub gather: Line,
    /// A read that is answered from what is kept.
    pub kept: Line,
}

/// Measures over servers of its own in `dir`.
pub fn measure(dir: &Path, programs: u32, bytes: u64, repetitions: u32, costs: &Costs) -> CliResult<Library> {
    let _waiting = progress::spinner("the client library");
    let servers = Servers::start(dir, None, 1, bytes * 4)?;
    let mut rounds = Vec::new();
    for round in 0..repetitions {
        let mgs = servers.mgs();
        let measured = real::run(async |env| {
            let few = phases(&env, &mgs, programs, FEW_BYTES, bytes / 4, round).await?;
            Ok::<_, ClientError>([few, phases(&env, &mgs, programs, MANY_BYTES, bytes, round).await?])
        });
        rounds.push(measured.doing(|| "a measured request failed".into())?);
    }
    servers.stop()?;
    let line = |pick: fn(&[f64; 2]) -> f64, message: Line| {
        let of = |size: usize, bytes: u64| {
            let messages = message.us_of(MESSAGE_BYTES) * bytes as f64 / MESSAGE_BYTES as f64;
            (bytes, median(rounds.iter().map(|round| pick(&round[size]))) - messages)
        };
        Line::through(of(0, FEW_BYTES), of(1, MANY_BYTES))
    };
    let [gather, kept] = [line(|one| one[0], costs.client("write")), line(|one| one[1], costs.client("read"))];
    Ok(Library { gather, kept })
}

/// CPU microseconds of this process for each write of `length`, then for each read.
async fn phases(
    env: &Env,
    mgs: &[Address],
    programs: u32,
    length: u64,
    bytes: u64,
    round: u32,
) -> ClientResult<[f64; 2]> {
    let name = format!("small.{length}.{round}");
    let (payload, mut spent) = (payload(PAYLOAD_BYTES as usize), [0.0; 2]);
    let each = (bytes / length / u64::from(programs)).max(1);
    for (spent, reads) in spent.iter_mut().zip([false, true]) {
        // Another mount has kept nothing of what is read.
        let options = MountOptions { description: "bench machine".into(), ..MountOptions::new(mgs.to_vec()) };
        let client = Client::mount(env, options).await?;
        let mut files = Vec::new();
        for rank in 0..programs {
            files.push(open(&client, &name, reads, rank == 0).await?);
        }
        let begun = posix::own_cpu_seconds();
        let tasks: Vec<_> = (0u64..)
            .zip(files)
            .map(|(rank, file)| {
                let (client, payload) = (client.clone(), payload.clone());
                env.spawn(async move {
                    for number in 0..each {
                        let offset = (number * u64::from(programs) + rank) * length;
                        if reads {
                            client.read_parts(&file, offset, length as usize).await?;
                        } else {
                            let at = (offset.next_multiple_of(4096) % (PAYLOAD_BYTES - length)) as usize;
                            client.write(&file, offset, payload.slice(at..at + length as usize)).await?;
                        }
                    }
                    if !reads {
                        client.fsync(&file, false).await?;
                    }
                    client.close(file).await
                })
            })
            .collect();
        for task in tasks {
            let lost = || ClientError::new(Errno::EIO, "a program's task ended without a word");
            task.await.ok_or_else(lost)??;
        }
        *spent = (posix::own_cpu_seconds() - begun) * 1e6 / (each * u64::from(programs)) as f64;
        if reads {
            client.unlink(&caller(), Fid::ROOT, name.as_bytes()).await?;
        }
        client.unmount().await?;
    }
    Ok(spent)
}

async fn open(client: &Client, name: &str, reads: bool, is_first: bool) -> ClientResult<OpenFile> {
    let mode = if reads { OpenMode::READ } else { OpenMode::WRITE };
    if is_first && !reads {
        let layout = LayoutSpec { stripe_count: 1, ..LayoutSpec::inherit() };
        return Ok(client.create(&caller(), Fid::ROOT, name.as_bytes(), 0o644, mode, layout).await?.1);
    }
    let found = client.lookup(&caller(), Fid::ROOT, name.as_bytes()).await?;
    client.open(&caller(), found.fid, mode).await
}

fn caller() -> Caller {
    Caller { uid: 0, gid: 0, groups: Vec::new() }
}
