//! Servers that receive and send bulk as an OST does, and store nothing: no store, no transno, no order.
//!
//! They verify the checksums of what they receive, as an OST does. Reads always return the same bytes.

use std::rc::Rc;

use bytes::Bytes;
use forebay_command::error::{CliError, CliResult};
use forebay_env::{
    Address, Env,
    sync::{mpsc, oneshot, select, watch},
};
use forebay_proto::{
    Decode, Encode, Errno, ErrorReply, Fid, Incarnation, SessionId, TargetId, Transno, Uuid, WriteId, crc,
    limits::{self, BLOCK_BYTES},
    message::{
        ConnectReply, Empty, FrameHeader, FrameKind, Op, ReadObject, ReadReply, ReadSegment, WriteObject, WriteReply,
    },
};
use forebay_rpc::{
    Frame, Latch,
    server::{BulkGate, Connection, Handler, Request, serve},
};

use super::sessions::payload;

/// Bound on the bulk in one server's memory.
const BULK_BYTES: u64 = 256 << 20;
const INCARNATION: Incarnation = Incarnation(1);
const WRITE_ID: WriteId = WriteId { client: 1, sequence: 1 };

/// One server for each OST, each on a shard of its own.
pub struct Echoes {
    addresses: Vec<Address>,
    stop: watch::Sender<bool>,
    shards: Vec<oneshot::Receiver<()>>,
}

impl Echoes {
    /// Starts them on free ports of this machine.
    pub async fn start(env: &Env, osts: u32, rsz: u64) -> CliResult<Self> {
        let (stop, stopped) = watch::channel(false);
        let (mut addresses, mut shards) = (Vec::new(), Vec::new());
        for index in 0..osts {
            let (ready, mut is_ready) = mpsc::unbounded_channel();
            let mut stopped = stopped.clone();
            let name = format!("echo{index}");
            shards.push(env.spawn_shard(&name, move |env| async move {
                let listener = match env.listen(&Address::Tcp("127.0.0.1:0".into())).await {
                    Ok(listener) => listener,
                    Err(error) => return drop(ready.send(Err(error.to_string()))),
                };
                let _ = ready.send(Ok(listener.address()));
                let echo = Rc::new(Echo::new(TargetId::ost(index), rsz));
                let serving =
                    serve(&env, listener, echo, BulkGate::new(BULK_BYTES), Rc::default(), Rc::new(Latch::default()));
                select! {
                    biased;
                    _ = stopped.wait_for(|stop| *stop) => {}
                    () = serving => {}
                }
            }));
            let answer = is_ready.recv().await.unwrap_or_else(|| Err("its thread ended".into()));
            addresses.push(answer.map_err(|words| CliError::failed(format!("cannot listen at 127.0.0.1: {words}")))?);
        }
        Ok(Self { addresses, stop, shards })
    }

    /// The servers and their addresses.
    pub fn peers(&self) -> Vec<(TargetId, Vec<Address>)> {
        let peer = |(index, address): (u32, &Address)| (TargetId::ost(index), vec![address.clone()]);
        (0..).zip(&self.addresses).map(peer).collect()
    }

    /// Stops them.
    pub async fn end(self) {
        self.stop.send_replace(true);
        for shard in self.shards {
            // A shard that panicked has ended, too.
            let _ = shard.await;
        }
    }
}

struct Echo {
    id: TargetId,
    bytes: Bytes,
    /// Sums of the blocks, not sealed.
    plain: Vec<u64>,
}

impl Echo {
    fn new(id: TargetId, rsz: u64) -> Self {
        let bytes = payload(rsz);
        let plain = bytes.chunks(BLOCK_BYTES as usize).map(crc::crc64).collect();
        Self { id, bytes, plain }
    }

    fn connect(&self, connection: &Connection) -> ConnectReply {
        let session = SessionId(1);
        connection.session.set(session);
        ConnectReply {
            cluster: Uuid::default(),
            target_uuid: Uuid::default(),
            incarnation: INCARNATION,
            session,
            slots: limits::SLOTS,
            features: 0,
            recovering: false,
            window_ms: 0,
            last_committed: Transno(0),
        }
    }

    fn write(&self, body: &[u8], bulk: &[u8]) -> Result<WriteReply, ErrorReply> {
        let request = WriteObject::from_bytes(body)?;
        let damaged = || ErrorReply::new(Errno::EPROTO, format!("{}: a write arrived damaged", self.id));
        let blocks = crc::blocks(request.offset, bulk.len() as u64, BLOCK_BYTES);
        let sum = |(at, length): (u64, u64)| {
            let from = (at - request.offset) as usize;
            crc::block_sum(request.object.fid, at, request.write_id, &bulk[from..from + length as usize])
        };
        if !blocks.map(sum).eq(request.sums) {
            return Err(damaged());
        }
        Ok(WriteReply { file_bytes: 0, mtime_ns: 0, attr_epoch: 0 })
    }

    fn read(&self, body: &[u8]) -> Result<(ReadReply, Bytes), ErrorReply> {
        let ReadObject { object, offset, length } = ReadObject::from_bytes(body)?;
        if length as usize != self.bytes.len() || !offset.is_multiple_of(u64::from(length)) {
            return Err(ErrorReply::new(Errno::EINVAL, format!("a read of {length} bytes at {offset}")));
        }
        let segment =
            ReadSegment { offset, length, data: true, write_id: WRITE_ID, sums: self.sums(object.fid, offset) };
        Ok((ReadReply { segments: vec![segment], file_bytes: 0, settled: true }, self.bytes.clone()))
    }

    fn sums(&self, fid: Fid, offset: u64) -> Vec<u64> {
        let blocks = crc::blocks(offset, self.bytes.len() as u64, BLOCK_BYTES);
        blocks.zip(&self.plain).map(|((at, length), plain)| crc::seal(fid, at, WRITE_ID, *plain, length)).collect()
    }
}

impl Handler for Echo {
    fn request(&self, connection: &Rc<Connection>, request: Request) {
        let answer: Result<(Vec<u8>, Vec<Bytes>), ErrorReply> = match Op::from_number(request.header.op) {
            Some(Op::Connect) => Ok((self.connect(connection).to_bytes(), Vec::new())),
            Some(Op::Write) => self.write(&request.body, &request.bulk).map(|reply| (reply.to_bytes(), Vec::new())),
            Some(Op::Read) => self.read(&request.body).map(|(reply, bulk)| (reply.to_bytes(), vec![bulk])),
            _ => Ok((Empty {}.to_bytes(), Vec::new())),
        };
        let (kind, body, bulk) = match answer {
            Ok((body, bulk)) => (FrameKind::Reply, body, bulk),
            Err(error) => (FrameKind::Error, error.to_bytes(), Vec::new()),
        };
        let asked = &request.header;
        let mut header = FrameHeader::new(kind, asked.op);
        (header.flags, header.slot, header.sequence) = (asked.flags, asked.slot, asked.sequence);
        (header.session, header.incarnation, header.credits) = (connection.session.get(), INCARNATION, limits::SLOTS);
        connection.send(Frame::new(header, body.into(), bulk));
    }

    fn disconnected(&self, _: &Rc<Connection>) {}
}
