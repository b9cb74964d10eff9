//! Device numbers: how the kernel's tables name a file system.

use std::{fmt, path::Path};

use forebay_command::posix;

/// A file system's device number, as in stat(2) and mountinfo.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Device {
    /// Number of the driver: 0 for file systems without a disk.
    pub major: u32,
    /// Number of the file system.
    pub minor: u32,
}

impl Device {
    /// Parses `0:45`.
    pub fn parse(text: &str) -> Option<Self> {
        let (major, minor) = text.trim().split_once(':')?;
        Some(Self { major: major.parse().ok()?, minor: minor.parse().ok()? })
    }

    /// Whether the file that `path` leads to lies on it.
    pub fn holds(self, path: &Path) -> bool {
        posix::device_of(path) == Some((self.major, self.minor))
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.major, self.minor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_read_as_the_kernel_writes_it() {
        let device = Device::parse("0:45\n").expect("a device");
        assert_eq!((device.to_string(), Device::parse("x")), ("0:45".into(), None));
    }
}
