//! Serves the kernel's requests, on the client's shard.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    rc::Rc,
    time::Duration,
};

use forebay_client::{Attr, Client, ClientResult, Dropped, KERNEL_DELAY, OpenFile, PendingFile};
use forebay_env::{Env, Time};
use forebay_proto::{Errno, Fid};
use fuser::{FileAttr, FileHandle, FileType, INodeNo};

use crate::{
    answer::Entry,
    below::Below,
    convert,
    directories::Directory,
    kernel::{Notifier, Told},
    labels::Labels,
    limits,
    pages::Pages,
    races::Races,
};

/// The number by which the kernel knows the root directory.
const KERNEL_ROOT: u64 = INodeNo::ROOT.0;

/// One mount's state: its handles.
pub(crate) struct Server {
    pub env: Env,
    pub client: Client,
    notifier: Notifier,
    below: Below,
    /// Until when the kernel may cache any name.
    names_until: Cell<Time>,
    /// Until when no name may be cached: something is mounted below, so names cannot be invalidated, and the timeouts
    /// that the kernel has must end first.
    quiet_until: Cell<Time>,
    /// Inodes whose attributes a reply named and which the kernel has not referred to since: until when it may cache
    /// those attributes.
    new: RefCell<BTreeMap<u64, Time>>,
    files: RefCell<BTreeMap<u64, PendingFile>>,
    pub pages: Pages,
    directories: RefCell<BTreeMap<u64, Rc<Directory>>>,
    next_directory: Cell<u64>,
    pub races: Races,
    pub labels: Labels,
}

impl Server {
    pub fn new(env: &Env, client: &Client, notifier: Notifier, below: Below) -> Self {
        Self {
            env: env.clone(),
            client: client.clone(),
            pages: Pages::new(&notifier),
            notifier,
            below,
            names_until: Cell::new(Time(0)),
            quiet_until: Cell::new(Time(0)),
            new: RefCell::default(),
            files: RefCell::default(),
            directories: RefCell::default(),
            next_directory: Cell::new(1),
            races: Races::default(),
            labels: Labels::of_system(),
        }
    }

    /// The fid of an inode number. No table is needed, however many inodes the kernel knows, and none after a restart:
    /// all names live on MDT0000, whose fids consist of their low word.
    pub fn fid(&self, ino: u64) -> Fid {
        match ino {
            // The kernel calls the root so, whichever directory it is.
            KERNEL_ROOT => self.client.root(),
            _ => Fid { high: 0, low: ino },
        }
    }

    /// The inverse.
    pub fn ino(&self, fid: Fid) -> u64 {
        if fid == self.client.root() { KERNEL_ROOT } else { fid.low }
    }

    /// The inode that a name leads to, and how long the kernel may cache that.
    pub fn named(&self, parent: u64, name: &[u8], attr: FileAttr, attributes_for: Duration) -> Entry {
        let name_for = self.name_for(parent, name, Some(self.fid(attr.ino.0)));
        let attributes_for = self.tell_new(attr.ino.0, attributes_for);
        Entry::There(Told { attr, attributes_for, name_for })
    }

    /// How long the kernel may cache that a name leads to `fid`.
    pub fn name_for(&self, parent: u64, name: &[u8], fid: Option<Fid>) -> Duration {
        let now = self.env.now();
        if !self.notifier.forgets_names() || now < self.quiet_until.get() {
            return Duration::ZERO;
        }
        let told = self.client.name_for(self.fid(parent), name, fid);
        if !told.is_zero() {
            self.names_until.set(self.names_until.get().max(now + told + KERNEL_DELAY));
        }
        told
    }

    /// Makes the kernel look all names up again. False: that would detach what is mounted below, so the kernel is not
    /// notified. The timeouts that it has must end first.
    fn forget_names(&self) -> bool {
        if self.names_until.get() <= self.env.now() {
            return true;
        }
        if self.below.is_any() {
            self.quiet_until.set(self.names_until.get() + limits::QUIET_LONGER);
            return false;
        }
        self.notifier.forget_names();
        self.names_until.set(Time(0));
        true
    }

    /// Makes the kernel forget what it may no longer cache. False: it may be about to take up an inode that a reply has
    /// just named.
    pub fn forget(&self, dropped: Dropped) -> bool {
        match dropped {
            Dropped::Attributes(fid) => self.forget_attributes(self.ino(fid)),
            Dropped::Names => self.forget_names(),
        }
    }

    /// Makes the kernel ask for the attributes again.
    pub fn forget_attributes(&self, ino: u64) -> bool {
        let forgotten = self.notifier.forget_attributes(INodeNo(ino));
        let now = self.env.now();
        forgotten || self.new.borrow().get(&ino).is_none_or(|until| *until <= now)
    }

    /// A reply is about to name an inode that the kernel may not have yet. Returns how long the kernel may cache its
    /// attributes, if they are leased for `leased_for`.
    pub fn tell_new(&self, ino: u64, leased_for: Duration) -> Duration {
        let (mut new, now) = (self.new.borrow_mut(), self.env.now());
        if new.len() >= limits::NEW_INODES {
            new.retain(|_, until| *until > now);
        }
        if leased_for.is_zero() || new.len() >= limits::NEW_INODES {
            return Duration::ZERO;
        }
        new.insert(ino, now + leased_for);
        leased_for
    }

    /// The kernel has taken the inode up.
    pub fn known(&self, ino: u64) {
        let mut new = self.new.borrow_mut();
        if !new.is_empty() {
            new.remove(&ino);
        }
    }

    /// Attributes in the kernel's structure.
    pub fn entry(&self, attr: &Attr) -> FileAttr {
        FileAttr { ino: INodeNo(self.ino(attr.fid)), ..convert::file_attr(attr) }
    }

    pub fn add_file(&self, file: impl Into<PendingFile>) -> FileHandle {
        let file: PendingFile = file.into();
        let handle = file.handle();
        self.files.borrow_mut().insert(handle, file);
        FileHandle(handle)
    }

    pub fn file(&self, handle: FileHandle) -> ClientResult<PendingFile> {
        Ok(self.files.borrow().get(&handle.0).cloned().ok_or(Errno::EBADF)?)
    }

    pub fn take_file(&self, handle: FileHandle) -> ClientResult<PendingFile> {
        let taken = self.files.borrow_mut().remove(&handle.0).ok_or(Errno::EBADF)?;
        // The kernel has written its pages back by the time it releases the last handle.
        self.pages.closed(|ino| self.is_open(self.fid(ino), |_| true));
        Ok(taken)
    }

    /// Whether a mapping may have changed pages that the kernel has not written back.
    pub fn may_have_changed_pages(&self, fid: Fid) -> bool {
        self.pages.are_there(fid.low) && self.is_open(fid, |file| file.mode().write)
    }

    fn is_open(&self, fid: Fid, how: impl Fn(&OpenFile) -> bool) -> bool {
        let files = self.files.borrow();
        let is_it = |open: &PendingFile| matches!(open.arrived(), Some(Ok(file)) if file.fid() == fid && how(&file));
        files.values().any(is_it)
    }

    pub fn add_directory(&self, directory: Directory) -> FileHandle {
        let handle = self.next_directory.get();
        self.next_directory.set(handle + 1);
        self.directories.borrow_mut().insert(handle, Rc::new(directory));
        FileHandle(handle)
    }

    pub fn directory(&self, handle: FileHandle) -> ClientResult<Rc<Directory>> {
        Ok(self.directories.borrow().get(&handle.0).cloned().ok_or(Errno::EBADF)?)
    }

    /// The last known attributes of an open directory that was removed. Its change time is the time at which that was
    /// noticed.
    pub fn directory_at_last(&self, fid: Fid) -> Option<FileAttr> {
        let open = self.directories.borrow();
        let mut attr = open.values().find(|directory| directory.fid == fid)?.attr.get();
        if attr.nlink > 0 {
            let [.., changed_ns] = convert::times_ns(&attr);
            let gone_ns = self.env.unix_time().0.max(changed_ns.saturating_add(1));
            attr = FileAttr { nlink: 0, ctime: convert::system_time(gone_ns), ..attr };
            open.values().filter(|directory| directory.fid == fid).for_each(|directory| directory.attr.set(attr));
        }
        Some(attr)
    }

    /// Notes attributes, in case they are those of an open directory.
    pub fn note_directory(&self, attr: &FileAttr) {
        if attr.kind == FileType::Directory {
            let open = self.directories.borrow();
            open.values().filter(|open| self.ino(open.fid) == attr.ino.0).for_each(|open| open.attr.set(*attr));
        }
    }

    pub fn drop_directory(&self, handle: FileHandle) {
        self.directories.borrow_mut().remove(&handle.0);
    }
}
