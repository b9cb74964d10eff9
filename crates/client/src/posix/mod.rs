//! POSIX meaning that spans operations: what a program means by a call, in terms of the operations of `ops` and `io`.
//!
//! A mount's kernel and a program that links the library express the same: at the end of the file, durable when the
//! call returns, on behalf of this process. What they mean is decided here, once.
//! Not here: what only a kernel has (its pages, its file positions, who the process is).

pub(crate) mod access_times;
pub(crate) mod change;
pub(crate) mod create;
pub(crate) mod drop_privileges;
pub(crate) mod execute;
pub(crate) mod handle;
pub(crate) mod privileges;
