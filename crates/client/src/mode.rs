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

/// Set-user-id.
pub const S_ISUID: u32 = 0o4000;
/// Set-group-id.
pub const S_ISGID: u32 = 0o2000;
const GROUP_EXECUTE: u32 = 0o010;

/// A umask that is still to be applied (unless the directory has a default access control list).
pub const UMASK: u32 = 0o777 << forebay_proto::message::UMASK_SHIFT;

/// `mode` with a umask to be applied by the server.
pub fn with_umask(mode: u32, umask: u32) -> u32 {
    mode | umask << forebay_proto::message::UMASK_SHIFT & UMASK
}

/// Permissions of a `mode` that has its umask in it.
pub fn without_umask(mode: u32) -> u32 {
    mode & PERMISSIONS & !(mode >> forebay_proto::message::UMASK_SHIFT)
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

/// True if set-user-id or set-group-id is among the bits.
pub fn has_set_ids(mode: u32) -> bool {
    mode & (S_ISUID | S_ISGID) != 0
}

/// Permissions after a process without CAP_FSETID changed bytes: set-user-id and set-group-id are cleared. Set-group-id
/// stays where the group may not execute the file and `is_of_group` is true.
pub fn without_set_ids(permissions: u32, is_of_group: impl FnOnce() -> bool) -> u32 {
    let stays = permissions & (S_ISGID | GROUP_EXECUTE) == S_ISGID && is_of_group();
    permissions & !(S_ISUID | if stays { 0 } else { S_ISGID })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_drops_set_ids_but_not_set_group_id_without_group_execute_by_the_group() {
        for (before, of_group, others) in
            [(0o6755, 0o755, 0o755), (0o2644, 0o2644, 0o644), (0o6766, 0o2766, 0o766), (0o1777, 0o1777, 0o1777)]
        {
            assert_eq!(without_set_ids(before, || true), of_group, "{before:o}");
            assert_eq!(without_set_ids(before, || false), others, "{before:o}");
        }
        assert!(has_set_ids(0o4644) && has_set_ids(0o2644) && !has_set_ids(0o1777));
    }
}
