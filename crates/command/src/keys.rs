//! The keys in a directory of files: `authority.crt`, and of each key that the host has `NAME.crt` and `NAME.key`.
//!
//! A cluster's own directory has `keys/`: there the authority's key is, the servers' and the administrator's.
//!
//! Invariant: a private key is in a file that only its owner can read from the moment it is made; one that others can
//! read is refused.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)] // keys are read before there is a shard

mod new_dir;

use std::{
    fs::{File, OpenOptions, read_to_string},
    io::{ErrorKind, Write},
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use forebay_env::{Address, Network};
use forebay_keys::{Authority, CLOCKS_APART, Keys, NodeKey, NodeName, Role, Validity, certificate_to_pem};
use forebay_proto::Uuid;

use self::new_dir::NewDir;
use crate::{
    cluster::Cluster,
    error::{CliError, CliResult, Doing},
    posix,
};

/// Name of the directory with the keys of a cluster's first host.
pub const DIR: &str = "keys";
/// The key of a host's servers.
pub const SERVER: &str = "server";
/// The key of the administrator, and of mounts on a server's host.
pub const ADMIN: &str = "admin";
/// The key of a host that only mounts.
const CLIENT: &str = "client";
const AUTHORITY: &str = "authority";
/// Name of the file that lets connections with these keys do without encryption.
const INTEGRITY_ONLY: &str = "integrity-only";

/// The private key of a host that is about to join.
const JOINING: &str = "joining.key";

/// Makes the authority of a new cluster, and the keys of its first host, in a new directory. It is `now` (time since 1970).
pub fn make(keys: &Path, cluster: Uuid, now: Duration) -> CliResult {
    let dir = NewDir::make(keys)?;
    let authority = Authority::make(cluster).doing(|| "cannot make the cluster's authority".into())?;
    let certificate = authority.certificate(now.saturating_sub(CLOCKS_APART));
    let certificate = certificate.doing(|| "cannot make the authority's certificate".into())?;
    write(keys, &format!("{AUTHORITY}.crt"), &certificate_to_pem(&certificate), 0o644)?;
    write(keys, &format!("{AUTHORITY}.key"), &authority.key_pem(), 0o400)?;
    for role in [Role::Mds, Role::Admin] {
        issue(&authority, keys, role, &host_name(), now)?;
    }
    sync(keys).map(|()| dir.keep())
}

/// Makes the keys of another host in a new directory `to`, signed by the authority whose keys are in `keys`.
pub fn make_for(keys: &Path, to: &Path, role: Role, host: &str, now: Duration) -> CliResult<NodeName> {
    let certificate = read(keys.join(format!("{AUTHORITY}.crt")))?;
    // Each certificate that it has signed says whose authority it is.
    let cluster = load(keys, ADMIN)?.cluster();
    let authority = authority(keys, cluster)?;
    let node = NodeName::new(cluster, role, host).map_err(|error| CliError::usage(error.to_string()))?;
    let dir = NewDir::make(to)?;
    write(to, &format!("{AUTHORITY}.crt"), &certificate, 0o644)?;
    issue(&authority, to, role, host, now)?;
    sync(to).map(|()| dir.keep())?;
    Ok(node)
}

/// The authority whose private key is in `keys`.
fn authority(keys: &Path, cluster: Uuid) -> CliResult<Authority> {
    let path = keys.join(format!("{AUTHORITY}.key"));
    refuse_readable(&path)?;
    let authority = Authority::from_key_pem(cluster, &read(path)?);
    authority.doing(|| format!("the authority's key in {}", keys.display()))
}

/// The authority of a cluster, if its private key is on this host and its connections use keys.
pub fn authority_of(cluster: &Cluster) -> CliResult<Option<Arc<Authority>>> {
    let dir = dir_of(cluster);
    if cluster.description.insecure_loopback || !dir.join(format!("{AUTHORITY}.key")).exists() {
        return Ok(None);
    }
    authority(&dir, cluster.uuid()).map(|authority| Some(Arc::new(authority)))
}

/// True if [`set_integrity_only`] has let the keys in `dir` do without encryption.
pub fn is_integrity_only(dir: &Path) -> bool {
    dir.join(INTEGRITY_ONLY).exists()
}

/// Lets the connections of the keys in `dir` do without encryption, where the other side does so too; or ends that.
pub fn set_integrity_only(dir: &Path, wanted: bool) -> CliResult {
    if !dir.join(format!("{AUTHORITY}.crt")).exists() {
        return Err(CliError::failed(format!("{} holds no keys of a cluster", dir.display())));
    }
    let path = dir.join(INTEGRITY_ONLY);
    match (wanted, path.exists()) {
        (true, false) => write(dir, INTEGRITY_ONLY, "Who listens on the network can read this host's data.\n", 0o444)?,
        (false, true) => std::fs::remove_file(&path).doing(|| format!("cannot remove {}", path.display()))?,
        _ => {}
    }
    sync(dir)
}

fn dir_of(cluster: &Cluster) -> PathBuf {
    cluster.dir.join(cluster.description.keys.as_deref().unwrap_or(Path::new(DIR)))
}

/// True if the host whose keys are in `dir` has begun to join, and does not know that the MGS has taken it.
pub fn is_joining(dir: &Path) -> bool {
    dir.join(JOINING).exists()
}

/// The MGS has refused the host: its key is of no use.
pub fn drop_joining(dir: &Path) {
    let _ = std::fs::remove_file(dir.join(JOINING)).and_then(|()| std::fs::remove_dir(dir));
}

/// The private key of a host that is about to join, in `dir`: made now, or by an attempt that was interrupted. The MGS
/// knows the host by it.
pub fn begin_joining(dir: &Path) -> CliResult<NodeKey> {
    let path = dir.join(JOINING);
    if !path.exists() {
        let made = if dir.exists() { None } else { Some(NewDir::make(dir)?) };
        let key = NodeKey::make().doing(|| "cannot make a key".into())?;
        write(dir, JOINING, &key.pem(), 0o400)?;
        sync(dir)?;
        made.into_iter().for_each(NewDir::keep);
    }
    refuse_readable(&path)?;
    NodeKey::from_pem(&read(path)?).doing(|| format!("the keys in {}", dir.display()))
}

/// The host is a node: its key gets its place beside the certificates (DER) that the MGS has sent.
pub fn end_joining(dir: &Path, role: Role, certificate: &[u8], authority: &[u8]) -> CliResult {
    let name = file_name(role);
    for (name, der) in [(AUTHORITY, authority), (name, certificate)] {
        let path = dir.join(format!("{name}.crt"));
        // An attempt that was interrupted may have left a part of it.
        let _ = std::fs::remove_file(&path);
        write(dir, &format!("{name}.crt"), &certificate_to_pem(&der.to_vec().into()), 0o644)?;
    }
    let key = dir.join(format!("{name}.key"));
    std::fs::rename(dir.join(JOINING), &key).doing(|| format!("cannot make {}", key.display()))?;
    sync(dir)
}

/// The variable that names the directory of [`home`].
const HOME_VARIABLE: &str = "FOREBAY_HOME";

/// Where a host that mounts without a DIR keeps its keys for the cluster at `mgs`: in /etc/forebay, those of a plain user
/// in ~/.config/forebay, or where FOREBAY_HOME says.
pub fn home(mgs: &Address) -> PathBuf {
    let Address::Tcp(name) = mgs else { return PathBuf::new() };
    let above = match (std::env::var_os(HOME_VARIABLE), posix::is_root(), std::env::var_os("HOME")) {
        (Some(above), ..) => PathBuf::from(above),
        (None, false, Some(home)) => PathBuf::from(home).join(".config/forebay"),
        _ => PathBuf::from("/etc/forebay"),
    };
    above.join("keys").join(name.replace('/', "_"))
}

/// Makes a key and a certificate for it.
fn issue(authority: &Authority, dir: &Path, role: Role, host: &str, now: Duration) -> CliResult {
    let signed = || {
        let (key, node) = (NodeKey::make()?, NodeName::new(authority.cluster(), role, host)?);
        let certificate = authority.sign(&node, key.public_key(), Validity::of_a_node(now))?;
        Ok((certificate_to_pem(&certificate), key.pem()))
    };
    let signed = signed().map_err(|error: forebay_keys::KeyError| CliError::failed(error.to_string()));
    let (certificate, key) = signed?;
    let name = file_name(role);
    write(dir, &format!("{name}.crt"), &certificate, 0o644)?;
    write(dir, &format!("{name}.key"), &key, 0o400)
}

/// How the files of a host's key are called.
fn file_name(role: Role) -> &'static str {
    match role {
        Role::Mds | Role::Ost | Role::Router => SERVER,
        Role::Admin => ADMIN,
        Role::Client => CLIENT,
    }
}

fn sync(dir: &Path) -> CliResult {
    File::open(dir).and_then(|dir| dir.sync_all()).doing(|| format!("cannot write in {}", dir.display()))
}

fn write(dir: &Path, name: &str, text: &str, mode: u32) -> CliResult {
    let path = dir.join(name);
    let write = || {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&path)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()
    };
    write().doing(|| format!("cannot write {}", path.display()))
}

/// This host's name, of the characters that a node's name may have.
pub fn host_name() -> String {
    let name = read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let fits = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.');
    let name: String = name.trim().chars().filter(fits).take(63).collect();
    if name.is_empty() { "host".into() } else { name }
}

/// The connections over a network of a program that uses the cluster's servers, or is one (`name`: [`SERVER`]).
pub fn of_cluster(cluster: &Cluster, name: &str) -> CliResult<Network> {
    let addresses = cluster.targets().into_iter().flat_map(|target| target.addresses).chain(cluster.mgs());
    if !addresses.into_iter().any(|address| matches!(address, Address::Tcp(_))) {
        return Ok(Network::Closed);
    }
    if cluster.description.insecure_loopback {
        return Ok(Network::InsecureLoopback);
    }
    let dir = dir_of(cluster);
    if !dir.exists() {
        return Err(CliError::failed(format!(
            "{} listens at TCP addresses and has no keys, so anybody could act as anyone. If only this machine's users \
             can, and may, add `insecure_loopback = true` to its {}; else `forebay keys new` makes keys",
            cluster.dir.display(),
            crate::cluster::FILE,
        )));
    }
    let keys = load_one(&dir, name)?;
    if keys.cluster() != cluster.uuid() {
        return Err(CliError::failed(format!(
            "the keys in {} are of cluster {}, and this is cluster {}",
            dir.display(),
            keys.cluster(),
            cluster.uuid()
        )));
    }
    Ok(Network::Keys(keys))
}

/// The connections of a program that was given `--keys DIR` (or not) and `--insecure-loopback` (or not).
pub fn of_options(keys: Option<&Path>, insecure_loopback: bool, name: &str) -> CliResult<Network> {
    match keys {
        Some(dir) => load_one(dir, name).map(Network::Keys),
        None if insecure_loopback => Ok(Network::InsecureLoopback),
        None => Ok(Network::Closed),
    }
}

/// The keys in `dir`, of a host that may have only one.
pub fn any_in(dir: &Path) -> CliResult<Arc<Keys>> {
    load_one(dir, ADMIN)
}

/// The keys called `name`, or others that are there in their place. Servers need their own.
fn load_one(dir: &Path, name: &str) -> CliResult<Arc<Keys>> {
    let others: &[&str] = if name == SERVER { &[] } else { &[ADMIN, CLIENT, SERVER] };
    let names = std::iter::once(&name).chain(others);
    let found = names.copied().find(|name| dir.join(format!("{name}.key")).exists());
    load(dir, found.unwrap_or(name))
}

fn load(dir: &Path, name: &str) -> CliResult<Arc<Keys>> {
    let authority = read(dir.join(format!("{AUTHORITY}.crt")))?;
    let certificate = read(dir.join(format!("{name}.crt")))?;
    let path = dir.join(format!("{name}.key"));
    refuse_readable(&path)?;
    let keys = Keys::from_pem(&authority, &certificate, &read(path)?);
    let keys = keys.doing(|| format!("the keys in {}", dir.display()))?;
    let keys = keys.kept_in(dir.join(format!("{name}.crt")));
    Ok(Arc::new(if is_integrity_only(dir) { keys.with_integrity_only() } else { keys }))
}

/// Puts a renewed certificate (DER) in the place of the one that these keys were read from. A crash leaves one of them.
pub fn save_renewed(keys: &Keys, certificate: &[u8]) -> CliResult {
    let Some((path, dir)) = keys.place().and_then(|path| Some((path, path.parent()?))) else { return Ok(()) };
    // Several processes may have the same keys, and renew them at the same time.
    let process = std::process::id();
    let name = format!("{}.new-{process}", path.file_name().unwrap_or_default().to_string_lossy());
    // A renewal that was interrupted may have left one.
    let _ = std::fs::remove_file(dir.join(&name));
    write(dir, &name, &certificate_to_pem(&certificate.to_vec().into()), 0o400)?;
    // Whoever could read the old one can read the new one.
    let (new, old) = (dir.join(&name), path.metadata().doing(|| format!("cannot look at {}", path.display()))?);
    let of_old = std::fs::set_permissions(&new, old.permissions());
    let of_old = of_old.and_then(|()| std::os::unix::fs::chown(&new, Some(old.uid()), Some(old.gid())));
    of_old.doing(|| format!("cannot give {} the owner and mode of the one before", new.display()))?;
    std::fs::rename(dir.join(&name), path).doing(|| format!("cannot replace {}", path.display()))?;
    sync(dir)
}

fn read(path: PathBuf) -> CliResult<String> {
    read_to_string(&path).map_err(|error| {
        let more = match error.kind() {
            ErrorKind::NotFound => "; `forebay up DIR` makes a cluster's keys in DIR/keys, when it is formatted",
            ErrorKind::PermissionDenied => "; only the user who started the servers, and root, may read it",
            _ => "",
        };
        CliError::failed(format!("cannot read {}: {error}{more}", path.display()))
    })
}

/// Refuses a private key that others can read.
fn refuse_readable(path: &Path) -> CliResult {
    let Ok(metadata) = path.metadata() else { return Ok(()) };
    match metadata.mode() & 0o7777 {
        mode if mode & 0o077 == 0 => Ok(()),
        mode => Err(CliError::failed(format!(
            "{0} has mode {mode:04o}: whoever can read it can be this host. `chmod 400 {0}`, and have new keys made if \
             somebody else may have read it",
            path.display()
        ))),
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use super::*;

    const NOW: Duration = Duration::from_secs(1_800_000_000);

    #[test]
    fn keys_of_a_new_cluster_are_files_for_their_owner_alone_and_others_are_refused() {
        let scratch = std::env::temp_dir().join(format!("forebay-keys-{}", std::process::id()));
        fs::create_dir(&scratch).expect("a directory");
        let cluster = Uuid([7; 16]);
        let dir = scratch.join(DIR);
        make(&dir, cluster, NOW).expect("keys");
        let mode = |path: &Path| path.metadata().expect("it is there").mode() & 0o777;
        assert_eq!(mode(&dir), 0o700);
        let mut seen = Vec::new();
        for entry in fs::read_dir(&dir).expect("a directory") {
            let (path, name) = entry.map(|entry| (entry.path(), entry.file_name().into_string())).expect("an entry");
            let name = name.expect("ASCII");
            assert!(!name.ends_with(".key") || mode(&path) == 0o400, "{name}");
            seen.push(name);
        }
        seen.sort();
        assert_eq!(seen, ["admin.crt", "admin.key", "authority.crt", "authority.key", "server.crt", "server.key"]);
        for (name, role) in [(SERVER, Role::Mds), (ADMIN, Role::Admin)] {
            let keys = load(&dir, name).expect(name);
            assert_eq!((keys.cluster(), keys.name().role), (cluster, role));
        }
        let key = dir.join("admin.key");
        fs::set_permissions(&key, fs::Permissions::from_mode(0o440)).expect("chmod");
        let error = load(&dir, ADMIN).expect_err("the group can read it").message;
        assert!(error.contains("0440") && error.contains("chmod 400"), "{error}");
        assert!(make(&dir, cluster, NOW).is_err(), "there are keys already");
        let other = scratch.join("other");
        fs::set_permissions(&key, fs::Permissions::from_mode(0o400)).expect("chmod");
        make_for(&dir, &other, Role::Client, "n1", NOW).expect("keys");
        let keys = load(&other, CLIENT).expect("keys");
        assert_eq!((keys.cluster(), keys.name().role, keys.name().name()), (cluster, Role::Client, "n1"));
        assert!(!other.join("authority.key").exists());
        assert!(make_for(&dir, &scratch.join("x"), Role::Client, "a b", NOW).is_err(), "that is not a name");
        fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).expect("chmod");
        fs::copy(dir.join("server.key"), &key).expect("a copy");
        let error = load(&dir, ADMIN).expect_err("it is another's key").message;
        assert!(error.contains(&dir.display().to_string()), "{error}");
        fs::remove_dir_all(&scratch).expect("it is removed");
    }

    #[test]
    fn a_renewed_certificate_takes_the_place_of_the_one_before() {
        let scratch = std::env::temp_dir().join(format!("forebay-renewed-{}", std::process::id()));
        fs::create_dir(&scratch).expect("a directory");
        let (dir, cluster) = (scratch.join(DIR), Uuid([7; 16]));
        make(&dir, cluster, NOW).expect("keys");
        let keys = load(&dir, SERVER).expect("keys");
        let before = keys.validity().expect("a certificate");
        let later = Validity::of_a_node(NOW + Duration::from_secs(1_000_000));
        let public = keys.public_key().expect("a key").0;
        let signed = authority(&dir, cluster).expect("it is here").sign(keys.name(), &public, later).expect("signed");
        let new = dir.join(format!("server.crt.new-{}", std::process::id()));
        fs::write(&new, "half").expect("what a crash has left");
        let mode = || dir.join("server.crt").metadata().expect("it is there").mode();
        let before_mode = mode();
        save_renewed(&keys, &signed).expect("saved");
        assert_eq!(keys.validity(), Some(before), "the file alone changes nothing");
        assert_eq!(load(&dir, SERVER).expect("keys").validity(), Some(later));
        assert!(mode() == before_mode && !new.exists());
        fs::remove_dir_all(&scratch).expect("it is removed");
    }

    #[test]
    fn an_attempt_that_fails_leaves_no_directory_in_the_way_of_the_next() {
        let scratch = std::env::temp_dir().join(format!("forebay-half-keys-{}", std::process::id()));
        fs::create_dir(&scratch).expect("a directory");
        let (dir, other, cluster) = (scratch.join(DIR), scratch.join("other"), Uuid([7; 16]));
        // No certificate can hold that time.
        let never = Duration::from_secs(1 << 50);
        assert!(make(&dir, cluster, never).is_err() && !dir.exists());
        make(&dir, cluster, NOW).expect("keys");
        assert!(make_for(&dir, &other, Role::Client, "n1", never).is_err() && !other.exists());
        assert!(make_for(&dir, &other, Role::Client, "a b", NOW).is_err() && !other.exists());
        make_for(&dir, &other, Role::Client, "n1", NOW).expect("keys");
        // What was there before stays.
        fs::write(other.join("note"), "mine").expect("written");
        for refused in [make(&other, cluster, NOW), make_for(&dir, &other, Role::Client, "n1", NOW).map(drop)] {
            assert!(refused.is_err() && other.join("note").exists() && other.join("client.key").exists());
        }
        fs::remove_dir_all(&scratch).expect("it is removed");
    }
}
