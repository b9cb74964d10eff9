//! Replies that several operations share, and the creation of all kinds of inodes.

use forebay_proto::{
    Errno, ErrorReply, Fid,
    message::{Caller, EntryReply, OpenReply, attr_flags, lease_flags},
};

use super::xattr;
use crate::{
    acl::Acls,
    directory::Found,
    dirent::Entry,
    halt::Step,
    inode::{Body, Inode, S_IFMT},
    perm,
    tx::Tx,
};

/// The properties of a new inode.
pub struct NewInode<'a> {
    /// The caller that creates it.
    pub caller: &'a Caller,
    /// Its fid.
    pub fid: Fid,
    /// Requested type and permission bits.
    pub mode: u32,
    /// Bits that the mode loses, unless the directory has a default access control list.
    pub umask: u32,
    /// The part that depends on the type.
    pub body: Body,
    /// True if it may get objects from now on.
    pub written: bool,
}

impl Tx<'_> {
    /// Attributes of an inode as a reply shows them: a node of a tenant with id maps sees its own ids.
    pub fn attr(&self, fid: Fid, inode: &Inode) -> forebay_proto::message::Attr {
        self.attr_of(fid, inode, self.memory.opens.has_writer(fid))
    }

    /// The same; `has_writer`: a session may write to it.
    pub fn attr_of(&self, fid: Fid, inode: &Inode, has_writer: bool) -> forebay_proto::message::Attr {
        // While a file's truncate is stuck, an OST does not reply for it: the reply shows what the MDT knows. Of an
        // inline file the OSTs know nothing.
        let is_asked = has_writer && inode.is_file() && !inode.inline && !self.memory.stuck.contains(&fid);
        let flags = match is_asked {
            false => 0,
            true if self.memory.opens.is_sole_writer(fid, self.origin.session) => {
                attr_flags::SIZE_ON_OST | attr_flags::SOLE_WRITER
            }
            true => attr_flags::SIZE_ON_OST,
        };
        let time_set = if flags != 0 && inode.mtime_set { attr_flags::MTIME_SET } else { 0 };
        let mut attr = inode.attr(fid, flags | time_set);
        if let Some(tenant) = &self.tenant {
            tenant.show(&mut attr);
        }
        attr
    }

    /// The reply for an inode, as most operations send it.
    pub fn entry_reply(&self, fid: Fid, inode: &Inode) -> EntryReply {
        EntryReply {
            attr: self.attr(fid, inode),
            layout: inode.layout().cloned(),
            default_layout: inode.dir().and_then(|dir| dir.default_layout.clone()),
            leases: 0,
            parent: None,
        }
    }

    /// The same, with a lease if it can be granted.
    pub fn leased_reply(&mut self, fid: Fid, inode: &Inode) -> EntryReply {
        EntryReply { leases: self.lease(fid, lease_flags::INODE), ..self.entry_reply(fid, inode) }
    }

    /// The reply to open and create. It counts the handle that this request opens already.
    pub fn open_reply(&self, fid: Fid, inode: &Inode, writes: bool, created: bool) -> OpenReply {
        let has_writer = writes || self.memory.opens.has_writer(fid);
        OpenReply {
            attr: self.attr_of(fid, inode, has_writer),
            layout: inode.layout().cloned(),
            created,
            leases: 0,
            parent: None,
        }
    }

    /// Refuses unless `caller` may add names to `dir`. Errors: ENOENT in a removed directory, EACCES, ENOSPC.
    pub fn may_add(&self, caller: &Caller, dir: &Inode) -> Step<()> {
        if dir.nlink == 0 {
            return Err(Errno::ENOENT.into());
        }
        perm::access(caller, dir, perm::WRITE | perm::SEARCH)?;
        self.need_space()
    }

    /// Refuses a fid whose sequence is not leased to the client, or that was used already.
    pub fn check_new_fid(&self, fid: Fid) -> Step<()> {
        let leased = self.memory.sequences.get(&fid.sequence()) == Some(&self.origin.client);
        if fid.high != u64::from(self.memory.mdt_index) || !leased {
            let message = format!("{fid} is not from a sequence leased to this client: lease one, then ask anew");
            return Err(ErrorReply::new(Errno::EINVAL, message).into());
        }
        match self.find_inode(fid)? {
            None => Ok(()),
            Some(_) => Err(ErrorReply::new(Errno::EEXIST, format!("{fid} was given to another file already")).into()),
        }
    }

    /// Creates an inode under the name that was not found in `parent`, and counts it there.
    pub fn add_inode(&mut self, found: &Found, dir: &mut Inode, name: &[u8], new: NewInode<'_>) -> Step<Inode> {
        let (fid, is_dir) = (new.fid, matches!(new.body, Body::Dir(_)));
        let mut inode = self.new_inode(dir, new);
        let name = bytes::Bytes::copy_from_slice(name);
        self.add_name(found, Entry { fid, mode: inode.mode & S_IFMT, name })?;
        self.put_inode_touched(fid, &mut inode);
        self.put_changed_dir(found.parent, dir, 1, i32::from(is_dir));
        self.count_inodes(1);
        Ok(inode)
    }

    /// Creates an inode without a name, as if in `dir`; `linkable`: it may get a name later.
    pub fn add_nameless(&mut self, dir: &Inode, new: NewInode<'_>, linkable: bool) -> Inode {
        let fid = new.fid;
        let mut inode = Inode { nlink: 0, ..self.new_inode(dir, new) };
        self.put_orphan(fid, linkable);
        self.put_inode_touched(fid, &mut inode);
        self.count_inodes(1);
        inode
    }

    fn new_inode(&mut self, dir: &Inode, new: NewInode<'_>) -> Inode {
        // What user 0 of a tenant's node makes is nobody's.
        let squashed = self.tenant.as_ref().map(|tenant| tenant.info.squash(new.caller));
        let caller = squashed.as_ref().unwrap_or(new.caller);
        let (mode, gid) = perm::inherit(caller, dir, new.mode);
        let (is_dir, is_file) = (matches!(new.body, Body::Dir(_)), matches!(new.body, Body::File(_)));
        let now_ns = self.origin.now_ns;
        let mut inode = Inode {
            mode,
            nlink: if is_dir { 2 } else { 1 },
            uid: caller.uid,
            gid,
            size: 0,
            atime_ns: now_ns,
            mtime_ns: now_ns,
            ctime_ns: now_ns,
            btime_ns: now_ns,
            truncate_epoch: 0,
            attr_epoch: 0,
            transno: self.origin.transno,
            written: new.written,
            // The first write's time comes from another clock, which may be behind.
            mtime_set: is_file,
            xattrs: false,
            sparse: false,
            has_acl: false,
            inline: false,
            level: dir.level.filter(|_| is_dir || is_file),
            inline_bound: dir.inline_bound.filter(|_| is_dir || is_file),
            project: dir.project,
            guard: None,
            acls: Acls::default(),
            body: new.body,
        };
        xattr::inherit_acls(self, dir, new.fid, &mut inode, new.umask);
        inode
    }
}
