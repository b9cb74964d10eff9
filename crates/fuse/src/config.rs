//! How a file system is mounted.

use forebay_client::AccessTimes;

/// How the kernel's requests reach the mount.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FuseTransport {
    /// By io_uring where the kernel and the system's settings allow it, else by `/dev/fuse`.
    #[default]
    Auto,
    /// By `/dev/fuse`.
    Device,
    /// By io_uring; without it the mount is refused.
    Uring,
}

impl FuseTransport {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Device => "dev",
            Self::Uring => "uring",
        }
    }
}

impl std::str::FromStr for FuseTransport {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let all = [Self::Auto, Self::Device, Self::Uring];
        all.into_iter().find(|transport| transport.name() == name).ok_or_else(|| "use auto, dev or uring".into())
    }
}

/// How a file system is mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FuseOptions {
    /// What `df` and `/proc/mounts` show as the source.
    pub source: String,
    /// Users other than the one who mounts may use it. Needs root, or `user_allow_other` in /etc/fuse.conf.
    pub allow_other: bool,
    /// Refuse changes.
    pub read_only: bool,
    /// Honour device files.
    pub devices: bool,
    /// Honour set-user-id and set-group-id bits.
    pub set_ids: bool,
    /// Refuse to execute programs from it.
    pub no_exec: bool,
    /// Which access time option /proc/mounts shows; the kernel itself updates no access times of this mount.
    pub access_times: AccessTimes,
    /// Access times of directories are not updated (nodiratime).
    pub no_directory_access_times: bool,
    /// How requests reach the mount.
    pub transport: FuseTransport,
}

impl FuseOptions {
    /// The defaults; `source` is what `df` shows.
    pub fn new(source: impl Into<String>) -> Self {
        Self {
            source: source.into(),
            allow_other: true,
            read_only: false,
            devices: false,
            set_ids: false,
            no_exec: false,
            access_times: AccessTimes::default(),
            no_directory_access_times: false,
            transport: FuseTransport::Auto,
        }
    }

    pub(crate) fn to_fuser(&self) -> fuser::Config {
        use fuser::MountOption as Mount;
        let either = |on: bool, yes: Mount, no: Mount| if on { yes } else { no };
        let mut config = fuser::Config::default();
        config.mount_options = vec![
            Mount::FSName(self.source.clone()),
            Mount::Subtype("forebay".into()),
            // The kernel checks permissions, because it knows everything about the process (see `caller`).
            Mount::DefaultPermissions,
            either(self.read_only, Mount::RO, Mount::RW),
            either(self.devices, Mount::Dev, Mount::NoDev),
            either(self.set_ids, Mount::Suid, Mount::NoSuid),
            either(self.no_exec, Mount::NoExec, Mount::Exec),
        ];
        config.acl = either_acl(self.allow_other);
        config
    }
}

fn either_acl(allow_other: bool) -> fuser::SessionACL {
    if allow_other { fuser::SessionACL::All } else { fuser::SessionACL::Owner }
}
