//! The measured messages: each phase sends one kind, through the real client, with many in flight.

use std::{cell::RefCell, collections::VecDeque, rc::Rc};

use bytes::Bytes;
use forebay_client::{Client, ClientError, ClientResult, MountOptions, OpenFile, OpenMode};
use forebay_command::posix;
use forebay_env::{Address, AlignedBuf, Env, Time};
use forebay_proto::{
    Fid,
    message::{Caller, LayoutSpec},
};

use super::{Amount, servers::Servers};
use crate::report::Sample;

/// Bytes of the data requests that are measured.
pub const REQUEST_BYTES: [u64; 3] = [4 << 10, 64 << 10, 1 << 20];
/// Bytes of the whole payload, of which each request takes a part.
const PAYLOAD_BYTES: u64 = 256 << 20;
/// The smallest requests move this fraction of the bytes, as they are many.
const SMALL_PART: u64 = 16;

/// What one kind of message cost in one repetition.
#[derive(Clone, Debug)]
pub struct Measured {
    /// `create`, `write 1024 KiB`.
    pub message: String,
    /// CPU microseconds of the client, per message.
    pub client_us: f64,
    /// The same for all servers.
    pub server_us: f64,
    messages: u64,
    seconds: f64,
    client_busy: f64,
    server_busy: f64,
}

impl Measured {
    /// A row's sample for the report.
    pub fn sample(&self, server: bool) -> Sample {
        let (value, busy) =
            if server { (self.server_us, self.server_busy) } else { (self.client_us, self.client_busy) };
        let details = vec![("messages", self.messages as f64), ("seconds", self.seconds), ("busy", busy)];
        Sample { value, details }
    }
}

/// Runs all phases, in the order of a file's life.
pub async fn measure(
    env: &Env,
    servers: &Servers,
    mgs: Vec<Address>,
    amount: Amount,
    round: u32,
) -> ClientResult<Vec<Measured>> {
    let meter = Meter { env: env.clone(), servers, depth: amount.depth };
    let client = mount(env, &mgs).await?;
    let dir_name = format!("round{round}");
    let dir = client.mkdir(&caller(), Fid::ROOT, dir_name.as_bytes(), 0o755).await?.fid;
    let mut measured = names(&meter, &client, &mgs, dir, amount.files).await?;
    measured.extend(data(&meter, &client, dir, amount.bytes).await?);
    client.unmount().await?;
    Ok(measured)
}

async fn mount(env: &Env, mgs: &[Address]) -> ClientResult<Client> {
    // Caches are off: the requests are measured.
    let options = MountOptions {
        description: "bench cpu-costs".into(),
        read_cache_bytes: 0,
        write_back_bytes: 0,
        ..MountOptions::new(mgs.to_vec())
    };
    Client::mount(env, options).await
}

async fn names(
    meter: &Meter<'_>,
    client: &Client,
    mgs: &[Address],
    dir: Fid,
    files: u32,
) -> ClientResult<Vec<Measured>> {
    let count = u64::from(files);
    let opened: Rc<RefCell<Vec<OpenFile>>> = Rc::default();
    let create = |number| {
        let (client, opened) = (client.clone(), opened.clone());
        async move {
            let mode = OpenMode::READ_WRITE;
            let (_, file) =
                client.create(&caller(), dir, name(number).as_bytes(), 0o644, mode, LayoutSpec::inherit()).await?;
            opened.borrow_mut().push(file);
            Ok(())
        }
    };
    let mut measured = vec![meter.phase("create", count, create).await?];
    let fids: Rc<Vec<Fid>> = Rc::new(opened.borrow().iter().map(OpenFile::fid).collect());
    let close = |_| {
        let (client, file) = (client.clone(), opened.borrow_mut().pop());
        async move {
            match file {
                Some(file) => client.close(file).await,
                None => Ok(()),
            }
        }
    };
    measured.push(meter.phase("close", count, close).await?);
    // A client without leases has to send each request.
    let other = mount(&meter.env, mgs).await?;
    let lookup = |number| {
        let client = other.clone();
        async move { client.lookup(&caller(), dir, name(number).as_bytes()).await.map(drop) }
    };
    measured.push(meter.phase("lookup", count, lookup).await?);
    other.unmount().await?;
    let other = mount(&meter.env, mgs).await?;
    let getattr = |number: u64| {
        let (client, fid) = (other.clone(), fids[number as usize]);
        async move { client.getattr(fid, None).await.map(drop) }
    };
    measured.push(meter.phase("getattr", count, getattr).await?);
    let open = |number: u64| {
        let (client, fid, opened) = (other.clone(), fids[number as usize], opened.clone());
        async move {
            let file = client.open(&caller(), fid, OpenMode::READ).await?;
            opened.borrow_mut().push(file);
            Ok(())
        }
    };
    measured.push(meter.phase("open", count, open).await?);
    // Unmounting closes the files, and waits for that.
    other.unmount().await?;
    opened.borrow_mut().clear();
    let unlink = |number| {
        let client = client.clone();
        async move { client.unlink(&caller(), dir, name(number).as_bytes()).await }
    };
    measured.push(meter.phase("unlink", count, unlink).await?);
    // The client delays directory operations. So the last one waits until the MDT has executed all of them.
    let mkdir = |number| {
        let client = client.clone();
        async move {
            client.mkdir(&caller(), dir, name(number).as_bytes(), 0o755).await?;
            if number + 1 == count {
                client.settled(dir).await;
            }
            Ok(())
        }
    };
    measured.push(meter.phase("mkdir", count, mkdir).await?);
    let rmdir = |number| {
        let client = client.clone();
        async move {
            client.rmdir(&caller(), dir, name(number).as_bytes()).await?;
            if number + 1 == count {
                client.settled(dir).await;
            }
            Ok(())
        }
    };
    measured.push(meter.phase("rmdir", count, rmdir).await?);
    Ok(measured)
}

async fn data(meter: &Meter<'_>, client: &Client, dir: Fid, bytes: u64) -> ClientResult<Vec<Measured>> {
    let (mut measured, payload) = (Vec::new(), payload(PAYLOAD_BYTES as usize));
    for request in REQUEST_BYTES {
        let bytes = if request == REQUEST_BYTES[0] { bytes / SMALL_PART } else { bytes };
        let (count, called) = (bytes / request, format!("data{request}"));
        let mode = OpenMode::READ_WRITE;
        let (_, file) = client.create(&caller(), dir, called.as_bytes(), 0o644, mode, LayoutSpec::inherit()).await?;
        let write = |number| {
            let at = (number * request % PAYLOAD_BYTES) as usize;
            let (client, file, payload) = (client.clone(), file.clone(), payload.slice(at..at + request as usize));
            async move { client.write(&file, number * request, payload).await.map(drop) }
        };
        let read = |number| {
            let (client, file) = (client.clone(), file.clone());
            async move { client.read_parts(&file, number * request, request as usize).await.map(drop) }
        };
        measured.push(meter.phase(&format!("write {} KiB", request >> 10), count, write).await?);
        measured.push(meter.phase(&format!("read {} KiB", request >> 10), count, read).await?);
        client.close(file).await?;
        client.unlink(&caller(), dir, called.as_bytes()).await?;
        client.sync_all().await?;
    }
    Ok(measured)
}

/// Bytes as a mount has them: in memory aligned for a device, no two words alike, and more than a core's caches hold.
pub fn payload(length: usize) -> Bytes {
    let mut buffer = AlignedBuf::zeroed(length);
    let mut word = 1u64;
    for bytes in buffer.chunks_exact_mut(8) {
        word = word.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29) ^ 0x5bd1;
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    buffer.freeze()
}

fn name(number: u64) -> String {
    format!("file.{number:07}")
}

/// The caller of all requests.
pub fn caller() -> Caller {
    Caller { uid: 0, gid: 0, groups: Vec::new() }
}

struct Meter<'a> {
    env: Env,
    servers: &'a Servers,
    depth: u32,
}

impl Meter<'_> {
    /// Sends `count` messages, `depth` at a time, and divides the CPU time of all processes among them.
    async fn phase<F>(&self, message: &str, count: u64, send: impl Fn(u64) -> F) -> ClientResult<Measured>
    where
        F: Future<Output = ClientResult<()>> + 'static,
    {
        let began = (self.env.now(), posix::own_cpu_seconds(), self.servers.cpu_seconds());
        let mut under_way = VecDeque::new();
        let lost = || ClientError::new(forebay_proto::Errno::EIO, "a request's task ended without a word");
        for number in 0..count {
            if under_way.len() >= self.depth as usize
                && let Some(first) = under_way.pop_front()
            {
                let sent: forebay_env::Task<ClientResult<()>> = first;
                sent.await.ok_or_else(lost)??;
            }
            under_way.push_back(self.env.spawn(send(number)));
        }
        for sent in under_way {
            sent.await.ok_or_else(lost)??;
        }
        Ok(self.since(message, count, began))
    }

    fn since(&self, message: &str, messages: u64, began: (Time, f64, f64)) -> Measured {
        let seconds = self.env.now().since(began.0).as_secs_f64();
        let (client, server) = (posix::own_cpu_seconds() - began.1, self.servers.cpu_seconds() - began.2);
        Measured {
            message: message.into(),
            client_us: client * 1e6 / messages as f64,
            server_us: server * 1e6 / messages as f64,
            messages,
            seconds,
            client_busy: client / seconds,
            server_busy: server / seconds,
        }
    }
}
