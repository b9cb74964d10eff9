//! System calls by number, which return the errno unchanged.
//!
//! libc's functions are not used, as a few of them change the request (`fchmodat`, `dup2`, `setresuid` for all
//! threads).

use std::ffi::CStr;

/// The return value, or the errno.
pub type Asked = Result<i64, i32>;

/// An argument of a system call.
pub enum Arg<'a> {
    /// A number, or a descriptor.
    Int(i64),
    /// A path or a name.
    Text(&'a CStr),
    /// Two arguments: bytes to read from, and how many.
    In(&'a [u8]),
    /// Two arguments: a buffer to fill, and its length.
    Out(&'a mut [u8]),
    /// A structure whose length the call knows.
    Struct(&'a mut [u8]),
    /// Two arguments: vectors of bytes, and how many.
    Vectors(&'a mut [Vec<u8>]),
}

/// Makes the system call.
pub fn sys(number: libc::c_long, args: &mut [Arg<'_>]) -> Asked {
    let mut words: Vec<i64> = Vec::with_capacity(6);
    let mut vectors: Vec<libc::iovec> = Vec::new();
    for arg in args {
        match arg {
            Arg::Int(number) => words.push(*number),
            Arg::Text(text) => words.push(text.as_ptr() as i64),
            Arg::In(bytes) => words.extend([bytes.as_ptr() as i64, bytes.len() as i64]),
            Arg::Out(room) => words.extend([room.as_mut_ptr() as i64, room.len() as i64]),
            Arg::Struct(bytes) => words.push(bytes.as_mut_ptr() as i64),
            Arg::Vectors(many) => {
                vectors = many
                    .iter_mut()
                    .map(|one| libc::iovec { iov_base: one.as_mut_ptr().cast(), iov_len: one.len() })
                    .collect();
                words.extend([vectors.as_ptr() as i64, vectors.len() as i64]);
            }
        }
    }
    words.resize(6, 0);
    // SAFETY: pointers are those of borrowed memory, with its length or the length of the structure that the call fills.
    let result = unsafe { libc::syscall(number, words[0], words[1], words[2], words[3], words[4], words[5]) };
    drop(vectors);
    if result < 0 { Err(std::io::Error::last_os_error().raw_os_error().unwrap_or(0)) } else { Ok(result) }
}

/// The name of an errno, for reports.
pub fn errno_name(errno: i32) -> String {
    const NAMES: [(i32, &str); 36] = [
        (libc::EPERM, "EPERM"),
        (libc::ENOENT, "ENOENT"),
        (libc::EIO, "EIO"),
        (libc::ENXIO, "ENXIO"),
        (libc::EBADF, "EBADF"),
        (libc::EAGAIN, "EAGAIN"),
        (libc::EACCES, "EACCES"),
        (libc::EFAULT, "EFAULT"),
        (libc::EBUSY, "EBUSY"),
        (libc::EEXIST, "EEXIST"),
        (libc::EXDEV, "EXDEV"),
        (libc::ENODEV, "ENODEV"),
        (libc::ENOTDIR, "ENOTDIR"),
        (libc::EISDIR, "EISDIR"),
        (libc::EINVAL, "EINVAL"),
        (libc::ENOTTY, "ENOTTY"),
        (libc::ETXTBSY, "ETXTBSY"),
        (libc::EFBIG, "EFBIG"),
        (libc::ENOSPC, "ENOSPC"),
        (libc::ESPIPE, "ESPIPE"),
        (libc::EROFS, "EROFS"),
        (libc::EMLINK, "EMLINK"),
        (libc::EPIPE, "EPIPE"),
        (libc::ERANGE, "ERANGE"),
        (libc::EDEADLK, "EDEADLK"),
        (libc::ENAMETOOLONG, "ENAMETOOLONG"),
        (libc::ENOLCK, "ENOLCK"),
        (libc::ENOSYS, "ENOSYS"),
        (libc::ENOTEMPTY, "ENOTEMPTY"),
        (libc::ELOOP, "ELOOP"),
        (libc::ENODATA, "ENODATA"),
        (libc::EOVERFLOW, "EOVERFLOW"),
        (libc::EOPNOTSUPP, "EOPNOTSUPP"),
        (libc::ENOTCONN, "ENOTCONN"),
        (libc::ESTALE, "ESTALE"),
        (libc::E2BIG, "E2BIG"),
    ];
    NAMES.iter().find(|(number, _)| *number == errno).map_or(format!("errno {errno}"), |(_, name)| (*name).to_owned())
}
