//! The system's helper, fusermount3(1): it mounts and unmounts for users who may not call mount(2) themselves.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)] // another program is run: the caller has a thread

use std::{
    io,
    mem::{self, MaybeUninit},
    os::{
        fd::{AsRawFd, FromRawFd, OwnedFd},
        unix::{net::UnixStream, process::CommandExt},
    },
    process::{Command, Stdio},
};

use crate::FuseOptions;

const PROGRAM: &str = "fusermount3";

/// Names the socket through which the helper sends the descriptor of the mount.
const SOCKET_VARIABLE: &str = "_FUSE_COMMFD";

/// Mounts at `point`, and returns the descriptor of the mount. Errors: a text that says what to do.
pub(crate) fn mount(point: &str, options: &FuseOptions) -> Result<OwnedFd, String> {
    let (ours, its) = UnixStream::pair().map_err(|error| format!("no socket for {PROGRAM}: {error}"))?;
    let mut command = helper();
    command.args(["-o", &words(options), "--", point]).env(SOCKET_VARIABLE, its.as_raw_fd().to_string());
    let descriptor = its.as_raw_fd();
    // SAFETY: between fork and exec only fcntl runs, which is async-signal-safe.
    unsafe {
        command.pre_exec(move || match libc::fcntl(descriptor, libc::F_SETFD, 0) {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        });
    }
    let child = command.spawn().map_err(|error| not_run(&error))?;
    drop(its);
    let received = receive(&ours);
    let output = child.wait_with_output().map_err(|error| format!("{PROGRAM}: {error}"))?;
    let said = said(&output.stderr);
    match received {
        Some(descriptor) if output.status.success() => Ok(descriptor),
        _ if said.contains("user_allow_other") => {
            Err("other users may use the mount of a user only where /etc/fuse.conf \
             has the line `user_allow_other`: add it as root, or leave allow_other out"
                .into())
        }
        _ => Err(format!("{PROGRAM}: {said}")),
    }
}

/// Unmounts a mount of this user. Errors: EBUSY while programs use it.
pub(crate) fn unmount(point: &str, lazily: bool) -> io::Result<()> {
    let mut command = helper();
    command.arg("-u").args(lazily.then_some("-z")).args(["--", point]);
    let output = command.output().map_err(|error| io::Error::new(io::ErrorKind::PermissionDenied, not_run(&error)))?;
    let said = said(&output.stderr);
    match output.status.success() {
        true => Ok(()),
        false if said.contains("busy") => Err(io::Error::from_raw_os_error(libc::EBUSY)),
        false => Err(io::Error::new(io::ErrorKind::PermissionDenied, format!("{PROGRAM}: {said}"))),
    }
}

fn helper() -> Command {
    let mut command = Command::new(PROGRAM);
    command.env("LC_ALL", "C").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    command
}

fn not_run(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => {
            format!(
                "only root may do that without {PROGRAM}, which is not installed: install it (Debian: fuse3), or be root"
            )
        }
        _ => format!("cannot run {PROGRAM}: {error}"),
    }
}

fn said(stderr: &[u8]) -> String {
    let text = String::from_utf8_lossy(stderr);
    let lines = text.lines().map(|line| line.trim_start_matches(PROGRAM).trim_start_matches(": "));
    let said = lines.collect::<Vec<_>>().join("; ");
    if said.is_empty() { "it failed without a word".into() } else { said }
}

/// The options in the helper's syntax. In a source, commas and backslashes are escaped.
fn words(options: &FuseOptions) -> String {
    let source = options.source.replace('\\', "\\\\").replace(',', "\\,");
    let flag = |on: bool, word: &'static str| on.then_some(word);
    let flags = [
        Some(if options.read_only { "ro" } else { "rw" }),
        flag(!options.devices, "nodev"),
        flag(!options.set_ids, "nosuid"),
        flag(options.no_exec, "noexec"),
        flag(options.allow_other, "allow_other"),
    ];
    let flags: Vec<&str> = flags.into_iter().flatten().collect();
    format!("default_permissions,{},subtype=forebay,fsname={source}", flags.join(","))
}

/// Receives the descriptor that the helper sends; `None` if the helper ends without sending one.
fn receive(socket: &UnixStream) -> Option<OwnedFd> {
    let mut byte = [0_u8];
    let mut part = libc::iovec { iov_base: byte.as_mut_ptr().cast(), iov_len: byte.len() };
    // Space for one descriptor, aligned as a header is.
    let mut control = [MaybeUninit::<libc::cmsghdr>::zeroed(); 4];
    // SAFETY: zeros are a valid msghdr.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    (message.msg_iov, message.msg_iovlen) = (&raw mut part, 1);
    (message.msg_control, message.msg_controllen) = (control.as_mut_ptr().cast(), mem::size_of_val(&control) as _);
    let got = loop {
        // SAFETY: `message` names memory that outlives the call.
        match unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, libc::MSG_CMSG_CLOEXEC) } {
            -1 if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
            got => break got,
        }
    };
    if got <= 0 {
        return None;
    }
    // SAFETY: the kernel has filled `message`. The header and the descriptor behind it lie in `control`, and the
    // descriptor is ours from now on.
    unsafe {
        let header = libc::CMSG_FIRSTHDR(&raw const message).as_ref()?;
        let is_descriptor = header.cmsg_level == libc::SOL_SOCKET && header.cmsg_type == libc::SCM_RIGHTS;
        let descriptor = libc::CMSG_DATA(header).cast::<libc::c_int>().read_unaligned();
        is_descriptor.then(|| OwnedFd::from_raw_fd(descriptor))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_with_commas_is_one_option() {
        let options = FuseOptions { read_only: true, allow_other: false, ..FuseOptions::new("unix:/a,unix:/b\\c") };
        assert_eq!(
            words(&options),
            "default_permissions,ro,nodev,nosuid,subtype=forebay,fsname=unix:/a\\,unix:/b\\\\c"
        );
    }

    #[test]
    fn the_error_of_the_mount_helper_is_one_line_without_the_name_of_the_program() {
        assert_eq!(said(b"fusermount3: a\nfusermount3: b: c\n"), "a; b: c");
        assert_eq!(said(b""), "it failed without a word");
    }
}
