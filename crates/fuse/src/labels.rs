//! Security labels on a system without SELinux.
//!
//! `ls -l` asks for the SELinux label of each file. If the reply is that the file has none, it asks again for the next
//! file. If the reply is that labels are not supported, it stops asking on that file system. Lustre replies the same
//! (LU-549).
#![allow(clippy::disallowed_types, clippy::disallowed_methods)] // the kernel's list of file systems

use std::fs;

use forebay_client::{ClientError, ClientResult};
use forebay_proto::Errno;

const SELINUX: &[u8] = b"security.selinux";
/// The kernel lists this file system only where SELinux is on.
const SELINUX_FILE_SYSTEM: &str = "selinuxfs";

/// Whether this system labels files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Labels {
    /// Labels are supported, or this cannot be found out.
    Kept,
    /// SELinux is off, or not built in.
    Unknown,
}

impl Labels {
    /// The state of this system, as it was booted.
    pub fn of_system() -> Self {
        fs::read_to_string("/proc/filesystems").map_or(Self::Kept, |list| Self::of_list(&list))
    }

    fn of_list(list: &str) -> Self {
        let is_selinux = |line: &str| line.split_whitespace().last() == Some(SELINUX_FILE_SYSTEM);
        if list.lines().any(is_selinux) { Self::Kept } else { Self::Unknown }
    }

    /// The reply for the attribute `name`. A label that a file has is returned everywhere. "No label" is returned only
    /// where files can have one.
    pub fn told<T>(self, name: &[u8], value: ClientResult<T>) -> ClientResult<T> {
        let is_none = |error: &ClientError| error.errno == Errno::ENODATA;
        match value {
            Err(error) if self == Self::Unknown && name == SELINUX && is_none(&error) => Err(Errno::EOPNOTSUPP.into()),
            value => value,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_that_is_not_there_is_not_supported_where_the_system_has_none() {
        let none = || Err::<(), _>(Errno::ENODATA.into());
        let off = Labels::of_list("nodev\tsysfs\nnodev\tproc\n\text4\n");
        let on = Labels::of_list("nodev\tsysfs\nnodev\tselinuxfs\n\text4\n");
        assert_eq!(off.told(SELINUX, none()), Err(Errno::EOPNOTSUPP.into()));
        assert_eq!(on.told(SELINUX, none()), none());
        assert_eq!(off.told(b"security.capability", none()), none(), "the kernel asks for that one");
        assert_eq!(off.told(SELINUX, Ok(())), Ok(()), "it came from a system that has labels");
        assert_eq!(off.told(SELINUX, Err::<(), _>(Errno::EIO.into())), Err(Errno::EIO.into()));
    }
}
