//! Errors that cross the wire: a number for the program, and words for the person.

use std::fmt;

use crate::{Decode, DecodeError, Encode, Reader, Writer};

/// Why a request failed. The numbers of POSIX errors are Linux's, so that a mount can pass them on.
///
/// Those above 1000 are for the client library, never for a program.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Errno(pub u32);

macro_rules! errnos {
    ($($(#[$doc:meta])* $name:ident = $number:literal;)*) => {
        impl Errno {
            $($(#[$doc])* pub const $name: Errno = Errno($number);)*

            /// Its name, as in errno(3).
            pub fn name(self) -> &'static str {
                match self.0 { $($number => stringify!($name),)* _ => "E?" }
            }
        }
    };
}

errnos! {
    /// Operation not permitted.
    EPERM = 1;
    /// No such file or directory.
    ENOENT = 2;
    /// Interrupted.
    EINTR = 4;
    /// Input/output error: bytes are damaged, or acknowledged changes were lost.
    EIO = 5;
    /// No such session, handle or device.
    ENXIO = 6;
    /// Bad file handle.
    EBADF = 9;
    /// Try again.
    EAGAIN = 11;
    /// Out of memory.
    ENOMEM = 12;
    /// Permission denied.
    EACCES = 13;
    /// Too long: a value, or a request that needs more than one step (then ask for parts).
    E2BIG = 7;
    /// Busy.
    EBUSY = 16;
    /// Exists.
    EEXIST = 17;
    /// Cross-device link.
    EXDEV = 18;
    /// Not a directory.
    ENOTDIR = 20;
    /// Is a directory.
    EISDIR = 21;
    /// Invalid argument.
    EINVAL = 22;
    /// Too many open files.
    ENFILE = 23;
    /// The file is a program that is running.
    ETXTBSY = 26;
    /// File too large.
    EFBIG = 27;
    /// No space left.
    ENOSPC = 28;
    /// Read-only.
    EROFS = 30;
    /// Too many links.
    EMLINK = 31;
    /// Result too large for the buffer.
    ERANGE = 34;
    /// Waiting for the lock would be a deadlock.
    EDEADLK = 35;
    /// Name too long.
    ENAMETOOLONG = 36;
    /// No more locks.
    ENOLCK = 37;
    /// Not implemented.
    ENOSYS = 38;
    /// Directory not empty.
    ENOTEMPTY = 39;
    /// Too many symbolic links.
    ELOOP = 40;
    /// No such attribute.
    ENODATA = 61;
    /// The message could not be read, or the other side speaks another version.
    EPROTO = 71;
    /// Not supported.
    EOPNOTSUPP = 95;
    /// The file was destroyed.
    ESTALE = 116;
    /// Timed out.
    ETIMEDOUT = 110;

    /// The target is recovering: retry after a moment, or replay first.
    RECOVERING = 1001;
    /// The target does not know the session (it was evicted or never existed): uncommitted changes are lost.
    EVICTED = 1002;
    /// The request's truncate epoch is older than the object's: fetch the attributes again, then retry.
    STALE_EPOCH = 1003;
    /// The request's layout generation is older than the file's.
    STALE_LAYOUT = 1004;
    /// The target recovered less than this client has seen committed. It does not serve until that is resolved.
    LOST_COMMITS = 1005;
    /// Another cluster, another target, or an incompatible version.
    WRONG_PEER = 1006;
    /// The target stopped after a failed flush or corruption; an operator has to intervene.
    STOPPED = 1007;
    /// The request's capability is missing, ended or forged: ask the MDT for another, then repeat the request.
    CAPABILITY = 1008;
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.name())
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}({})", self.name(), self.0)
    }
}

/// The reply to a failed request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorReply {
    /// What the client does, or the errno for the program.
    pub errno: Errno,
    /// What happened, to what, expected and got. May be empty for the plain errors of names.
    pub message: String,
}

impl ErrorReply {
    /// An error with a message.
    pub fn new(errno: Errno, message: impl Into<String>) -> Self {
        Self { errno, message: message.into() }
    }
}

impl From<Errno> for ErrorReply {
    fn from(errno: Errno) -> Self {
        Self { errno, message: String::new() }
    }
}

impl From<DecodeError> for ErrorReply {
    fn from(error: DecodeError) -> Self {
        Self::new(Errno::EPROTO, format!("malformed message: {error}"))
    }
}

impl fmt::Display for ErrorReply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.message.is_empty() {
            write!(f, "{}", self.errno)
        } else {
            write!(f, "{}: {}", self.errno, self.message)
        }
    }
}

impl std::error::Error for ErrorReply {}

impl Encode for ErrorReply {
    fn encode(&self, w: &mut Writer) {
        w.prefixed(|w| {
            w.u32(self.errno.0);
            self.message.encode(w);
        });
    }
}

impl Decode for ErrorReply {
    const BYTES_MIN: usize = 12;

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let mut body = r.prefixed()?;
        Ok(Self { errno: Errno(body.u32()?), message: String::decode(&mut body)? })
    }
}
