//! How a file system is mounted.

/// How a file system is mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FuseOptions {
    /// What `df` and `/proc/mounts` show as the source.
    pub source: String,
    /// Other users than the one who mounts may use it. Where root mounts, or `user_allow_other` is in /etc/fuse.conf.
    pub allow_other: bool,
    /// Refuse changes.
    pub read_only: bool,
    /// Honour device files.
    pub devices: bool,
    /// Honour set-user-id and set-group-id bits.
    pub set_ids: bool,
    /// Run no programs from it.
    pub no_exec: bool,
    /// Fetch attributes with names. Worth it only once leases let the kernel keep them.
    pub readdirplus: bool,
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
            readdirplus: false,
        }
    }

    pub(crate) fn to_fuser(&self) -> fuser::Config {
        use fuser::MountOption as Mount;
        let either = |on: bool, yes: Mount, no: Mount| if on { yes } else { no };
        let mut config = fuser::Config::default();
        config.mount_options = vec![
            Mount::FSName(self.source.clone()),
            Mount::Subtype("forebay".into()),
            // The kernel checks permissions, with all it knows of the process (see `caller`).
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
