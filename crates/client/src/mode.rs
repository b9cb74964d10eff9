//! Bits of `st_mode`, as Linux has them.

/// The type's bits.
pub const S_IFMT: u32 = 0o170_000;
/// Directory.
pub const S_IFDIR: u32 = 0o040_000;
/// Regular file.
pub const S_IFREG: u32 = 0o100_000;
/// Symbolic link.
pub const S_IFLNK: u32 = 0o120_000;
/// Permissions, set-id bits and the sticky bit.
pub const PERMISSIONS: u32 = 0o7777;

/// A umask that is still to be applied (unless the directory has a default access control list).
pub const UMASK: u32 = 0o777 << forebay_proto::message::UMASK_SHIFT;

/// `mode` with a umask to be applied by the server.
pub fn with_umask(mode: u32, umask: u32) -> u32 {
    mode | umask << forebay_proto::message::UMASK_SHIFT & UMASK
}

/// Permissions (and umask) of `mode`, as of type `kind`.
pub fn with_type(mode: u32, kind: u32) -> u32 {
    mode & (PERMISSIONS | UMASK) | kind
}

/// True for a directory.
pub fn is_dir(mode: u32) -> bool {
    mode & S_IFMT == S_IFDIR
}

/// True for a regular file.
pub fn is_file(mode: u32) -> bool {
    mode & S_IFMT == S_IFREG
}

/// True for a symbolic link.
pub fn is_symlink(mode: u32) -> bool {
    mode & S_IFMT == S_IFLNK
}

/// True for anything mknod(2) makes that is not a regular file.
pub fn is_special(mode: u32) -> bool {
    !matches!(mode & S_IFMT, 0 | S_IFREG)
}
