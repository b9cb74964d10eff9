//! Directories that a mount must not hide: those in which its cluster's servers, or the mount itself, work. A mount
//! over one of them waits for servers that wait for the mount: a deadlock.
//!
//! Directories are compared by device and inode, so links and bind mounts make no difference.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)] // looks at directories; nothing here serves

use std::{
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use forebay_command::{
    cluster::Cluster,
    error::{CliError, CliResult},
};
use forebay_env::Address;
use forebay_proto::TargetId;

use forebay_command::keys;

use crate::{cluster_arg::ClusterArg, mounts};

/// A directory that a server or the mount uses.
struct Needed {
    dir: PathBuf,
    /// What it is, for messages.
    what: String,
    /// Everything below it is in use, too.
    all: bool,
}

impl Needed {
    fn all(dir: impl Into<PathBuf>, what: impl Into<String>) -> Self {
        Self { dir: dir.into(), what: what.into(), all: true }
    }

    fn way_to(dir: impl Into<PathBuf>, what: impl Into<String>) -> Self {
        Self { dir: dir.into(), what: what.into(), all: false }
    }
}

/// Refuses `mnt` as a mount point of `cluster` if it hides such a directory.
pub fn refuse(cluster: &ClusterArg, mnt: &Path) -> CliResult {
    match cluster {
        ClusterArg::Described(cluster) => refuse_for_cluster(cluster, mnt),
        ClusterArg::Addresses(addresses) => {
            let sockets = addresses.iter().filter_map(|address| match address {
                Address::Unix(path) => Path::new(path).parent().map(|dir| Needed::all(dir, "the servers' sockets")),
                _ => None,
            });
            refuse_any(mnt, sockets.collect())
        }
    }
}

/// The same for a cluster with a description.
pub fn refuse_for_cluster(cluster: &Cluster, mnt: &Path) -> CliResult {
    let targets = cluster.targets().into_iter();
    let targets = targets.map(|target| Needed::all(target.dir, format!("the directory of {}", target.id)));
    refuse_any(mnt, of_dir(&cluster.dir).into_iter().chain(targets).collect())
}

/// The same for a cluster that may not exist yet.
pub fn refuse_for_dir(dir: &Path, osts: u32, mnt: &Path) -> CliResult {
    let targets = [TargetId::mdt(0)].into_iter().chain((0..osts).map(TargetId::ost));
    let targets = targets.map(|id| Needed::all(dir.join(id.to_string()), format!("the directory of {id}")));
    refuse_any(mnt, of_dir(dir).into_iter().chain(targets).collect())
}

fn of_dir(dir: &Path) -> Vec<Needed> {
    vec![
        Needed::way_to(dir, "the cluster"),
        Needed::all(dir.join("run"), "the servers' sockets"),
        Needed::all(dir.join("log"), "the servers' logs"),
        Needed::all(dir.join(keys::DIR), "the cluster's keys"),
    ]
}

fn refuse_any(mnt: &Path, mut needed: Vec<Needed>) -> CliResult {
    needed.push(Needed::all(mounts::run_dir(), "what mounts note of themselves"));
    needed.extend(["/proc", "/dev"].map(|dir| Needed::way_to(dir, "what every mount needs")));
    // Such a mount is refused elsewhere, and accessing it may need servers that are unreachable.
    if mounts::seen(mnt).is_some_and(|(kind, _)| kind.starts_with("fuse")) {
        return Ok(());
    }
    let point = Place::of(mnt);
    let shown = mnt.display();
    for Needed { dir, what, all } in needed {
        let place = Place::of(&dir);
        if place.lies_in(&point) {
            let dir = dir.display();
            return Err(CliError::usage(format!(
                "a mount at {shown} would hide {what} ({dir}), and everybody would hang: give a directory beside it"
            )));
        }
        if all && point.lies_in(&place) {
            let dir = dir.display();
            return Err(CliError::usage(format!("{shown} lies in {what} ({dir}): give a directory elsewhere")));
        }
    }
    Ok(())
}

/// A path resolved as far as it exists.
struct Place {
    /// The path, with links resolved as far as it exists.
    path: PathBuf,
    /// Device and inode of the path and all directories above it, except those that do not exist.
    ids: Vec<(u64, u64)>,
    is_there: bool,
}

impl Place {
    fn of(path: &Path) -> Self {
        let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let (there, rest) = absolute
            .ancestors()
            .find_map(|above| Some((above.canonicalize().ok()?, absolute.strip_prefix(above).ok()?.to_owned())))
            .unwrap_or_else(|| (absolute.clone(), PathBuf::new()));
        let id = |dir: &Path| dir.metadata().ok().map(|meta| (meta.dev(), meta.ino()));
        let is_there = rest.as_os_str().is_empty();
        Self {
            ids: there.ancestors().filter_map(id).collect(),
            path: if is_there { there } else { there.join(rest) },
            is_there,
        }
    }

    /// Whether it is `other`, or lies in it.
    fn lies_in(&self, other: &Place) -> bool {
        match (other.is_there, other.ids.first()) {
            (true, Some(id)) => self.ids.contains(id),
            _ => self.path.starts_with(&other.path),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_may_lie_in_a_cluster_and_hide_nothing_of_it() {
        let base = std::env::temp_dir().join(format!("forebay-hides-{}", std::process::id()));
        let (dir, link) = (base.join("a/c"), base.join("link"));
        std::fs::create_dir_all(dir.join("OST0001")).expect("made");
        std::os::unix::fs::symlink(base.join("a"), &link).expect("a link");
        let said = |mnt: &Path| refuse_for_dir(&dir, 2, mnt).err().map(|error| error.message);
        for hides in [&dir, &base.join("a"), &base, Path::new("/"), &link, &link.join("c"), &base.join("a/../a")] {
            assert!(said(hides).is_some_and(|said| said.contains("would hide the cluster")), "{}", hides.display());
        }
        for inside in [dir.join("OST0001"), dir.join("OST0001/x"), link.join("c/MDT0000/not/there"), dir.join("run/x")]
        {
            assert!(
                said(&inside).is_some_and(|said| said.contains("lies in") || said.contains("would hide")),
                "{inside:?}"
            );
        }
        assert!(said(Path::new("/dev")).is_some_and(|said| said.contains("every mount")));
        for good in [dir.join("mnt"), dir.join("x/y"), base.join("m"), dir.join("OST0002"), base.join("a/c2")] {
            assert_eq!(said(&good), None, "{}", good.display());
        }
        // Neither exists yet.
        let (new, above) = (base.join("new/c"), base.join("new"));
        assert!(refuse_for_dir(&new, 1, &above).is_err() && refuse_for_dir(&new, 1, &above.join("m")).is_ok());
        std::fs::remove_dir_all(&base).expect("removed");
    }
}
