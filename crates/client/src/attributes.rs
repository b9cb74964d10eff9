//! Attributes to set, and what a file is like afterwards, or when it was just made. Pure.

use forebay_proto::{
    Fid,
    message::{Attr, Caller, SetAttr, attr_flags, set_attr},
};

use crate::mode;

const SET_IDS: u32 = 0o6000;

/// A time to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// The server's now.
    Now,
    /// Nanoseconds since 1970.
    At(i64),
}

/// Attributes to change; `None` = as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SetAttributes {
    /// Permission bits.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Size: truncates or extends.
    pub size: Option<u64>,
    /// Access time.
    pub atime: Option<SetTime>,
    /// Modification time.
    pub mtime: Option<SetTime>,
}

impl SetAttributes {
    pub(crate) fn request(&self, caller: &Caller, fid: Fid, handle: u64) -> SetAttr {
        let mut mask = 0;
        let mut take = |value: Option<u64>, bit: u32| {
            mask |= if value.is_some() { bit } else { 0 };
            value.unwrap_or(0)
        };
        let mode = take(self.mode.map(u64::from), set_attr::MODE) as u32;
        let uid = take(self.uid.map(u64::from), set_attr::UID) as u32;
        let gid = take(self.gid.map(u64::from), set_attr::GID) as u32;
        let size = take(self.size, set_attr::SIZE);
        let mut time = |time: Option<SetTime>, given: u32, now: u32| {
            let (bit, ns) = match time {
                None => (0, 0),
                Some(SetTime::Now) => (now, 0),
                Some(SetTime::At(ns)) => (given, ns),
            };
            mask |= bit;
            ns
        };
        let atime_ns = time(self.atime, set_attr::ATIME, set_attr::ATIME_NOW);
        let mtime_ns = time(self.mtime, set_attr::MTIME, set_attr::MTIME_NOW);
        SetAttr { caller: caller.clone(), fid, mask, mode, uid, gid, size, atime_ns, mtime_ns, handle, at_ns: 0 }
    }

    /// Takes over what is set after these.
    pub(crate) fn then(&mut self, later: &SetAttributes) {
        let SetAttributes { mode, uid, gid, size: _, atime, mtime } = later;
        self.mode = mode.or(self.mode);
        self.uid = uid.or(self.uid);
        self.gid = gid.or(self.gid);
        self.atime = atime.or(self.atime);
        self.mtime = mtime.or(self.mtime);
    }

    /// With this clock's now.
    pub(crate) fn at(&self, now_ns: i64) -> SetAttributes {
        let given = |time: Option<SetTime>| match time {
            Some(SetTime::Now) => Some(SetTime::At(now_ns)),
            given => given,
        };
        SetAttributes { atime: given(self.atime), mtime: given(self.mtime), ..self.clone() }
    }

    /// What a file with `attr` is like then. `None`: that depends on more than these.
    pub(crate) fn applied(&self, mut attr: Attr, now_ns: i64) -> Option<Attr> {
        let depends = |bits: u32| bits & SET_IDS != 0;
        let has_acl = attr.flags & attr_flags::XATTRS != 0 && self.mode.is_some();
        if self.size.is_some() || has_acl || depends(attr.mode) || self.mode.is_some_and(depends) {
            return None;
        }
        if let Some(mode) = self.mode {
            attr.mode = attr.mode & !mode::PERMISSIONS | mode & mode::PERMISSIONS;
        }
        attr.uid = self.uid.unwrap_or(attr.uid);
        attr.gid = self.gid.unwrap_or(attr.gid);
        let time = |time: Option<SetTime>, before: i64| match time {
            None => before,
            Some(SetTime::Now) => now_ns,
            Some(SetTime::At(ns)) => ns,
        };
        attr.atime_ns = time(self.atime, attr.atime_ns);
        attr.mtime_ns = time(self.mtime, attr.mtime_ns);
        attr.ctime_ns = now_ns.max(attr.ctime_ns.saturating_add(1));
        Some(attr)
    }
}

/// What an inode is like that `caller` has just made.
pub(crate) fn new_inode(caller: &Caller, fid: Fid, mode: u32, flags: u32, now_ns: i64) -> Attr {
    Attr {
        fid,
        mode,
        nlink: 1,
        uid: caller.uid,
        gid: caller.gid,
        rdev: 0,
        size: 0,
        atime_ns: now_ns,
        mtime_ns: now_ns,
        ctime_ns: now_ns,
        btime_ns: now_ns,
        truncate_epoch: 0,
        attr_epoch: 0,
        flags,
    }
}

#[cfg(test)]
mod tests;
