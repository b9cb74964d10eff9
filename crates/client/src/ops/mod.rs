//! One operation of the file system per file.

pub(crate) mod change;
pub(crate) mod close;
pub(crate) mod create;
pub(crate) mod getattr;
pub(crate) mod layouts;
pub(crate) mod levels;
pub(crate) mod link;
pub(crate) mod locks;
pub(crate) mod lookup;
pub(crate) mod make;
pub(crate) mod open;
pub(crate) mod pools;
pub(crate) mod readdir;
pub(crate) mod readlink;
pub(crate) mod rename;
pub(crate) mod reopen;
pub(crate) mod rmdir;
pub(crate) mod setattr;
pub(crate) mod statfs;
pub(crate) mod unlink;
pub(crate) mod xattr;
