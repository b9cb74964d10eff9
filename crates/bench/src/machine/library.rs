//! The client library alone on small requests. Several programs take turns in one file: the library coalesces their
//! writes and serves their reads from its read cache.
//!
//! The costs of the resulting messages are known (`bench cpu-costs`) and subtracted. The rest is the library's own
//! cost.

use std::path::Path;

use forebay_client::{Client, ClientError, ClientResult, MountOptions, OpenFile, OpenMode};
use forebay_command::{
    error::{CliResult, Doing},
    posix, progress,
    summary::median,
};
use forebay_env::{Address, Env, real};
use forebay_proto::{Fid, message::LayoutSpec};

use crate::{
    cpu_costs::{Amount, Listen, Servers, caller, costs::Costs, payload},
    line::Line,
};

/// Two lengths separate the cost of a request from that of its bytes. Neither consists of whole sectors. For both the
/// library prefetches all bytes between the requests (see `DENSE_STEP_BYTES` in `forebay_client::limits`).
const LENGTHS: [u64; 2] = [16_000, 48_000];
/// Programs. With more of them the distances would exceed what is prefetched as a whole.
const PROGRAMS: u64 = 4;
/// Bytes of the whole payload: more than a core's caches hold.
const PAYLOAD_BYTES: u64 = 256 << 20;

/// CPU time of a small request, without that of messages.
#[derive(Clone, Copy, Debug)]
pub struct Library {
    /// A write that is coalesced with others.
    pub gather: Line,
    /// A read that the read cache serves.
    pub kept: Line,
}

/// The cost of a phase.
#[derive(Clone, Copy, Debug, Default)]
struct Spent {
    cpu_us: f64,
    requests: f64,
    bytes: f64,
    messages: f64,
}

impl Spent {
    /// Microseconds of a request, less its part of messages that cost `message` each.
    fn beside(self, message: Line) -> f64 {
        let messages_us = self.messages * message.us + self.bytes * message.byte_ns / 1e3;
        (self.cpu_us - messages_us) / self.requests
    }
}

/// Measures over servers that it starts in `dir`.
pub fn measure(dir: &Path, amount: Amount, costs: &Costs) -> CliResult<Library> {
    let _waiting = progress::spinner("the client library");
    let servers = Servers::start(dir, Listen::Sockets, 1, amount.bytes * 4)?;
    let mut rounds = Vec::new();
    for _ in 0..amount.repetitions {
        let mgs = servers.mgs();
        let measured = real::run(async |env| {
            let [few, many] = LENGTHS;
            let few = phases(&env, &mgs, few, amount.bytes).await?;
            Ok::<_, ClientError>([few, phases(&env, &mgs, many, amount.bytes).await?])
        });
        rounds.push(measured.doing(|| "a measured request failed".into())?);
    }
    servers.stop()?;
    let line = |reads: usize, message: &str| {
        let message = costs.client(message);
        let of = |size: usize| (LENGTHS[size], median(rounds.iter().map(|round| round[size][reads].beside(message))));
        Line::through(of(0), of(1))
    };
    Ok(Library { gather: line(0, "write"), kept: line(1, "read") })
}

/// Writes `bytes` in requests of `length`, then reads them.
async fn phases(env: &Env, mgs: &[Address], length: u64, bytes: u64) -> ClientResult<[Spent; 2]> {
    let payload = payload(PAYLOAD_BYTES as usize);
    let requests = bytes / length / PROGRAMS * PROGRAMS;
    let mut spent = [Spent::default(); 2];
    for (spent, reads) in spent.iter_mut().zip([false, true]) {
        // A new mount for the reads: its read cache is empty.
        let options = MountOptions { description: "bench machine".into(), ..MountOptions::new(mgs.to_vec()) };
        let client = Client::mount(env, options).await?;
        let mut files = Vec::new();
        for rank in 0..PROGRAMS {
            files.push(open(&client, reads, rank == 0).await?);
        }
        let begun = (posix::own_cpu_seconds(), client.stats().rpcs);
        for (number, file) in (0..requests).zip(files.iter().cycle()) {
            let offset = number * length;
            if reads {
                client.read_parts(file, offset, length as usize).await?;
            } else {
                // Begins at a sector boundary, as in a mount.
                let at = (number * length.next_multiple_of(4096) % (PAYLOAD_BYTES - length)) as usize & !4095;
                client.write(file, offset, payload.slice(at..at + length as usize)).await?;
            }
        }
        for file in files {
            if !reads {
                client.fsync(&file, false).await?;
            }
            client.close(file).await?;
        }
        *spent = Spent {
            cpu_us: (posix::own_cpu_seconds() - begun.0) * 1e6,
            requests: requests as f64,
            bytes: (requests * length) as f64,
            messages: (client.stats().rpcs - begun.1) as f64,
        };
        if reads {
            client.unlink(&caller(), Fid::ROOT, NAME).await?;
            // So that the space is free for the next round.
            client.sync_all().await?;
        }
        client.unmount().await?;
    }
    Ok(spent)
}

/// Name of the file.
const NAME: &[u8] = b"small";

async fn open(client: &Client, reads: bool, is_first: bool) -> ClientResult<OpenFile> {
    let mode = if reads { OpenMode::READ } else { OpenMode::WRITE };
    if is_first && !reads {
        let layout = LayoutSpec { stripe_count: 1, ..LayoutSpec::inherit() };
        return Ok(client.create(&caller(), Fid::ROOT, NAME, 0o644, mode, layout).await?.1);
    }
    let found = client.lookup(&caller(), Fid::ROOT, NAME).await?;
    client.open(&caller(), found.fid, mode).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_beside_messages_is_the_total_less_their_cost() {
        let spent = Spent { cpu_us: 1000.0, requests: 10.0, bytes: 400_000.0, messages: 4.0 };
        assert_eq!(spent.beside(Line { us: 50.0, byte_ns: 1.0 }), 40.0);
    }
}
