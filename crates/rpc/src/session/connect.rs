//! Finds the target, connects to it, and reads what it sends until the connection breaks.

use std::{rc::Rc, time::Duration};

use forebay_env::{Address, Bug, EnvError, EnvErrorKind, Stream, planted};
use forebay_proto::{
    Decode, Encode, Errno, ErrorReply, SessionId, Transno, Uuid,
    message::{Connect, ConnectReply, FrameHeader, FrameKind, Op, features},
};

use super::{SessionState, inner::Inner, link::Link, reply::Verdict};
use crate::{
    RpcError,
    frame::{Frame, FrameError, FrameReader, Outbox},
    limits,
};

/// How an attempt to connect, or a connection, ended.
pub(super) enum End {
    /// It served for a while: retry at once.
    Broke,
    /// No server there, or not ready: retry after a growing pause.
    Away(String),
    /// Another target answers there, or one of another cluster. This one may have moved: retry after a growing pause.
    Another(String),
    /// The target itself reports that it cannot serve: retry after a long pause.
    Stopped(String),
    /// It will never serve us.
    Refused(String),
}

/// Keeps a session connected until it is over.
pub(super) async fn run(inner: Rc<Inner>) {
    let _hooks = ReleaseHooks(inner.clone());
    let (mut pause, mut rounds_at_others) = (limits::BACKOFF_MIN, 0);
    while !inner.over.is_raised() {
        let end = forebay_env::sync::select! {
            biased;
            () = inner.over.wait() => return,
            end = round(&inner) => end,
        };
        inner.disconnected();
        rounds_at_others = if matches!(end, End::Another(_)) { rounds_at_others + 1 } else { 0 };
        pause = match end {
            End::Broke => {
                inner.set_phase(SessionState::Connecting);
                limits::BACKOFF_MIN
            }
            End::Away(why) => {
                inner.set_phase(SessionState::Connecting);
                inner.complain(&format!("{why}; trying again"));
                (pause * 2).min(limits::BACKOFF_MAX)
            }
            // At first it is a mistake to report, unless a newer map knows better. Later it is a server being reinstalled.
            End::Another(why) if !inner.never_connected() || rounds_at_others < limits::ROUNDS_AT_OTHERS => {
                let connected = !inner.never_connected();
                inner.set_phase(if connected { SessionState::Stopped } else { SessionState::Connecting });
                inner.complain(&why);
                (pause * 2).min(limits::BACKOFF_STOPPED)
            }
            End::Stopped(why) => {
                inner.set_phase(SessionState::Stopped);
                inner.complain(&why);
                limits::BACKOFF_STOPPED
            }
            End::Refused(why) | End::Another(why) => {
                inner.complain(&format!("refused: {why}"));
                // A client that was admitted before has been fenced: its changes are lost, as after any eviction.
                let error = if inner.never_connected() { RpcError::Refused(why) } else { RpcError::Evicted(why) };
                return inner.shut(SessionState::Refused, &error);
            }
        };
        inner.env.sleep(jittered(&inner, pause)).await;
    }
}

/// The hooks own objects that own the session, a cycle. They are dropped when the session is over, and when its node
/// dies in the simulator.
struct ReleaseHooks(Rc<Inner>);

impl Drop for ReleaseHooks {
    fn drop(&mut self) {
        let hooks = (self.0.lost.take(), self.0.reclaim.take(), self.0.restarted.take());
        drop(hooks);
    }
}

/// Between half and all of `pause`: clients of a restarted target do not connect all at once.
fn jittered(inner: &Inner, pause: Duration) -> Duration {
    pause / 2 + pause / 2 * (inner.env.random_u64() % 1024) as u32 / 1024
}

/// Tries the addresses in order; serves the first connection that the target accepts. If there is none: a stopped target counts before
/// one that is away, which may come at any moment, and that before another target.
async fn round(inner: &Rc<Inner>) -> End {
    let (resolve, target) = (&inner.options.resolve, inner.options.target);
    let mut end = None;
    let addresses = inner.by_address.in_order(&inner.env, resolve.addresses(target));
    for (number, address) in addresses.iter().enumerate() {
        let is_last = number + 1 == addresses.len();
        let limit = if is_last { limits::CONNECT_TIMEOUT } else { limits::CONNECT_TIMEOUT_OF_SEVERAL };
        let tried = match inner.env.timeout(limit, inner.env.connect(address)).await {
            Ok(Ok(stream)) => converse(inner, address, stream).await,
            Ok(Err(error)) if is_untrusted(address, &error) => End::Stopped(error.message),
            Ok(Err(error)) => End::Away(format!("{address}: {error}")),
            Err(_) => {
                inner.by_address.shun(&inner.env, address);
                End::Away(format!("{address}: no connection within {limit:?}"))
            }
        };
        end = Some(match (end, tried) {
            (_, tried @ (End::Broke | End::Refused(_))) => return tried,
            (Some(end @ End::Stopped(_)), _) => end,
            (Some(end @ End::Away(_)), End::Away(_) | End::Another(_)) => end,
            (_, tried) => tried,
        });
    }
    resolve.unreached(target);
    end.unwrap_or_else(|| End::Away("no address is known".into()))
}

/// The other side has no certificate that this side believes. (At a Unix socket, this user may not connect.)
fn is_untrusted(address: &Address, error: &EnvError) -> bool {
    error.kind == EnvErrorKind::Permission && !matches!(address, Address::Unix(_))
}

/// Connects to the target, then reads until the connection ends.
async fn converse(inner: &Rc<Inner>, address: &Address, stream: Stream) -> End {
    if let Some(node) = stream.node()
        && !node.role.may_serve(inner.options.target.kind)
        && !planted(Bug::RoleNotChecked)
    {
        return End::Another(format!("{address}: {node} answers, which may not serve {}", inner.options.target));
    }
    let (read, mut write) = stream.split();
    let open = inner.by_address.open(&inner.env, address);
    let mut reader = FrameReader::counting(read, open.traffic.clone());
    let link = Rc::new(Link::default());
    let outbox = &link.outbox;
    let (writing, traffic) = (outbox.clone(), open.traffic.clone());
    inner.env.spawn(async move { writing.write_to(&mut write, &traffic).await });
    let _closes = CloseOnDrop(outbox.clone());
    let rails = inner.rails_beside(address);
    let features = if rails.is_empty() { features::ALL & !features::RAILS } else { features::ALL };
    if !rails.is_empty() {
        link.number.set(inner.env.random_u64());
    }
    outbox.send(inner.greeting(features, link.number.get()));
    let greeted = inner.env.timeout(limits::CONNECT_TIMEOUT, read_greeting(&mut reader, outbox)).await;
    let reply = match greeted {
        Ok(Ok(reply)) => reply,
        // Somebody else may be in its place, or a clock is wrong: it may be mended.
        Ok(Err(GreetingError::Frame(error @ (FrameError::Untrusted(_) | FrameError::Tls)))) => {
            return End::Stopped(format!("{address}: {error}"));
        }
        Ok(Err(GreetingError::Frame(error @ FrameError::Version { .. }))) => {
            return inner.refused_or_away(format!("{address}: {error}"));
        }
        Ok(Err(GreetingError::Frame(error))) => return End::Away(format!("{address}: {error}")),
        Ok(Err(GreetingError::Reply(error))) => return inner.greeting_failed(address, &error),
        Err(_) => return End::Away(format!("{address}: no greeting within {:?}", limits::CONNECT_TIMEOUT)),
    };
    let reply = ConnectReply { features: reply.features & features, ..reply };
    if let Err(end) = inner.accepted(&reply, &link) {
        return end;
    }
    inner.keep_rails(rails, &link);
    let end = read_replies(inner, &mut reader, &link).await;
    if link.has_rails.get() {
        inner.by_address.ended_with_rails(&inner.env, address);
    }
    end
}

/// Closes the connection, also when the future that reads is dropped.
struct CloseOnDrop(Rc<Outbox>);

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        self.0.close();
    }
}

enum GreetingError {
    Frame(FrameError),
    Reply(ErrorReply),
}

impl From<FrameError> for GreetingError {
    fn from(error: FrameError) -> Self {
        Self::Frame(error)
    }
}

async fn read_greeting(reader: &mut FrameReader, outbox: &Outbox) -> Result<ConnectReply, GreetingError> {
    let receive = async {
        let header = reader.first_header().await?;
        reader.content(header).await
    };
    let received = forebay_env::sync::select! {
        biased;
        received = receive => received?,
        () = outbox.closed() => return Err(FrameError::Disconnected("while greeting".into()).into()),
    };
    let malformed = |e: forebay_proto::DecodeError| FrameError::Bad(format!("reply to Connect: {e}"));
    match received.header.kind {
        FrameKind::Reply => Ok(ConnectReply::from_bytes(&received.body).map_err(malformed)?),
        FrameKind::Error => Err(GreetingError::Reply(ErrorReply::from_bytes(&received.body).map_err(malformed)?)),
        FrameKind::Request => Err(FrameError::Bad("a request where a reply was expected".into()).into()),
    }
}

/// Handles the replies that come by one stream.
pub(super) async fn read_replies(inner: &Rc<Inner>, reader: &mut FrameReader, link: &Link) -> End {
    let mut closed = std::pin::pin!(link.outbox.closed());
    loop {
        let receive = async {
            let header = reader.header().await?;
            let reads = link.turns.reads();
            let received = reader.content(header).await?;
            drop(reads);
            link.turns.wait(&inner.env, received.header.order).await?;
            Ok(received)
        };
        let received = forebay_env::sync::select! {
            biased;
            () = &mut closed => return End::Broke,
            received = receive => received,
        };
        let verdict = match received {
            Ok(received) => {
                inner.round_trip.look(inner.env.now(), || reader.round_trip());
                let verdict = inner.receive(received);
                link.turns.done();
                verdict
            }
            Err(FrameError::Disconnected(_)) => return End::Broke,
            Err(error) => {
                inner.log(&error.to_string());
                return End::Broke;
            }
        };
        match verdict {
            Verdict::GoOn => {}
            Verdict::Reconnect => return End::Broke,
            Verdict::Stopped => return End::Stopped("the target stopped; an operator has to look at it".into()),
        }
    }
}

impl Inner {
    fn greeting(&self, features: u64, number: u64) -> Frame {
        let granted = self.granted.borrow().clone();
        let granted_bytes = granted.map_or(0, |granted| granted());
        let state = self.state.borrow();
        let connect = Connect {
            cluster: self.options.cluster,
            target: self.options.target,
            client: state.client,
            description: self.options.description.clone(),
            features,
            session: state.session,
            last_committed: state.last_committed,
            granted_bytes,
        };
        let mut header = FrameHeader::new(FrameKind::Request, Op::Connect as u16);
        (header.slot, header.session, header.sequence) = (limits::CONTROL_SLOT, state.session, number);
        Frame::new(header, connect.to_bytes().into(), Vec::new())
    }

    /// The connection ended: requests that were sent over it get no reply over it.
    fn disconnected(&self) {
        let mut state = self.state.borrow_mut();
        state.link = None;
        state.controls.clear();
        (state.ping_sent_at, state.commit_ping) = (None, false);
        drop(state);
        self.changed.notify_waiters();
    }

    pub fn never_connected(&self) -> bool {
        self.state.borrow().target_uuid.is_none()
    }

    /// Another version at the first attempt is a mistake to report. Later it is a server being reinstalled.
    fn refused_or_away(&self, why: String) -> End {
        if self.never_connected() { End::Refused(why) } else { End::Stopped(why) }
    }

    fn greeting_failed(&self, address: &Address, error: &ErrorReply) -> End {
        let words = format!("{address}: {error}");
        match error.errno {
            Errno::EVICTED if self.state.borrow().session.0 == 0 => End::Refused(words),
            Errno::EVICTED => {
                self.evicted(&error.message);
                End::Broke
            }
            Errno::WRONG_PEER => End::Another(words),
            Errno::LOST_COMMITS | Errno::STOPPED => End::Stopped(words),
            _ => End::Away(words),
        }
    }

    /// Records what the target reports of itself, and begins recovery or goes on. If the session's owner continues as
    /// another client instance, connects anew.
    fn accepted(&self, reply: &ConnectReply, link: &Link) -> Result<(), End> {
        if self.options.cluster != Uuid::default() && reply.cluster != self.options.cluster {
            let words = format!("it belongs to cluster {}, we to {}", reply.cluster, self.options.cluster);
            return Err(End::Another(words));
        }
        let (asked, known_uuid, client) = {
            let state = self.state.borrow();
            (state.session, state.target_uuid, state.client)
        };
        if asked.0 != 0 && reply.session != asked {
            self.evicted(&format!("it does not know session {asked} any more"));
        } else if known_uuid.is_some_and(|uuid| uuid != reply.target_uuid) {
            self.evicted("the target was formatted anew");
        }
        if known_uuid.is_some_and(|uuid| uuid != reply.target_uuid) {
            self.state.borrow_mut().last_committed = Transno(0);
        }
        self.state.borrow_mut().target_uuid = Some(reply.target_uuid);
        if self.state.borrow().client != client {
            return Err(End::Broke);
        }
        let restarted = {
            let mut state = self.state.borrow_mut();
            let restarted = state.incarnation != reply.incarnation;
            if reply.features & features::RAILS != 0 {
                link.outbox.count_frames();
                link.turns.begin();
            }
            state.link = Some(link.outbox.clone());
            (state.session, state.incarnation) = (reply.session, reply.incarnation);
            state.features = reply.features;
            state.stats.connects += 1;
            (state.sent_at, state.received_at) = (self.env.now(), self.env.now());
            restarted
        };
        self.slots.open(reply.slots);
        if restarted {
            // Before the target receives anything from this session: the hook may rely on that.
            let hook = self.restarted.borrow().clone();
            hook.inspect(|hook| hook());
            let recovered = self.state.borrow_mut().replay.take_recovered(reply.last_committed);
            self.release(recovered, &Ok(()));
        }
        self.note_committed(reply.last_committed);
        if reply.recovering {
            self.begin_recovery();
        } else {
            self.give_up_unreplayed();
            if self.state.borrow().session == SessionId(0) {
                return Err(End::Broke);
            }
            self.go_up();
        }
        Ok(())
    }

    /// The target serves, so it has finished recovery, with or without this session. Changes that it did not receive
    /// are lost.
    fn give_up_unreplayed(&self) {
        let missed = {
            let state = self.state.borrow();
            state.replay.next_to_replay(Transno(0), state.incarnation).is_some()
        };
        if missed {
            self.lose("the target finished its recovery before our replays");
        }
    }
}
