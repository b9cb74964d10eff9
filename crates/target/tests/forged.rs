//! Frames that no client of ours would send: replays of requests that were never executed, requests to an earlier
//! incarnation, unknown feature bits.

use std::time::Duration;

use bytes::Bytes;
use forebay_env::{Env, WriteHalf};
use forebay_proto::{
    ClientId, Decode, Encode, Errno, ErrorReply, Incarnation, SessionId, Transno,
    message::{Connect, ConnectReply, FrameHeader, FrameKind, Op, RaiseSize, features, frame_flags},
};
use forebay_rpc::{Frame, FrameReader, limits::CONTROL_SLOT};
use forebay_target::TargetState;

use crate::toy::*;

/// A feature bit that this program does not know.
const OF_THE_FUTURE: u64 = 1 << 63;

/// A client that writes its frames itself.
struct Forger {
    reader: FrameReader,
    write: WriteHalf,
    reply: ConnectReply,
}

impl Forger {
    /// Connects, as soon as a server listens.
    async fn connect(env: &Env, id: ClientId, session: SessionId, seen: Transno) -> Self {
        let stream = loop {
            match env.connect(&address()).await {
                Ok(stream) => break stream,
                Err(_) => env.sleep(Duration::from_millis(1)).await,
            }
        };
        let (read, mut write) = stream.split();
        let mut header = FrameHeader::new(FrameKind::Request, Op::Connect as u16);
        (header.slot, header.sequence) = (CONTROL_SLOT, 1);
        let connect = Connect {
            cluster: CLUSTER,
            target: TARGET,
            client: id,
            description: "forger".into(),
            features: features::ACCESS_TIMES | OF_THE_FUTURE,
            session,
            last_committed: seen,
            granted_bytes: 0,
        };
        let frame = Frame::new(header, connect.to_bytes().into(), vec![]);
        write.write_all(&[Bytes::copy_from_slice(&frame.header.to_bytes()), frame.body]).await.unwrap();
        let mut reader = FrameReader::new(read);
        let header = reader.header().await.unwrap();
        let reply = ConnectReply::from_bytes(&reader.content(header).await.unwrap().body).unwrap();
        Self { reader, write, reply }
    }

    /// Adds 1, with a header of the session that `forge` has changed.
    async fn add(&mut self, forge: impl FnOnce(&mut FrameHeader)) {
        let mut header = FrameHeader::new(FrameKind::Request, Op::RaiseSize as u16);
        (header.session, header.incarnation, header.sequence) = (self.reply.session, self.reply.incarnation, 1);
        forge(&mut header);
        let request = RaiseSize { object: object(1), file_bytes: 1, attr_epoch: 0, before: Vec::new() };
        let frame = Frame::new(header, request.to_bytes().into(), vec![]);
        self.write.write_all(&[Bytes::copy_from_slice(&frame.header.to_bytes()), frame.body]).await.unwrap();
    }
}

/// A client replays requests that it never made.
#[test]
fn forged_replays_are_refused() {
    async fn exchange(env: &Env, id: ClientId, session: SessionId, seen: Transno, replays: &[Transno]) -> ConnectReply {
        let mut forger = Forger::connect(env, id, session, seen).await;
        for transno in replays {
            forger.add(|header| (header.flags, header.transno) = (frame_flags::REPLAY, *transno)).await;
        }
        for _ in replays {
            let answered = env.timeout(Duration::from_secs(5), forger.reader.header()).await;
            if let Ok(Ok(header)) = answered {
                forger.reader.content(header).await.unwrap();
            }
        }
        forger.reply
    }

    let world = World::new(13, Setup { commit_interval: Duration::from_secs(3600), ..Setup::default() });
    let honest = world.client("honest");
    let node = world.sim.add_node("forger");
    let env = world.sim.env(node);
    let id = ClientId::from_random(6, 6);
    let (first, forged) = world.sim.block_on(async {
        let called = honest.add(1).await.unwrap();
        (exchange(&env, id, SessionId(0), Transno(0), &[]).await, called.transno)
    });
    world.power_cut();
    world.start_server();
    world.sim.block_on(async {
        let future = Transno::new(Incarnation(first.incarnation.0 + 5), 1);
        exchange(&env, id, first.session, Transno(0), &[forged, forged, future, Transno(u64::MAX)]).await;
        let before = honest.add(1).await.unwrap().reply.file_bytes;
        assert!(before <= 2, "{before}");
    });
    assert_eq!(world.target().state(), TargetState::Serving);
}

#[test]
fn a_session_has_the_features_that_both_sides_know() {
    let world = World::new(18, Setup::default());
    let env = world.sim.env(world.sim.add_node("forger"));
    world.sim.block_on(async {
        let forger = Forger::connect(&env, ClientId::from_random(8, 8), SessionId(0), Transno(0)).await;
        assert_eq!(forger.reply.features, features::ACCESS_TIMES);
    });
}

/// A request sent to an earlier incarnation of the target is refused by the current one, whatever connection it comes
/// on: the changes that it relies on may be lost.
#[test]
fn a_request_of_an_earlier_incarnation_is_refused() {
    let world = World::new(17, Setup::default());
    world.power_cut();
    world.start_server();
    let env = world.sim.env(world.sim.add_node("forger"));
    world.sim.block_on(async {
        let id = ClientId::from_random(6, 6);
        let mut forger = Forger::connect(&env, id, SessionId(0), Transno(0)).await;
        let before = Incarnation(forger.reply.incarnation.0 - 1);
        for (incarnation, expected) in [(before, FrameKind::Error), (forger.reply.incarnation, FrameKind::Reply)] {
            forger.add(|header| header.incarnation = incarnation).await;
            let header = forger.reader.header().await.unwrap();
            let answer = forger.reader.content(header).await.unwrap();
            assert_eq!(answer.header.kind, expected, "a request of incarnation {incarnation}");
            if expected == FrameKind::Error {
                assert_eq!(ErrorReply::from_bytes(&answer.body).unwrap().errno, Errno::RECOVERING);
            }
        }
    });
}
