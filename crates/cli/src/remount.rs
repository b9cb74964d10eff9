//! `mount -o remount,...`: changes the options that the kernel keeps for a mount, while programs use it.
//!
//! The options of the mount's process (commit, pin, rpc, writeback, readcache, inline, transport, access times, keys) are
//! fixed when it starts. mount(8) repeats the options of fstab whenever it remounts. So these options may be given
//! again with their present values.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)] // asks the kernel and the process of the mount

use std::{
    ffi::{CString, OsString},
    io,
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::{Path, PathBuf},
};

use clap::Parser;
use forebay_command::{
    error::{CliError, CliResult, Doing},
    posix,
};

use crate::{Command, CommandLine, cluster_arg::KeysArgs, mount_options::Options, mount_point, mounts};

/// Options that the kernel keeps for a mount, in the form that differs from `defaults`.
const KEPT: [&str; 4] = ["ro", "nosuid", "nodev", "noexec"];

/// Remounts `mnt` with `words`, the options of `-o` without those about `keys`.
pub fn run(mnt: &Path, words: &[String], keys: &KeysArgs) -> CliResult {
    let mnt = mount_point::resolve(mnt)?;
    let shown = mnt.display();
    if !mounts::is_mounted(&mnt) {
        return Err(CliError::usage(format!("{shown} is not mounted: there is nothing to remount")));
    }
    if let Some(kind) = mounts::foreign(&mnt) {
        return Err(CliError::usage(format!("{shown} is a mount of type {kind}, not one of Forebay's")));
    }
    let options = &Options::parse(&with_kept(&mounts::options(&mnt), words))?;
    let started = mounts::pid_file(&mnt).running().and_then(|pid| options_of(&PathBuf::from(format!("/proc/{pid}"))));
    let (now, keys_now) = started.unwrap_or_default();
    if let Some(word) = difference(options, &now).or_else(|| difference_of_keys(keys, &keys_now)) {
        return Err(CliError::usage(format!(
            "{word} is chosen when a mount is made: `forebay umount {shown}`, then mount it with that"
        )));
    }
    change_flags(&mnt, options).doing(|| format!("cannot remount {shown}"))
}

/// Changes the flags of the mount at `path` to those of `options`.
fn change_flags(path: &Path, options: &Options) -> io::Result<()> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let flag = |on: bool, flag: libc::c_ulong| if on { flag } else { 0 };
    let flags = flag(options.read_only, libc::MS_RDONLY)
        | flag(!options.devices, libc::MS_NODEV)
        | flag(!options.set_ids, libc::MS_NOSUID)
        | flag(options.no_exec, libc::MS_NOEXEC);
    let none = std::ptr::null();
    // SAFETY: `path` ends in NUL and lives across the call; a remount takes neither source nor type, and needs no data.
    posix::check(unsafe { libc::mount(none, path.as_ptr(), none, flags | libc::MS_REMOUNT, none.cast()) })
}

/// All options of a mount after the change: those of `now`, changed by `words`. With `defaults`, `words` are all of
/// them.
fn with_kept(now: &[String], words: &[String]) -> Vec<String> {
    if words.iter().any(|word| word == "defaults") {
        return words.to_vec();
    }
    let kept = now.iter().filter(|word| KEPT.contains(&word.as_str()));
    ["defaults".to_owned()].iter().chain(kept).chain(words).cloned().collect()
}

/// The options that the process of a mount was started with, and its keys. `process` is its directory in /proc.
fn options_of(process: &Path) -> Option<(Options, KeysArgs)> {
    let words = std::fs::read(process.join("cmdline")).ok()?;
    let words = words.strip_suffix(b"\0")?.split(|byte| *byte == 0).map(|word| OsString::from_vec(word.to_vec()));
    match CommandLine::try_parse_from(words).ok()?.command {
        Command::Mount(args) => {
            let (mut keys, words) = args.keys.with_options(&args.options);
            // A path may be one from its own current directory.
            keys.keys = keys.keys.map(|dir| process.join("cwd").join(dir));
            Some((Options::parse(&words).ok()?, keys))
        }
        _ => None,
    }
}

/// The option about keys in which `wanted` differs from the mount's process.
fn difference_of_keys(wanted: &KeysArgs, now: &KeysArgs) -> Option<&'static str> {
    let is_same = |dir: &Path, now: &Path| {
        dir == now || dir.canonicalize().is_ok_and(|dir| now.canonicalize().is_ok_and(|now| dir == now))
    };
    let has_keys = |dir: &PathBuf| now.keys.as_ref().is_some_and(|now| is_same(dir, now));
    match &wanted.keys {
        Some(dir) if !has_keys(dir) => Some("keys="),
        _ if wanted.insecure_loopback && !now.insecure_loopback => Some("insecure-loopback"),
        _ => None,
    }
}

/// The first option in which `wanted` differs from the mount's process.
fn difference(wanted: &Options, now: &Options) -> Option<&'static str> {
    fn differs<T: PartialEq>(wanted: &Option<T>, now: &Option<T>) -> bool {
        wanted.is_some() && wanted != now
    }
    let all = [
        ("commit=", differs(&wanted.level, &now.level)),
        ("pin=", differs(&wanted.pin_bytes, &now.pin_bytes)),
        ("rpc=", differs(&wanted.rpc_bytes, &now.rpc_bytes)),
        ("rpcs_in_flight=", differs(&wanted.rpcs_in_flight, &now.rpcs_in_flight)),
        ("inline=", differs(&wanted.inline_bytes, &now.inline_bytes)),
        ("readcache=", differs(&wanted.read_cache_bytes, &now.read_cache_bytes)),
        ("writeback=", differs(&wanted.write_back_bytes, &now.write_back_bytes)),
        (
            "noatime, relatime or strictatime",
            differs(&wanted.access_times, &Some(now.access_times.unwrap_or_default())),
        ),
        ("nodiratime", differs(&wanted.no_directory_access_times, &Some(now.no_directory_access_times == Some(true)))),
        ("transport=", wanted.transport != Options::default().transport && wanted.transport != now.transport),
    ];
    all.into_iter().find(|(_, differs)| *differs).map(|(word, _)| word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remount_keeps_the_options_that_are_not_named() {
        let words = |line: &str| line.split(',').map(str::to_owned).collect::<Vec<_>>();
        let flags = |now: &str, line: &str| {
            let options = Options::parse(&with_kept(&words(now), &words(line))).expect("options");
            (options.read_only, options.set_ids, options.devices, options.no_exec)
        };
        assert_eq!(flags("rw,relatime,rw,user_id=0", "remount,ro"), (true, true, true, false));
        assert_eq!(flags("ro,nosuid,nodev,noexec,noatime,ro", "remount,rw"), (false, false, false, true));
        assert_eq!(flags("rw,nosuid,nodev,rw", "suid,remount,noexec"), (false, true, false, true));
        assert_eq!(flags("ro,nosuid,noexec,ro", "defaults,rw,nodev,remount"), (false, true, false, false));
    }

    #[test]
    fn remount_accepts_the_current_value_of_a_fixed_option_and_refuses_another() {
        let parse =
            |words: &str| Options::parse(&words.split(',').map(str::to_owned).collect::<Vec<_>>()).expect("options");
        let now = parse("commit=data,pin=64MiB,ro");
        assert_eq!(difference(&parse("remount,rw,noexec,commit=data"), &now), None);
        assert_eq!(difference(&parse("remount,commit=commit"), &now), Some("commit="));
        assert_eq!(difference(&parse("remount,writeback=1MiB"), &now), Some("writeback="));
        assert_eq!(difference(&parse("remount,transport=dev"), &now), Some("transport="));
        assert_eq!(difference(&parse("remount,relatime,diratime"), &now), None);
        assert_eq!(difference(&parse("remount,noatime"), &now), Some("noatime, relatime or strictatime"));
        assert_eq!(difference(&parse("remount,nodiratime"), &now), Some("nodiratime"));
        assert_eq!(difference(&parse("remount,strictatime"), &parse("strictatime")), None);
    }

    #[test]
    fn remount_accepts_the_keys_in_use_by_any_path_and_refuses_others() {
        let keys = |dir: &str| KeysArgs { keys: Some(dir.into()), insecure_loopback: false };
        let insecure = KeysArgs { keys: None, insecure_loopback: true };
        let none = KeysArgs::default();
        for (wanted, now) in [
            (&none, &keys("/etc")),
            (&none, &insecure),
            (&keys("/etc"), &keys("/etc")),
            (&keys("/proc/self/root/etc/."), &keys("/etc")),
            (&keys("/removed/since"), &keys("/removed/since")),
            (&insecure, &insecure),
        ] {
            assert_eq!(difference_of_keys(wanted, now), None, "{wanted:?} {now:?}");
        }
        for now in [&none, &keys("/usr"), &insecure] {
            assert_eq!(difference_of_keys(&keys("/etc"), now), Some("keys="), "{now:?}");
        }
        assert_eq!(difference_of_keys(&insecure, &keys("/etc")), Some("insecure-loopback"));
    }
    #[test]
    fn a_mount_that_was_given_its_keys_among_its_options_shows_all_of_them() {
        let process = std::env::temp_dir().join(format!("forebay-remount-{}", std::process::id()));
        std::fs::create_dir(&process).expect("a directory");
        let words = ["forebay", "mount", "-f", "-o", "keys=k,commit=data", "10.0.0.1:4500", "/mnt", ""];
        std::fs::write(process.join("cmdline"), words.join("\0")).expect("written");
        let (options, keys) = options_of(&process).expect("a mount");
        assert_eq!(options, Options::parse(&["commit=data".into()]).expect("options"));
        assert_eq!(keys.keys, Some(process.join("cwd/k")));
        std::fs::remove_dir_all(&process).expect("removed");
    }
}
