//! `network` and `netdisk`: one session with each server, used by all threads of its OST.

use std::rc::Rc;

use bytes::Bytes;
use forebay_client::limits::PIN_BYTES;
use forebay_command::error::{CliError, CliResult, Doing};
use forebay_env::{Address, AlignedBuf, Env};
use forebay_proto::{
    Fid, TargetId, Transno, Uuid, WriteId, crc,
    limits::BLOCK_BYTES,
    message::{CommitLevel, Destroy, ObjectRef, ReadObject, WriteObject},
};
use forebay_rpc::{Call, ClientSession, PinBudget, SessionOptions};

use super::{
    disk::fid,
    plan::{Phase, Share, Work},
};

/// One session for each server.
pub struct Sessions {
    env: Env,
    sessions: Vec<ClientSession>,
    bytes: Bytes,
}

impl Sessions {
    /// Connects to all servers.
    pub async fn start(env: &Env, peers: &[(TargetId, Vec<Address>)], rsz: u64) -> CliResult<Self> {
        let (client, pins) = (Uuid::from_random(env.random_u64(), env.random_u64()), PinBudget::new(PIN_BYTES));
        let session = |(target, addresses): &(TargetId, Vec<Address>)| {
            let options = SessionOptions {
                cluster: Uuid::default(),
                target: *target,
                resolve: Rc::new(addresses.clone()),
                client,
                description: "bench obdfilter-survey".into(),
                pins: pins.clone(),
            };
            ClientSession::start(env, options)
        };
        let sessions: Vec<ClientSession> = peers.iter().map(session).collect();
        for session in &sessions {
            session.ready().await.doing(|| format!("{} does not serve", session.target()))?;
        }
        Ok(Self { env: env.clone(), sessions, bytes: payload(rsz) })
    }

    /// Runs all threads on all servers, then waits until their changes are committed.
    pub async fn run(&self, work: &Work) -> CliResult {
        let mut threads = Vec::new();
        for session in &self.sessions {
            let shares = if work.phase == Phase::Destroy { Vec::new() } else { work.shares() };
            for share in shares {
                let thread =
                    Thread { session: session.clone(), fid: fid(work.run, share.object), bytes: self.bytes.clone() };
                let work = *work;
                threads.push((session, self.env.spawn(async move { thread.run(work, share).await })));
            }
            if work.phase == Phase::Destroy {
                let fids = (0..work.point.objects).map(|object| fid(work.run, object)).collect();
                let called = session.call(&Destroy { fids }, Call::default()).await.doing(|| "destroy".into())?;
                commit(session, called.transno).await?;
            }
        }
        let mut changes: Vec<(&ClientSession, Transno)> = Vec::new();
        for (session, thread) in threads {
            let ended = thread.await.unwrap_or_else(|| Err("a thread ended without a word".into()));
            changes.push((session, ended.map_err(CliError::failed)?));
        }
        for (session, transno) in changes {
            commit(session, transno).await?;
        }
        Ok(())
    }

    /// Closes the sessions.
    pub async fn end(self) {
        for session in &self.sessions {
            session.close().await;
        }
    }
}

/// Waits until `transno` is committed. If nothing was changed there is nothing to wait for.
async fn commit(session: &ClientSession, transno: Transno) -> CliResult {
    if transno == Transno(0) {
        return Ok(());
    }
    session.committed(transno).await.doing(|| format!("{} did not commit", session.target()))
}

struct Thread {
    session: ClientSession,
    fid: Fid,
    bytes: Bytes,
}

impl Thread {
    /// Sends the requests of `share`; returns the transno of the last change.
    async fn run(self, work: Work, share: Share) -> Result<Transno, String> {
        let this = Rc::new(self);
        let mut last = Transno(0);
        for number in 0..share.requests {
            let offset = share.from + number * work.rsz;
            match work.phase {
                Phase::Read => this.read(offset).await?,
                _ => last = last.max(this.write(offset, write_id(&work, &share, number)).await?),
            }
        }
        Ok(last)
    }

    async fn write(&self, offset: u64, write_id: WriteId) -> Result<Transno, String> {
        let request = WriteObject {
            object: self.object(),
            offset,
            length: self.bytes.len() as u32,
            write_id,
            sums: sums(self.fid, offset, write_id, &self.bytes),
            file_bytes: 0,
            attr_epoch: 0,
            granted_bytes: 0,
        };
        let call = Call { bulk: vec![self.bytes.clone()], ..Call::level(CommitLevel::Data) };
        let called = self.session.call(&request, call).await;
        called.map(|called| called.transno).map_err(|error| error.to_string())
    }

    /// Reads and verifies the bytes, as every client does.
    async fn read(&self, offset: u64) -> Result<(), String> {
        let request = ReadObject { object: self.object(), offset, length: self.bytes.len() as u32 };
        let called = self.session.call(&request, Call::default()).await.map_err(|error| error.to_string())?;
        let (mut at, mut bulk) = (offset, &called.bulk[..]);
        for segment in &called.reply.segments {
            let good = segment.data && segment.offset == at && bulk.len() >= segment.length as usize;
            let data = bulk.get(..segment.length as usize).unwrap_or_default();
            if !good || sums(self.fid, at, segment.write_id, data) != segment.sums {
                return Err(format!("{}: what was read at {at} is not what was written", self.session.target()));
            }
            (at, bulk) = (at + u64::from(segment.length), &bulk[segment.length as usize..]);
        }
        if at == offset + self.bytes.len() as u64 { Ok(()) } else { Err(format!("a read at {offset} ended at {at}")) }
    }

    fn object(&self) -> ObjectRef {
        ObjectRef { fid: self.fid, layout_generation: 1, truncate_epoch: 0 }
    }
}

/// A write id that no other write has.
fn write_id(work: &Work, share: &Share, number: u64) -> WriteId {
    let again = u64::from(work.phase == Phase::Rewrite);
    let sequence = (u64::from(work.run) << 1 | again) << 40 | (share.from / work.rsz + number + 1);
    WriteId { client: 1 + u64::from(share.object), sequence }
}

fn sums(fid: Fid, offset: u64, write_id: WriteId, bytes: &[u8]) -> Vec<u64> {
    let block = |(at, length): (u64, u64)| {
        let from = (at - offset) as usize;
        crc::block_sum(fid, at, write_id, &bytes[from..from + length as usize])
    };
    crc::blocks(offset, bytes.len() as u64, BLOCK_BYTES).map(block).collect()
}

/// Bytes as a program has them: in memory aligned for a device, and no two words alike.
pub fn payload(length: u64) -> Bytes {
    let mut buffer = AlignedBuf::zeroed(length as usize);
    let mut word = 1u64;
    for bytes in buffer.chunks_exact_mut(8) {
        word = word.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29) ^ 0x5bd1;
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    buffer.freeze()
}
