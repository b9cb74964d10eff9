//! How sessions begin, are resumed, and end.
//!
//! Invariant: a session's row is durable before its client receives the session's number.
//! Invariant: no request of an ended session is executed. Its client receives the reason when it reconnects.

use std::rc::Rc;

use forebay_env::{Bug, PeerIdentity, planted};
use forebay_keys::Role;
use forebay_proto::{
    ClientId, Decode, Errno, ErrorReply, SessionId, Uuid, limits as proto_limits,
    message::{Connect, ConnectReply, Empty, Fence, FrameHeader, JoinRail, features},
};
use forebay_rpc::server::{Connection, NoRail, Request};
use forebay_store::CommitPoint;

use crate::{
    Answer, Attempt, Context, TargetState,
    core::Core,
    limits,
    rows::{self, FenceRow, SessionRow},
    session::Session,
};

impl Core {
    pub(crate) fn connect(&self, connection: &Rc<Connection>, request: Request) {
        let header = request.header;
        let connect = match Connect::from_bytes(&request.body) {
            Ok(connect) => connect,
            Err(error) => return self.refuse(connection, &header, &error.into()),
        };
        if let Err(error) = self.check_running().and_then(|()| self.check_peer(connection, &connect)) {
            return self.refuse_connect(connection, &header, &connect, &error);
        }
        self.evict_earlier_instances(&connect);
        match self.known_session(&connect) {
            Ok(Some(session)) => self.resume(connection, &header, &connect, &session),
            Ok(None) => self.begin_session(connection, header, connect),
            Err(error) => self.refuse_connect(connection, &header, &connect, &error),
        }
    }

    /// Evicts the sessions that a restarted server (itself a client here) had before its restart. Recovery does not
    /// wait for them.
    fn evict_earlier_instances(&self, connect: &Connect) {
        let former: Vec<SessionId> = {
            let sessions = self.sessions.borrow();
            let former = sessions.values().filter(|session| connect.client.is_later_life(&session.client));
            former.map(|session| session.id).collect()
        };
        if !former.is_empty() {
            let core = self.strong();
            self.env.spawn(async move { core.evict_all(former, "it was started anew").await });
        }
    }

    fn refuse_connect(&self, connection: &Connection, header: &FrameHeader, connect: &Connect, error: &ErrorReply) {
        // Clients that connect during recovery, or to a stopped target, are expected: not logged.
        if !matches!(error.errno, Errno::RECOVERING | Errno::STOPPED) {
            self.log(&format!("refused {} ({}): {error}", name(connect), connection.peer));
        }
        self.refuse(connection, header, error);
    }

    fn check_peer(&self, connection: &Connection, connect: &Connect) -> Result<(), ErrorReply> {
        let identity = self.store.identity();
        let wrong = |words: String| Err(ErrorReply::new(Errno::WRONG_PEER, words));
        if connect.target != identity.target {
            return wrong(format!("this is {}, not {}: correct the cluster's map", identity.target, connect.target));
        }
        if connect.cluster != Uuid::default() && connect.cluster != identity.cluster {
            return wrong(format!(
                "{} belongs to cluster {}, the client to {}",
                identity.target, identity.cluster, connect.cluster
            ));
        }
        if self.by_client.borrow().keys().any(|client| client.is_later_life(&connect.client)) {
            return Err(ErrorReply::new(Errno::EVICTED, "it was started anew since, and this life of it is over"));
        }
        if self.fenced.borrow().contains_key(&connect.client) {
            return Err(ErrorReply::new(Errno::EVICTED, "the client was fenced; it has to start anew"));
        }
        self.check_node(connection, connect)
    }

    /// A node may have sessions, and another node's session is not its own.
    fn check_node(&self, connection: &Connection, connect: &Connect) -> Result<(), ErrorReply> {
        let PeerIdentity::Node { node, .. } = &connection.peer else { return Ok(()) };
        let refused = |words: String| Err(ErrorReply::new(Errno::WRONG_PEER, words));
        if node.role == Role::Router {
            return refused(format!("{node} forwards for others, and has no session of its own"));
        }
        if connect.client.is_life() && node.role != Role::Mds {
            return refused(format!("{node} is no MDS, and client {} is one", connect.client));
        }
        let is_its =
            |session: &Session| session.client == connect.client || connect.client.is_later_life(&session.client);
        let sessions = self.sessions.borrow();
        let owner =
            sessions.values().filter(|session| is_its(session)).find_map(|session| match &*session.peer.borrow() {
                Some(PeerIdentity::Node { node: owner, .. }) if owner != node => Some(owner.clone()),
                _ => None,
            });
        match owner.filter(|_| !planted(Bug::SessionOfAnyNode)) {
            Some(owner) => refused(format!("client {} belongs to {owner}, not to {node}", connect.client)),
            None => Ok(()),
        }
    }

    /// The session to resume. A client that requests a new session and already has one never received the reply to its
    /// first Connect.
    fn known_session(&self, connect: &Connect) -> Result<Option<Rc<Session>>, ErrorReply> {
        let recovering = self.state.get() == TargetState::Recovering;
        let by_client = self.by_client.borrow().get(&connect.client).copied();
        let asked = if connect.session == SessionId(0) { by_client } else { Some(connect.session) };
        let session = asked.and_then(|id| self.session(id)).filter(|s| s.client == connect.client);
        match session {
            Some(session) => {
                self.check_commits(connect)?;
                Ok(Some(session))
            }
            None if connect.session != SessionId(0) => Err(self.why_ended(connect.session).unwrap_or_else(|| {
                ErrorReply::new(Errno::EVICTED, format!("session {} is not known (any more)", connect.session))
            })),
            None if recovering => {
                Err(ErrorReply::new(Errno::RECOVERING, "the target recovers; new sessions begin afterwards"))
            }
            None => Ok(None),
        }
    }

    /// Compares the client's `last_committed` with ours. If the client saw a later commit of an earlier incarnation,
    /// durable changes were lost: the target stops until an operator has looked.
    fn check_commits(&self, connect: &Connect) -> Result<(), ErrorReply> {
        let ours = self.store.last_committed();
        if connect.last_committed <= ours {
            return Ok(());
        }
        if connect.last_committed.incarnation() >= self.incarnation() {
            let words =
                format!("claims to have seen {} committed; the target has not given it", connect.last_committed);
            return Err(ErrorReply::new(Errno::EPROTO, words));
        }
        let words = format!(
            "{} saw transno {} committed, {} recovered only up to {ours}: its journal lost committed changes. Was an older \
             copy of its devices brought back? Then bring back the newest and restart it. To go on without these changes, \
             unmount that client (`forebay umount --force`), then restart it",
            name(connect),
            connect.last_committed,
            self.store.identity().target
        );
        self.stop(&words);
        Err(ErrorReply::new(Errno::LOST_COMMITS, words))
    }

    /// Why a session ended, if that is remembered.
    pub(crate) fn why_ended(&self, session: SessionId) -> Option<ErrorReply> {
        let ended = self.ended.borrow();
        let (_, reason) = ended.iter().rev().find(|(id, _)| *id == session)?;
        Some(ErrorReply::new(Errno::EVICTED, reason.clone()))
    }

    fn resume(&self, connection: &Rc<Connection>, header: &FrameHeader, connect: &Connect, session: &Rc<Session>) {
        let Some(point) = session.created.get() else {
            return self.bind(connection, header, connect, session);
        };
        let (core, connection, header) = (self.strong(), connection.clone(), header.clone());
        let (connect, session) = (connect.clone(), session.clone());
        self.env.spawn(async move {
            if core.commit(point).await.is_ok() && !session.ended.get() {
                session.created.set(None);
                core.bind(&connection, &header, &connect, &session);
            }
        });
    }

    /// Binds the session to this connection.
    fn bind(&self, connection: &Rc<Connection>, header: &FrameHeader, connect: &Connect, session: &Rc<Session>) {
        if connection.is_closed() {
            return;
        }
        connection.session.set(session.id);
        session.peer.replace(Some(connection.peer.clone()));
        let old = session.connection.replace(Some(connection.clone()));
        if !old.as_ref().is_some_and(|old| Rc::ptr_eq(old, connection)) {
            session.connections.set(session.connections.get() + 1);
            old.iter().for_each(|old| old.close());
        }
        session.last_seen.set(self.env.now());
        let recovering = self.state.get() == TargetState::Recovering;
        let identity = self.store.identity();
        let reply = ConnectReply {
            cluster: identity.cluster,
            target_uuid: identity.uuid,
            incarnation: self.incarnation(),
            session: session.id,
            slots: proto_limits::SLOTS,
            features: features::ALL & connect.features,
            recovering,
            window_ms: u32::try_from(self.options.recovery_window.as_millis()).unwrap_or(u32::MAX),
            last_committed: self.store.last_committed(),
        };
        self.answer(connection, header, &reply);
        if reply.features & features::RAILS != 0 {
            connection.count_frames(header.sequence);
        }
        if recovering {
            self.service().comes_back(session.id, connect.granted_bytes);
            self.joined(session);
        }
    }

    /// The stream of `connection` becomes one more of the session's connection.
    pub(crate) fn join_rail(&self, connection: &Rc<Connection>, request: &Request) {
        let header = &request.header;
        let join = match JoinRail::from_bytes(&request.body) {
            Ok(join) => join,
            Err(error) => return self.refuse(connection, header, &error.into()),
        };
        let identity = self.store.identity();
        let is_ours =
            (join.target, join.target_uuid, header.incarnation) == (identity.target, identity.uuid, self.incarnation());
        let session = self.session(join.session).filter(|session| is_ours && session.client == join.client);
        let main = session.and_then(|session| session.connection.borrow().clone());
        let may =
            main.as_ref().map_or(Err(NoRail::Single), |main| connection.may_become_rail_of(main, join.connection));
        match (main, may) {
            (Some(main), Ok(())) => {
                self.answer(connection, header, &Empty {});
                connection.become_rail_of(&main);
            }
            (_, no) => {
                let why = no.err().unwrap_or(NoRail::Single);
                if why == NoRail::Foreign {
                    self.log_refusal(&format!("{}: refused a stream of session {}", connection.peer, join.session));
                }
                self.refuse(connection, header, &ErrorReply::new(Errno::WRONG_PEER, why.words()));
            }
        }
    }

    fn begin_session(&self, connection: &Rc<Connection>, header: FrameHeader, connect: Connect) {
        if self.sessions.borrow().len() >= limits::SESSIONS {
            let words = format!("the target has {} sessions; it takes no more", limits::SESSIONS);
            return self.refuse_connect(connection, &header, &connect, &ErrorReply::new(Errno::EAGAIN, words));
        }
        let session = self.new_session(&connect);
        let row = SessionRow {
            client: session.client,
            description: session.description.clone(),
            created_ns: session.created_ns,
            generation: self.store.identity().generation,
        };
        let (core, connection) = (self.strong(), connection.clone());
        self.env.spawn(async move {
            let key = rows::session_key(session.id).to_vec();
            let result = core.change_rows(std::slice::from_ref(&key), |txn| txn.put(&key, rows::value(&row))).await;
            match result {
                Ok(_) if core.fenced.borrow().contains_key(&session.client) => {
                    // The client was fenced while its session row was written.
                    core.remove_rows(&session).await;
                    let error = ErrorReply::new(Errno::EVICTED, "the client was fenced; it has to start anew");
                    core.refuse_connect(&connection, &header, &connect, &error);
                }
                Ok(point) => {
                    session.created.set(Some(point));
                    core.sessions.borrow_mut().insert(session.id, session.clone());
                    core.by_client.borrow_mut().insert(session.client, session.id);
                    core.log(&format!("session {} begins: {} ({})", session.id, name(&connect), connection.peer));
                    core.resume(&connection, &header, &connect, &session);
                }
                Err(error) => core.refuse_connect(&connection, &header, &connect, &error),
            }
        });
    }

    /// Session numbers are never reused: the incarnation is unique, and so is the counter within it.
    fn new_session(&self, connect: &Connect) -> Rc<Session> {
        let begun = self.sessions_begun.get() + 1;
        self.sessions_begun.set(begun);
        let id = SessionId(u64::from(self.incarnation().0) << 32 | u64::from(begun));
        let mut description = connect.description.clone();
        let cut =
            (0..=limits::DESCRIPTION_BYTES.min(description.len())).rev().find(|i| description.is_char_boundary(*i));
        description.truncate(cut.unwrap_or(0));
        Session::new(id, connect.client, description, self.env.unix_time().0, self.env.now())
    }

    /// The client disconnects: ends its session.
    pub(crate) fn goodbye(&self, connection: &Rc<Connection>, session: Rc<Session>, request: Request) {
        let (core, connection, header) = (self.strong(), connection.clone(), request.header);
        self.env.spawn(async move {
            core.forget(&session, "it said goodbye");
            // Durable before the client has the reply: a restarted target need not wait for this client.
            if let Some(point) = core.remove_session(&session, false).await {
                let _ = core.commit(point).await;
            }
            core.answer(&connection, &header, &Empty {});
            connection.finish();
        });
    }

    /// Evicts a session.
    pub(crate) async fn evict(&self, session: &Rc<Session>, reason: &str) {
        // Changes that were acknowledged but not applied are still applied, within the time limit.
        let _ = self.env.timeout(limits::HELD_WAIT, self.wait_applied(None)).await;
        if self.forget_evicted(session, reason) {
            self.remove_session(session, true).await;
        }
    }

    /// As [`Core::forget`], for an evicted session. The caller has to call [`Core::remove_session`] next.
    pub(crate) fn forget_evicted(&self, session: &Rc<Session>, reason: &str) -> bool {
        let was_there = self.forget(session, reason);
        if was_there {
            self.count(|c| c.evictions += 1);
            self.log(&format!("evicted session {} ({}): {reason}", session.id, session.described()));
        }
        was_there
    }

    /// Removes a session from all tables in memory; no request of it is executed after that. False if it was removed
    /// before.
    pub(crate) fn forget(&self, session: &Rc<Session>, reason: &str) -> bool {
        if session.ended.replace(true) {
            return false;
        }
        self.sessions.borrow_mut().remove(&session.id);
        let mut by_client = self.by_client.borrow_mut();
        if by_client.get(&session.client) == Some(&session.id) {
            by_client.remove(&session.client);
        }
        let mut ended = self.ended.borrow_mut();
        ended.push_back((session.id, reason.to_owned()));
        if ended.len() > limits::ENDED {
            ended.pop_front();
        }
        drop((by_client, ended));
        if reason != "it said goodbye"
            && let Some(connection) = session.disconnect()
        {
            self.say_and_close(&connection, &ErrorReply::new(Errno::EVICTED, reason));
        }
        true
    }

    /// Makes the service release what the session held, and removes the session's rows.
    ///
    /// The removal of an evicted session is committed before anybody else is given what it held. Otherwise another
    /// crash would bring the session back beside the new holders.
    pub(crate) async fn remove_session(&self, session: &Rc<Session>, evicted: bool) -> Option<CommitPoint> {
        if !evicted {
            self.service().session_ended(session.id, session.client, evicted).await;
            return self.remove_rows(session).await;
        }
        let gone = self.remove_rows(session).await;
        if let Some(point) = gone {
            let _ = self.commit(point).await;
        }
        self.service().session_ended(session.id, session.client, evicted).await;
        self.leave_recovery(session.id);
        gone
    }

    /// Removes the rows of an ended session. If that fails, the session exists again after a restart; its client does
    /// not come, and it is evicted.
    pub(crate) async fn remove_rows(&self, session: &Session) -> Option<CommitPoint> {
        let keys = session_keys(session);
        let removed = self.change_rows(&keys, |txn| keys.iter().for_each(|key| txn.delete(key))).await;
        if let Err(error) = &removed {
            self.log(&format!("the rows of session {} stay for now: {error}", session.id));
        }
        removed.ok()
    }

    /// Fences a client: ends its session and refuses all its later requests. The fence is in the same transaction as
    /// the reply.
    pub(crate) async fn fence(&self, ctx: &Context, body: &[u8]) -> Attempt<Answer> {
        if let Some(PeerIdentity::Node { node, .. }) = ctx.peer()
            && node.role != Role::Mds
        {
            return Err(ErrorReply::new(Errno::EPERM, format!("{node} may not fence clients")).into());
        }
        let client = Fence::from_bytes(body)?.client;
        if planted(Bug::FenceSkipped) {
            ctx.prefetch::<[u8; 0]>(&[]).await?;
            let ticket = ctx.admit();
            ticket.turn().await;
            return ticket.apply(|_| Ok(Empty {}));
        }
        let session = self.session_of_client(client);
        let mut keys: Vec<Vec<u8>> = session.as_deref().map(session_keys).unwrap_or_default();
        keys.push(rows::fence_key(client).to_vec());
        let oldest = self.fence_to_forget();
        keys.extend(oldest.map(|c| rows::fence_key(c).to_vec()));
        let write = |txn: &mut forebay_store::Txn, transno| {
            keys.iter().for_each(|key| txn.delete(key));
            txn.put(rows::fence_key(client), rows::value(&FenceRow { transno }));
            Ok(Empty {})
        };
        let answer = if self.service().admits(forebay_proto::message::Op::Write) {
            let ticket = ctx.admit();
            ticket.turn().await;
            ctx.prefetch(&keys).await?;
            let transno = ticket.transno();
            ticket.apply(|txn| write(txn, transno))?
        } else {
            ctx.prefetch(&keys).await?;
            ctx.apply(write)?
        };
        self.note_fence(client, answer.transno, oldest);
        // Also ends a session that began after the lookup above.
        if let Some(session) = self.session_of_client(client).or(session) {
            let by = ctx.peer().map_or_else(String::new, |peer| format!(" for {peer}"));
            self.log(&format!("fenced client {client} ({}){by}", session.described()));
            self.forget(&session, "the client was fenced");
            let core = self.strong();
            self.env.spawn(async move { core.remove_session(&session, true).await });
        }
        Ok(answer)
    }

    fn session_of_client(&self, client: ClientId) -> Option<Rc<Session>> {
        let id = self.by_client.borrow().get(&client).copied()?;
        self.session(id)
    }

    fn fence_to_forget(&self) -> Option<ClientId> {
        let fenced = self.fenced.borrow();
        let oldest = fenced.iter().min_by_key(|(_, transno)| **transno).map(|(client, _)| *client);
        oldest.filter(|_| fenced.len() >= limits::FENCED)
    }

    fn note_fence(&self, client: ClientId, transno: forebay_proto::Transno, forgotten: Option<ClientId>) {
        let mut fenced = self.fenced.borrow_mut();
        if let Some(forgotten) = forgotten {
            fenced.remove(&forgotten);
        }
        fenced.insert(client, transno);
    }
}

/// Keys of all rows a session may have.
pub(crate) fn session_keys(session: &Session) -> Vec<Vec<u8>> {
    let replies = (0..session.slots_used()).map(|slot| rows::reply_key(session.id, slot).to_vec());
    std::iter::once(rows::session_key(session.id).to_vec()).chain(replies).collect()
}

fn name(connect: &Connect) -> String {
    format!("client {} ({})", connect.client, connect.description)
}
