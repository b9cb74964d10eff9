//! Races: a name leads to another inode, or to none, by the time the kernel uses what it found under it.
//!
//! A call by path is a lookup and then the operation. In between, another client or another process of this mount may
//! remove the last name of the inode. A local file system would continue with the inode it holds. After ESTALE the
//! kernel looks all names up again and repeats the request. A second ESTALE goes to the program. So after a thread
//! received ESTALE, the mount holds what that thread looks up for a moment: a file by a handle that neither reads nor
//! writes, a symbolic link by its target, attributes by a copy. All of them were true after the call began, as the call
//! requires.
//!
//! Not here: threads in another pid namespace than the mount's. All of them have the number 0, so their programs may
//! receive ESTALE.

use std::{cell::RefCell, collections::BTreeMap, rc::Rc};

use bytes::Bytes;
use forebay_client::{Attr, ClientResult, OpenFile, mode};
use forebay_env::Time;
use forebay_proto::Errno;
use fuser::FileAttr;

use crate::{caller::decided, limits, server::Server};

/// Threads that lost a race, and what is held so that they do not lose it again.
#[derive(Default)]
pub(crate) struct Races {
    /// Threads that received ESTALE, and until when they are remembered.
    lost: RefCell<BTreeMap<u32, Time>>,
    /// For each thread the last link that came too late: directory and name.
    links: RefCell<BTreeMap<u32, (u64, Bytes)>>,
    held: RefCell<BTreeMap<u64, Held>>,
}

/// What a recent lookup found under a name.
struct Held {
    until: Time,
    attr: FileAttr,
    target: Option<Bytes>,
    /// For a regular file: while it is open, every request for it can be served.
    file: Option<OpenFile>,
}

impl Races {
    /// Notes the result that a thread gets for an inode that it names without a handle.
    pub fn told<T>(&self, thread: u32, ino: u64, result: &ClientResult<T>, now: Time) {
        let mut lost = self.lost.borrow_mut();
        match result {
            Err(error) if error.errno == Errno::ESTALE && thread != 0 => {
                if lost.len() >= limits::LOST_RACES {
                    lost.retain(|_, until| now < *until);
                }
                if lost.len() < limits::LOST_RACES {
                    lost.insert(thread, now + limits::HELD_FOR);
                }
            }
            // The call has succeeded: a file is never an intermediate component of a path.
            Ok(_) if !lost.is_empty() && self.held.borrow().get(&ino).is_some_and(|held| held.file.is_some()) => {
                lost.remove(&thread);
            }
            _ => {}
        }
    }

    /// Whether what the thread looks up is to be held.
    pub fn holds(&self, thread: u32, now: Time) -> bool {
        let lost = self.lost.borrow();
        !lost.is_empty() && lost.get(&thread).is_some_and(|until| now < *until)
    }

    /// The thread is still resolving its path.
    pub fn goes_on(&self, thread: u32, now: Time) {
        if let Some(until) = self.lost.borrow_mut().get_mut(&thread) {
            *until = now + limits::HELD_FOR;
        }
    }

    /// The error for a thread whose link to `name` in `parent` came too late. An inode without a name never gets one
    /// again, so the second time it is ENOENT.
    pub fn late_link(&self, thread: u32, parent: u64, name: &[u8]) -> Errno {
        let mut links = self.links.borrow_mut();
        if thread == 0 {
            return Errno::ESTALE;
        }
        if links.remove(&thread).is_some_and(|(of, last)| of == parent && last == name) {
            return Errno::ENOENT;
        }
        if links.len() >= limits::LOST_RACES {
            links.clear();
        }
        links.insert(thread, (parent, Bytes::copy_from_slice(name)));
        Errno::ESTALE
    }

    /// The attributes of an inode that is held without a handle and may be gone. Nobody can observe a change of it any
    /// more.
    pub fn attr(&self, ino: u64) -> Option<FileAttr> {
        self.held.borrow().get(&ino).filter(|held| held.file.is_none()).map(|held| held.attr)
    }

    /// The target of a symbolic link that is held.
    pub fn target(&self, ino: u64) -> Option<Bytes> {
        self.held.borrow().get(&ino)?.target.clone()
    }
}

impl Server {
    /// Notes the result that a thread gets: see [`Races::told`].
    pub fn told<T>(&self, thread: u32, ino: u64, result: &ClientResult<T>) {
        self.races.told(thread, ino, result, self.env.now());
    }

    /// The result of a change of entries in directories. A removed directory takes no entries: a thread that has looked
    /// it up again gets ENOENT.
    pub async fn in_directories<T>(&self, thread: u32, parents: &[u64], result: ClientResult<T>) -> ClientResult<T> {
        match result {
            Err(error) if error.errno == Errno::ESTALE && self.races.holds(thread, self.env.now()) => {
                for parent in parents {
                    if self.is_gone(*parent).await {
                        return Err(Errno::ENOENT.into());
                    }
                }
                Err(error)
            }
            result => result,
        }
    }

    /// Holds the inode that a lookup of `name` just found, or the one it leads to by now. Errors: ESTALE to look up
    /// again.
    pub async fn hold(self: &Rc<Self>, parent: u64, name: &[u8], found: Attr) -> ClientResult<Attr> {
        let (mut attr, mut file, mut target) = (found, None, None);
        if self.races.held.borrow().len() >= limits::HELD {
            return Ok(attr);
        }
        if mode::is_file(attr.mode) {
            let held = self.client.hold(&decided(), self.fid(parent), name, attr.fid).await;
            let held = held.map_err(|error| match error.errno {
                Errno::EISDIR => Errno::ESTALE.into(),
                _ => error,
            });
            match held {
                // Then it is not held, as when too many are held.
                Err(error) if error.errno == Errno::ENFILE => return Ok(attr),
                held => (attr, file) = held.map(|(now, held)| (now, Some(held)))?,
            }
        } else if mode::is_symlink(attr.mode) {
            target = Some(self.client.readlink(attr.fid).await?);
        }
        let (ino, until) = (attr.fid.low, self.env.now() + limits::HELD_FOR);
        let before = self.races.held.borrow_mut().insert(ino, Held { until, attr: self.entry(&attr), target, file });
        // A file that was held before closes as it is dropped.
        if before.is_none() {
            let server = self.clone();
            drop(self.env.spawn(async move { server.let_go(ino).await }));
        }
        Ok(attr)
    }

    /// Releases what is held for the inode when its time is over.
    async fn let_go(self: Rc<Self>, ino: u64) {
        loop {
            let now = self.env.now();
            let until = self.races.held.borrow().get(&ino).map_or(now, |held| held.until);
            if until <= now {
                break;
            }
            self.env.sleep(until.since(now)).await;
        }
        // The handle closes as it is dropped: nothing was done through it.
        drop(self.races.held.borrow_mut().remove(&ino));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(errno: Errno) -> ClientResult<()> {
        Err(errno.into())
    }

    #[test]
    fn an_inode_that_a_thread_looked_up_after_a_lost_race_is_held_for_a_bounded_time() {
        let (races, now) = (Races::default(), Time(5));
        assert!(!races.holds(1, now));
        races.told(1, 7, &told(Errno::ESTALE), now);
        let later = now + limits::HELD_FOR;
        assert!(races.holds(1, now) && !races.holds(2, now) && !races.holds(1, later));
        let (attr, target) = (crate::testing::attr(mode::S_IFLNK), Some(Bytes::from("a")));
        races.held.borrow_mut().insert(7, Held { until: now, attr, target, file: None });
        races.told(1, 7, &Ok(()), now);
        races.told(1, 8, &told(Errno::ENODATA), now);
        assert!(races.holds(1, now), "a link, or a directory, may be on the way to what was asked for");
        races.goes_on(1, later);
        races.goes_on(2, later);
        assert!(races.holds(1, later) && !races.holds(2, later));
    }

    #[test]
    fn threads_of_other_pid_namespaces_are_not_tracked() {
        let races = Races::default();
        races.told(0, 7, &told(Errno::ESTALE), Time(5));
        assert!(!races.holds(0, Time(5)));
        assert_eq!([(); 2].map(|()| races.late_link(0, 7, b"a")), [Errno::ESTALE; 2]);
    }

    #[test]
    fn a_late_link_is_estale_once_per_thread_and_name_then_enoent() {
        let races = Races::default();
        assert_eq!(races.late_link(1, 7, b"a"), Errno::ESTALE);
        assert_eq!(races.late_link(2, 7, b"a"), Errno::ESTALE, "another thread");
        assert_eq!(races.late_link(1, 7, b"a"), Errno::ENOENT);
        assert_eq!(races.late_link(1, 7, b"a"), Errno::ESTALE, "its next link");
        assert_eq!(races.late_link(1, 7, b"b"), Errno::ESTALE, "another name");
        assert_eq!(races.late_link(1, 8, b"b"), Errno::ESTALE, "of another directory");
        assert_eq!(races.late_link(1, 8, b"b"), Errno::ENOENT);
    }

    #[test]
    fn the_number_of_remembered_races_is_bounded() {
        let races = Races::default();
        for thread in 1..3 * limits::LOST_RACES as u32 {
            races.late_link(thread, 1, b"a");
            races.told(thread, 1, &told(Errno::ESTALE), Time(1));
        }
        assert!(races.links.borrow().len() <= limits::LOST_RACES);
        assert!(races.lost.borrow().len() <= limits::LOST_RACES);
    }
}
