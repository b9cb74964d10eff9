//! Open handles: the handle rows, counted in memory.
//!
//! Invariant: it holds exactly the handle rows of the table, besides what it remembers of closed files ([`NeverWritten`]).
//! It changes only right after their transaction was applied.

use std::collections::{BTreeMap, btree_map::Entry};

use forebay_proto::{ClientId, DecodeError, Fid, Reader, SessionId, Transno, Uuid, message::open_flags};

use crate::never_written::NeverWritten;

const VERSION: u8 = 1;

/// A change of a handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenChange {
    /// A new handle.
    Opened {
        /// File.
        fid: Fid,
        /// Its session.
        session: SessionId,
        /// Number within the session.
        handle: u64,
        /// [`open_flags`].
        flags: u32,
        /// The session's client.
        client: ClientId,
        /// True if this request created the file.
        made: bool,
        /// Transno of the change; 0: committed long ago.
        transno: Transno,
    },
    /// A handle is gone.
    Closed {
        /// File.
        fid: Fid,
        /// Its session.
        session: SessionId,
        /// Number within the session.
        handle: u64,
        /// True if bytes were written, or may have been, through it.
        wrote: bool,
    },
    /// OSTs are notified of the file's epochs, which creates objects there.
    OstsNotified {
        /// File.
        fid: Fid,
    },
}

/// Number of handles of one file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenCount {
    /// All handles.
    pub handles: u32,
    /// Those that may write.
    pub writers: u32,
    /// The session that has all writing handles. `None` once two sessions had such handles, until no session has any.
    pub sole_writer: Option<SessionId>,
    /// The same for all handles.
    pub sole_holder: Option<SessionId>,
    /// Transno of the latest open of a writing handle.
    pub opened: Transno,
}

/// All open handles.
#[derive(Default)]
pub struct Opens {
    by_session: BTreeMap<(SessionId, u64, Fid), u32>,
    counts: BTreeMap<Fid, OpenCount>,
    /// Number of handles by file and session: all, and those that may write.
    by_file: BTreeMap<(Fid, SessionId), (u32, u32)>,
    /// Files that were created and closed without a write.
    empties: NeverWritten,
    /// Number of handles of each session.
    held: BTreeMap<SessionId, usize>,
    /// The client of each session that has, or had, a file open: to fence it even after a restart.
    clients: BTreeMap<SessionId, ClientId>,
}

impl Opens {
    /// Handle counts of `fid`.
    pub fn count(&self, fid: Fid) -> OpenCount {
        self.counts.get(&fid).copied().unwrap_or_default()
    }

    /// True if any session may write to `fid`.
    pub fn has_writer(&self, fid: Fid) -> bool {
        !self.counts.is_empty() && self.count(fid).writers > 0
    }

    /// True if no session but `session` may write to `fid`.
    pub fn is_sole_writer(&self, fid: Fid, session: SessionId) -> bool {
        let count = self.count(fid);
        count.writers == 0 || count.sole_writer == Some(session)
    }

    /// True if a session other than `session` has `fid` open.
    pub fn is_open_elsewhere(&self, fid: Fid, session: SessionId) -> bool {
        self.holders(fid).any(|(whose, _)| whose != session)
    }

    /// Flags of a handle.
    pub fn flags(&self, fid: Fid, session: SessionId, handle: u64) -> Option<u32> {
        self.by_session.get(&(session, handle, fid)).copied()
    }

    /// Handles of one session: handle, file, flags.
    pub fn of_session(&self, session: SessionId) -> Vec<(u64, Fid, u32)> {
        let from = (session, 0, Fid::default());
        let range = self.by_session.range(from..).take_while(|((of, ..), _)| *of == session);
        range.map(|((_, handle, fid), flags)| (*handle, *fid, *flags)).collect()
    }

    /// Number of a session's handles.
    pub fn held(&self, session: SessionId) -> usize {
        self.held.get(&session).copied().unwrap_or(0)
    }

    /// Number of handles of `fid` in one session: all, and those that may write.
    pub fn of_file(&self, session: SessionId, fid: Fid) -> (u32, u32) {
        self.by_file.get(&(fid, session)).copied().unwrap_or_default()
    }

    /// Sessions that have `fid` open, each with its number of writing handles.
    fn holders(&self, fid: Fid) -> impl Iterator<Item = (SessionId, u32)> {
        let all = self.by_file.range((fid, SessionId(0))..=(fid, SessionId(u64::MAX)));
        all.map(|((_, session), (_, writers))| (*session, *writers))
    }

    /// Sessions that have any file open, in order, with their clients.
    pub fn sessions(&self) -> Vec<(SessionId, ClientId)> {
        let mut sessions: Vec<_> = self.by_session.keys().map(|(session, ..)| *session).collect();
        sessions.dedup();
        sessions.into_iter().map(|session| (session, self.clients.get(&session).copied().unwrap_or_default())).collect()
    }

    /// True if a session that is not `alive` has `fid` open for writing: it may not be fenced yet.
    pub fn has_lost_writer(&self, fid: Fid, alive: impl Fn(SessionId) -> bool) -> bool {
        self.holders(fid).any(|(session, writers)| writers > 0 && !alive(session))
    }

    /// Session and file of all handles that may write.
    pub fn writers(&self) -> Vec<(SessionId, Fid)> {
        let writes = |flags: &u32| flags & open_flags::WRITE != 0;
        let writers = self.by_session.iter().filter(|(_, flags)| writes(flags));
        writers.map(|((session, _, fid), _)| (*session, *fid)).collect()
    }

    /// True if no session but `session` has `fid` open.
    pub fn is_sole_holder(&self, fid: Fid, session: SessionId) -> bool {
        let count = self.count(fid);
        count.handles == 0 || count.sole_holder == Some(session)
    }

    /// Forgets the client of a session.
    pub fn forget_session(&mut self, session: SessionId) {
        self.clients.remove(&session);
    }

    /// Number of all handles.
    pub fn handle_count(&self) -> usize {
        self.by_session.len()
    }

    /// True if nothing was ever written to `fid`, and no session can write to it. See [`NeverWritten`].
    pub fn is_certainly_empty(&self, fid: Fid) -> bool {
        self.empties.has(fid)
    }

    /// Applies a change to the counts.
    pub fn follow(&mut self, change: OpenChange) {
        match change {
            OpenChange::Opened { fid, session, handle, flags, client, made, transno } => {
                self.clients.insert(session, client);
                self.opened(fid, session, handle, flags, transno);
                match flags & open_flags::WRITE != 0 {
                    true if made => self.empties.made(fid, session, handle),
                    true => self.empties.has_objects(fid),
                    false => {}
                }
            }
            OpenChange::Closed { fid, session, handle, wrote } => {
                self.closed(fid, session, handle);
                self.empties.closed(fid, session, handle, wrote);
            }
            OpenChange::OstsNotified { fid } => self.empties.has_objects(fid),
        }
    }

    fn opened(&mut self, fid: Fid, session: SessionId, handle: u64, flags: u32, transno: Transno) {
        match self.by_session.entry((session, handle, fid)) {
            Entry::Occupied(_) => return,
            Entry::Vacant(place) => place.insert(flags),
        };
        *self.held.entry(session).or_default() += 1;
        let count = self.counts.entry(fid).or_default();
        count.sole_holder = Some(session).filter(|_| count.handles == 0 || count.sole_holder == Some(session));
        count.handles += 1;
        let held = self.by_file.entry((fid, session)).or_default();
        held.0 += 1;
        if flags & open_flags::WRITE != 0 {
            count.sole_writer = Some(session).filter(|_| count.writers == 0 || count.sole_writer == Some(session));
            count.writers += 1;
            count.opened = count.opened.max(transno);
            held.1 += 1;
        }
    }

    fn closed(&mut self, fid: Fid, session: SessionId, handle: u64) {
        let Some(flags) = self.by_session.remove(&(session, handle, fid)) else { return };
        if let Entry::Occupied(mut held) = self.held.entry(session) {
            *held.get_mut() -= 1;
            if *held.get() == 0 {
                held.remove();
            }
        }
        let writers = u32::from(flags & open_flags::WRITE != 0);
        let count = self.counts.get_mut(&fid).expect("a file with a handle is counted");
        count.handles -= 1;
        count.writers -= writers;
        if count.handles == 0 {
            self.counts.remove(&fid);
        }
        let held = self.by_file.get_mut(&(fid, session)).expect("a session with a handle is counted");
        *held = (held.0 - 1, held.1 - writers);
        if held.0 == 0 {
            self.by_file.remove(&(fid, session));
        }
    }
}

/// The value of a handle's row.
pub fn encode_handle(flags: u32, client: ClientId) -> [u8; 18] {
    let mut value = [0; 18];
    value[0] = VERSION;
    value[1] = (flags & (open_flags::READ | open_flags::WRITE)) as u8;
    value[2..].copy_from_slice(&client.0);
    value
}

/// Reads the value of a handle's row: flags and client.
pub fn decode_handle(bytes: &[u8]) -> Result<(u32, ClientId), DecodeError> {
    let mut r = Reader::new(bytes);
    if r.u8()? != VERSION {
        return Err(DecodeError::new("handle: a version this program does not know"));
    }
    Ok((r.u8()?.into(), Uuid(r.array()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(fid: u64, session: u64, handle: u64, flags: u32) -> OpenChange {
        OpenChange::Opened {
            fid: Fid { high: 0, low: fid },
            session: SessionId(session),
            handle,
            flags,
            client: client(session),
            made: false,
            transno: Transno(100 + session),
        }
    }

    fn client(number: u64) -> ClientId {
        Uuid::from_random(number, number)
    }

    #[test]
    fn writers_are_counted_until_their_last_close() {
        let fid = Fid { high: 0, low: 5 };
        let mut opens = Opens::default();
        opens.follow(open(5, 1, 1, open_flags::WRITE));
        opens.follow(open(5, 1, 1, open_flags::WRITE));
        opens.follow(open(5, 2, 1, open_flags::READ));
        assert_eq!(
            opens.count(fid),
            OpenCount {
                handles: 2,
                writers: 1,
                sole_writer: Some(SessionId(1)),
                sole_holder: None,
                opened: Transno(101)
            }
        );
        opens.follow(OpenChange::Closed { fid, session: SessionId(1), handle: 1, wrote: true });
        assert!(!opens.has_writer(fid));
        assert_eq!([1, 2, 3].map(|session| opens.held(SessionId(session))), [0, 1, 0]);
        opens.follow(OpenChange::Closed { fid, session: SessionId(1), handle: 1, wrote: true });
        assert_eq!(opens.count(fid).handles, 1);
    }

    #[test]
    fn a_session_is_the_sole_writer_again_only_after_all_handles_of_a_shared_file_have_closed() {
        let (fid, mine, theirs) = (Fid { high: 0, low: 5 }, SessionId(1), SessionId(2));
        let mut opens = Opens::default();
        assert!(opens.is_sole_writer(fid, mine));
        opens.follow(open(5, 1, 1, open_flags::WRITE));
        opens.follow(open(5, 2, 1, open_flags::READ));
        assert!(opens.is_sole_writer(fid, mine) && !opens.is_sole_writer(fid, theirs));
        opens.follow(open(5, 2, 2, open_flags::WRITE));
        opens.follow(OpenChange::Closed { fid, session: theirs, handle: 2, wrote: true });
        assert!(!opens.is_sole_writer(fid, mine) && !opens.is_sole_writer(fid, theirs));
        opens.follow(OpenChange::Closed { fid, session: mine, handle: 1, wrote: true });
        opens.follow(open(5, 1, 2, open_flags::WRITE));
        assert!(opens.is_sole_writer(fid, mine));
    }

    #[test]
    fn a_session_finds_its_own_handles_only() {
        let mut opens = Opens::default();
        (1..4).for_each(|session| opens.follow(open(session * 10, session, 7, open_flags::READ)));
        assert_eq!(opens.of_session(SessionId(2)), [(7, Fid { high: 0, low: 20 }, open_flags::READ)]);
        assert_eq!(opens.sessions(), [1, 2, 3].map(|session| (SessionId(session), client(session))));
    }

    /// The golden bytes of docs/format-mdt.md.
    #[test]
    fn handles_have_the_bytes_of_the_format() {
        let value = encode_handle(open_flags::READ | open_flags::WRITE | open_flags::TRUNCATE, Uuid([7; 16]));
        assert_eq!(value[..], [[1, 3].as_slice(), &[7; 16]].concat());
        assert_eq!(decode_handle(&value), Ok((3, Uuid([7; 16]))));
        assert!(decode_handle(&value[..9]).is_err());
    }
}
