//! `forebay mount CLUSTER MNT`: mounts the file system on this machine.
//!
//! A mount is a process. Its pid is kept in a directory of this user, under the mount point's name. With it `umount`
//! can wait until everything is durable and the process has ended.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)] // looks at the process of an earlier mount; `fuse_mount` serves

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    time::Duration,
};

use clap::Args;
use forebay_command::{
    cluster::Cluster,
    error::{CliError, CliErrorKind, CliResult},
    paths::utf8,
    posix,
    processes::{self, Background},
};
use forebay_env::{Address, Env, real};

use crate::{
    ask,
    cluster_arg::{ClusterArg, KeysArgs},
    fuse_mount::{self, Place},
    hides, holders, join,
    mount_options::Options,
    mount_point,
    mounts::{self, LossReport, Noted},
    open_files, remount, stop,
};

/// How long the process of an earlier mount at the same mount point may take to make its changes durable.
const EARLIER_TIMEOUT: Duration = Duration::from_secs(20);

/// A wait of this length needs no message.
const SILENCE: Duration = Duration::from_secs(1);

/// What to mount where.
#[derive(Debug, Args)]
pub struct MountArgs {
    /// The DIR of `forebay up`, or HOST:PORT[,HOST:PORT] of the MGS
    #[arg(value_name = "CLUSTER")]
    pub cluster: String,
    /// Where: a directory, which has to be there
    #[arg(value_name = "MNT")]
    pub mnt: PathBuf,
    /// Options, as in fstab: commit=memory|data|commit, pin=SIZE, rpc=SIZE, rpcs_in_flight=N, writeback=SIZE, readcache=SIZE,
    /// inline=SIZE, ro, suid, dev, noexec, noatime, relatime, strictatime, nodiratime, allow_other, transport=auto|dev|uring, keys=DIR, insecure-loopback; with remount ro, rw, suid, dev, noexec of a mount change
    #[arg(short = 'o', value_name = "OPTIONS", value_delimiter = ',')]
    pub options: Vec<String>,
    #[command(flatten)]
    pub keys: KeysArgs,
    /// Join the cluster first, with what `forebay token new --role client` printed; `-` reads it from standard input. Once: later
    /// mounts find the keys that this makes
    #[arg(long, value_name = "TOKEN", conflicts_with_all = ["keys", "insecure_loopback"])]
    pub token: Option<String>,
    /// Stay in the foreground
    #[arg(short = 'f', long)]
    pub foreground: bool,
    /// Begin a session of its own once it is mounted
    #[arg(long, hide = true)]
    pub background: bool,
    /// Pass over options that there are not (`mount -s`)
    #[arg(long, hide = true)]
    pub sloppy: bool,
}

/// Mounts; returns when the mount is ready.
pub fn run(args: &MountArgs) -> CliResult {
    let is_known = |word: &&String| !args.sloppy || Options::parse(std::slice::from_ref(word)).is_ok();
    let (keys, words) = args.keys.with_options(&args.options);
    let words: Vec<String> = words.iter().filter(is_known).cloned().collect();
    let options = Options::parse(&words)?;
    if options.remount {
        return remount::run(&args.mnt, &words, &keys);
    }
    let mnt = mount_point::find(&args.mnt)?;
    if let Some(token) = &args.token {
        posix::for_owner_alone();
        join::join_as_client(&join::mgs_of(&args.cluster)?, &join::read_token(token)?)?;
    }
    let cluster = ClusterArg::parse(&args.cluster)?;
    if let ClusterArg::Described(_) = &cluster {
        hides::refuse(&cluster, &mnt)?;
    }
    refuse_mounted(&mnt)?;
    let targets = match &cluster {
        ClusterArg::Described(cluster) => cluster.targets().len(),
        ClusterArg::Addresses(_) => 0,
    };
    open_files::refuse_few_to_mount(targets)?;
    forebay_fuse::check_device().map_err(|words| CliError::failed(format!("nothing can be mounted: {words}")))?;
    // Later readers of the mount table may have another current directory.
    let source = match &cluster {
        ClusterArg::Described(cluster) => utf8(&cluster.dir)?,
        ClusterArg::Addresses(addresses) if addresses.iter().any(|address| matches!(address, Address::Unix(_))) => {
            addresses.iter().map(Address::to_string).collect::<Vec<_>>().join(",")
        }
        ClusterArg::Addresses(_) => args.cluster.clone(),
    };
    if args.foreground {
        hides::refuse(&cluster, &mnt)?;
        return serve(&cluster, &keys, &source, &mnt, options, args.background);
    }
    let log_dir = match &cluster {
        ClusterArg::Described(cluster) => cluster.log_dir(),
        ClusterArg::Addresses(_) => mounts::run_dir(),
    };
    ask::warn_if_unreachable(&cluster, &cluster.network(&keys)?, fuse_mount::TIMEOUT)?;
    // By now the cluster of an address is known.
    hides::refuse(&cluster, &mnt)?;
    start(&source, &keys, &mnt, &words, &log_dir)
}

/// Mounts `cluster` at `mnt` unless it is mounted there.
pub fn ensure(cluster: &Cluster, mnt: &Path) -> CliResult {
    if mounts::pid_file(mnt).running().is_some() && mounts::is_mounted(mnt) {
        return match mounts::shows_cluster(&cluster.dir, mnt) {
            true => Ok(()),
            false => {
                let source = mounts::seen(mnt).map_or_else(String::new, |(_, source)| format!(", of {source}"));
                let mnt = mnt.display();
                Err(CliError::failed(format!(
                    "{mnt} is a mount already{source}: `forebay umount {mnt}` takes it away, `--mount MNT` gives another place"
                )))
            }
        };
    }
    mounts::clear_dead(mnt)?;
    wait_for_earlier(mnt)?;
    let options: Vec<String> = cluster.description.commit.iter().map(|level| format!("commit={level}")).collect();
    start(&utf8(&cluster.dir)?, &KeysArgs::default(), mnt, &options, &cluster.log_dir())
}

fn start(cluster: &str, keys: &KeysArgs, mnt: &Path, options: &[String], log_dir: &Path) -> CliResult {
    let mut args = vec!["mount".to_owned(), "-f".to_owned(), "--background".to_owned()];
    args.extend(keys.words()?);
    if !options.is_empty() {
        args.extend(["-o".to_owned(), options.join(",")]);
    }
    args.extend(["--".to_owned(), cluster.to_owned(), utf8(mnt)?]);
    let (name, run_dir) = (mounts::name_of(mnt), mounts::run_dir());
    let called = format!("the mount at {}", mnt.display());
    // A process that mounts for an automounter must stay in its process group: other processes that access the path
    // wait for the mount.
    Background { name: &name, called, args, own_session: false, run_dir: &run_dir, log_dir }
        .start()?
        .wait_ready()
        .map(drop)
}

/// Converts the arguments with which mount(8) calls its helpers
/// (`mount.forebay SOURCE DIR [-sfnv] [-N NAMESPACE] [-o OPTIONS] [-t TYPE]`) to this program's. mount(8) does not pass
/// `defaults` on, only the options that differ from it.
pub fn as_helper(arguments: Vec<OsString>) -> Vec<OsString> {
    let mut arguments = arguments.into_iter();
    let mut ours: Vec<OsString> = arguments.next().into_iter().chain(["mount", "-odefaults"].map(Into::into)).collect();
    while let Some(argument) = arguments.next() {
        match argument.to_str() {
            Some("-t" | "-N") => drop(arguments.next()),
            Some("-o") => ours.extend([argument].into_iter().chain(arguments.next())),
            Some(flags) if is_helper_flag(flags) && flags.contains('s') => ours.push("--sloppy".into()),
            Some(flags) if is_helper_flag(flags) => {}
            _ => ours.push(argument),
        }
    }
    ours
}

/// Whether mount.fuse(8) calls this program, as `forebay SOURCE DIR -o OPTIONS`. mount(8) does so for the type
/// `fuse.forebay`. A source is a path or an address, and no command has a slash or a colon in its name.
pub fn is_called_by_fuse(arguments: &[OsString]) -> bool {
    let is_source = |word: &OsString| word.as_encoded_bytes().iter().any(|byte| b"/:".contains(byte));
    matches!(arguments, [_, source, _, option, ..] if option == "-o" && is_source(source))
}

/// Whether the helper is asked to mount nothing (`mount -f`): mount(8) only shows what it would do.
pub fn is_for_show(arguments: &[OsString]) -> bool {
    let flags =
        |argument: &OsString| argument.to_str().is_some_and(|flags| is_helper_flag(flags) && flags.contains('f'));
    arguments.iter().skip(3).any(flags)
}

/// The exit code that mount(8) expects of its helpers: 1 for wrong arguments, 32 for a failed mount.
pub fn helper_exit_code(error: &CliError) -> u8 {
    if error.kind == CliErrorKind::Usage { 1 } else { 32 }
}

fn is_helper_flag(word: &str) -> bool {
    word.strip_prefix('-').is_some_and(|flags| !flags.is_empty() && flags.chars().all(|flag| "sfnv".contains(flag)))
}

fn refuse_mounted(mnt: &Path) -> CliResult {
    mounts::clear_dead(mnt)?;
    if mounts::is_mounted(mnt) {
        let mnt = mnt.display();
        return Err(CliError::failed(format!("{mnt} is a mount already; `forebay umount {mnt}` takes it away")));
    }
    wait_for_earlier(mnt)
}

/// Runs as the mount until it is unmounted, or a signal arrives.
fn serve(
    cluster: &ClusterArg,
    keys: &KeysArgs,
    source: &str,
    mnt: &Path,
    options: Options,
    background: bool,
) -> CliResult {
    let network = cluster.network(keys)?;
    let stop = stop::requested();
    wait_for_earlier(mnt)?;
    let pid_file = mounts::own_pid_file(mnt);
    pid_file.write(std::process::id())?;
    LossReport::of(mnt).take();
    let (mnt_text, place) =
        (utf8(mnt)?, Place { mgs: cluster.mgs(), cluster: cluster.uuid(), source: source.to_owned(), background });
    let result = real::run(|env: Env| async move {
        let env = env.with_network(network);
        crate::fuse_mount::serve(&env, place, &mnt_text, options, stop).await
    });
    pid_file.remove_own();
    result
}

/// Waits for the process of an earlier mount at `mnt`: it may still be making changes durable.
fn wait_for_earlier(mnt: &Path) -> CliResult {
    let pid_file = mounts::pid_file(mnt);
    // The process that started this one in the background has already recorded its pid.
    let other = || pid_file.running().filter(|pid| *pid != std::process::id());
    if processes::wait_until(SILENCE, || other().is_none()) {
        return Ok(());
    }
    let shown = mnt.display();
    if let (Some(pid), Some(device)) = (other(), Noted::of(mnt).read().filter(|_| !mounts::is_mounted(mnt))) {
        let holders = holders::of(device, Some(pid));
        if !holders.is_empty() {
            eprintln!(
                "forebay: an earlier mount at {shown} was taken away, and goes on in process {pid} for {}",
                holders::show(mnt, &holders)
            );
            return mounts::set_aside(mnt, pid);
        }
    }
    if let Some(pid) = other() {
        let timeout = EARLIER_TIMEOUT.as_secs();
        eprintln!("forebay: process {pid} {}; waiting up to {timeout} s for it", what_it_does(pid, mnt));
    }
    if processes::wait_until(EARLIER_TIMEOUT, || other().is_none()) {
        return Ok(());
    }
    let pid = pid_file.running().unwrap_or(0);
    let awaited = mounts::awaited(mnt).map_or_else(String::new, |awaited| format!(", waiting for {awaited}"));
    Err(CliError::failed(format!(
        "process {pid} {}{awaited}; `forebay umount --force {shown}` ends it",
        what_it_does(pid, mnt),
    )))
}

/// What the process of a mount at `mnt` is doing while nothing is mounted there.
fn what_it_does(pid: u32, mnt: &Path) -> String {
    let mnt = mnt.display();
    let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let in_background = words.split(|byte| *byte == 0).any(|word| word == b"--background");
    // The process begins its session after it has mounted.
    match (in_background, posix::leads_session(pid)) {
        (true, false) => format!("is about to mount at {mnt}, and waits for its servers"),
        (true, true) => format!("of an earlier mount at {mnt} still makes changes durable"),
        (false, _) => format!("of a mount at {mnt} in the foreground has not ended"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn helper(line: &str) -> String {
        let ours = as_helper(line.split(' ').map(OsString::from).collect());
        ours.join(std::ffi::OsStr::new(" ")).into_string().expect("UTF-8")
    }

    #[test]
    fn the_mount_helper_parses_the_arguments_of_mount_8() {
        let line = "/sbin/mount.forebay 127.0.0.1:4500 /mnt/x -n -sv -o rw,_netdev -t forebay";
        assert_eq!(helper(line), "/sbin/mount.forebay mount -odefaults 127.0.0.1:4500 /mnt/x --sloppy -o rw,_netdev");
        assert_eq!(helper("mount.forebay a b -nv"), "mount.forebay mount -odefaults a b");
        let words = |line: &str| line.split(' ').map(OsString::from).collect::<Vec<_>>();
        assert!(is_for_show(&words("mount.forebay a b -vf")) && !is_for_show(&words("mount.forebay a b -sv -o f")));
        assert!(is_called_by_fuse(&words("forebay /srv/c /mnt/x -o remount,ro")));
        assert!(is_called_by_fuse(&words("forebay 127.0.0.1:4500 /mnt/x -o rw")));
        for line in ["forebay mount /srv/c -o ro /mnt/x", "forebay mont c -o ro", "forebay df -i x", "forebay"] {
            assert!(!is_called_by_fuse(&words(line)), "{line}");
        }
    }
}
