//! Converts the system's errors to ours.

use std::io;

use crate::{EnvError, EnvErrorKind};

/// An error of a file or device; `doing` names the action, with the path.
pub(super) fn file_error(doing: &str, error: &io::Error) -> EnvError {
    let (kind, advice) = match error.raw_os_error() {
        Some(libc::ENOENT) => (EnvErrorKind::NotFound, "check the path, and that its disk is mounted"),
        Some(libc::EACCES | libc::EPERM | libc::EROFS) => {
            (EnvErrorKind::Permission, "run as a user who may read and write it")
        }
        Some(libc::EBUSY | libc::ETXTBSY) => (EnvErrorKind::InUse, "unmount it or stop who uses it"),
        Some(libc::EEXIST) => (EnvErrorKind::InUse, "remove it or choose another path"),
        Some(libc::ENOSPC | libc::EDQUOT) => (EnvErrorKind::NoSpace, "free space in the file system under it"),
        Some(libc::EIO | libc::EREMOTEIO | libc::ENODATA) => (EnvErrorKind::Medium, "check the device and its cables"),
        Some(libc::EMFILE | libc::ENFILE) => (EnvErrorKind::Other, "raise the limit of open files (ulimit -n)"),
        Some(libc::EFBIG) => (EnvErrorKind::NoSpace, "its file system takes no files of that size"),
        Some(libc::EISDIR | libc::ENOTDIR | libc::ENAMETOOLONG | libc::EINVAL) => {
            (EnvErrorKind::InvalidInput, "give the path of a file or block device")
        }
        _ => (EnvErrorKind::Other, "see the system's log"),
    };
    EnvError::new(kind, format!("{doing}: {}; {advice}", words(error)))
}

/// An error of a socket; `doing` names the action, with the address.
pub(super) fn net_error(doing: &str, error: &io::Error) -> EnvError {
    let (kind, advice) = match error.raw_os_error() {
        Some(libc::EADDRINUSE) => (EnvErrorKind::InUse, "stop who listens there or choose another address"),
        Some(libc::EADDRNOTAVAIL) => (EnvErrorKind::InvalidInput, "use an address of this host"),
        Some(libc::EACCES | libc::EPERM) => (EnvErrorKind::Permission, "choose a port above 1023 or another path"),
        Some(libc::ENOENT) => (EnvErrorKind::NotFound, "is the server up?"),
        Some(libc::ECONNREFUSED | libc::EHOSTUNREACH | libc::ENETUNREACH | libc::ETIMEDOUT | libc::EAGAIN) => {
            (EnvErrorKind::Disconnected, "is the server up, and the network whole?")
        }
        Some(libc::ECONNRESET | libc::EPIPE | libc::ECONNABORTED | libc::ENOTCONN) => {
            (EnvErrorKind::Disconnected, "the other side went away")
        }
        Some(libc::EMFILE | libc::ENFILE) => (EnvErrorKind::Other, "raise the limit of open files (ulimit -n)"),
        None if error.kind() == io::ErrorKind::InvalidInput => (EnvErrorKind::InvalidInput, "check the address"),
        None => (EnvErrorKind::NotFound, "check the host's name"),
        _ => (EnvErrorKind::Other, "see the system's log"),
    };
    EnvError::new(kind, format!("{doing}: {}; {advice}", words(error)))
}

/// An error of a connecting client: another user's socket is closed to it.
pub(super) fn connect_error(doing: &str, error: &io::Error) -> EnvError {
    match error.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => {
            let words = format!("{doing}: {}; only root and who started the server may", words(error));
            EnvError::new(EnvErrorKind::Permission, words)
        }
        _ => net_error(doing, error),
    }
}

/// The system's message without the "(os error N)".
pub(super) fn words(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_string()
}
