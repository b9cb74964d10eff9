//! Hosts on one machine: network namespaces on a switch. Needs root, `ip` and /dev/fuse.

use std::{
    fs::File,
    io::{ErrorKind, Read},
    os::fd::{FromRawFd, OwnedFd},
    process::{Command, Output},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use super::{
    forebay,
    mounts::{can_mount, soon},
    words,
};

#[path = "../../src/demo/hosts.rs"]
mod namespaces;

/// Bytes of a file that must not be seen on the wire.
pub const SECRET: &[u8; 32] = b"a result that nobody may see yet";

/// Hosts with two networks between them; host 0 has the addresses 10.77.0.1 and 10.77.1.1.
#[derive(Clone)]
pub struct Hosts(Arc<namespaces::Hosts>);

impl Hosts {
    /// `None`: this machine cannot make hosts.
    pub fn new(name: &str, count: usize) -> Option<Self> {
        if !can_mount() {
            return None;
        }
        if let Some(why) = namespaces::why_none() {
            eprintln!("skipped: {why}");
            return None;
        }
        let prefix = format!("fb{}-{name}", std::process::id());
        let hosts =
            namespaces::Hosts::make(&prefix, namespaces::Wiring { rails: 2, ..namespaces::Wiring::plain(count) })
                .expect("hosts");
        Some(Self(Arc::new(hosts)))
    }

    /// Cuts a host off from the second network: nobody is told.
    pub fn cut_second(&self, host: usize) {
        self.0.unplug(host + 1, 1).expect("it was connected");
    }

    pub fn heal_second(&self, host: usize) {
        self.0.plug(host + 1, 1).expect("it was not connected");
    }

    /// Our program on a host.
    pub fn command(&self, host: usize) -> Command {
        let mut command = forebay();
        self.0.enter(host + 1, &mut command).expect("the host is there");
        command
    }

    pub fn forebay(&self, host: usize, arguments: &[&str]) -> Output {
        self.command(host).args(arguments).output().expect("it runs")
    }

    /// Returns what it printed.
    pub fn succeeds(&self, host: usize, arguments: &[&str]) -> String {
        let output = self.forebay(host, arguments);
        assert!(output.status.success(), "{arguments:?}: {}", words(&output));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    pub fn fails(&self, host: usize, arguments: &[&str], said: &str) {
        let output = self.forebay(host, arguments);
        assert!(!output.status.success() && words(&output).contains(said), "{arguments:?}: {}", words(&output));
    }

    /// Runs `work` on a thread that is on a host.
    pub fn on<T: Send + 'static>(&self, host: usize, work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
        let hosts = self.clone();
        thread::spawn(move || hosts.0.on(host + 1, work).expect("the host is there"))
    }
}

/// Listens to all packets of a host.
pub struct Wire {
    stop: Arc<AtomicBool>,
    pub bytes: Arc<AtomicU64>,
    pub seen: Arc<AtomicBool>,
    listening: Option<JoinHandle<()>>,
}

impl Wire {
    pub fn tap(hosts: &Hosts, host: usize) -> Self {
        let (stop, bytes, seen) = <(Arc<AtomicBool>, Arc<AtomicU64>, Arc<AtomicBool>)>::default();
        let (ready, (stop2, bytes2, seen2)) =
            (Arc::new(AtomicBool::new(false)), (stop.clone(), bytes.clone(), seen.clone()));
        let is_ready = ready.clone();
        let listening = hosts.on(host, move || {
            let all = i32::from((libc::ETH_P_ALL as u16).to_be());
            // SAFETY: it only makes a descriptor.
            let socket = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_NONBLOCK, all) };
            assert!(socket >= 0, "{}", std::io::Error::last_os_error());
            // SAFETY: it is new and nobody else's.
            let mut socket = File::from(unsafe { OwnedFd::from_raw_fd(socket) });
            ready.store(true, Ordering::SeqCst);
            let mut packet = vec![0; 256 << 10];
            while !stop2.load(Ordering::SeqCst) {
                match socket.read(&mut packet) {
                    Ok(length) => {
                        bytes2.fetch_add(length as u64, Ordering::SeqCst);
                        if packet[..length].windows(SECRET.len()).any(|bytes| bytes == SECRET) {
                            seen2.store(true, Ordering::SeqCst);
                        }
                    }
                    Err(error) if error.kind() == ErrorKind::WouldBlock => thread::sleep(Duration::from_millis(1)),
                    Err(_) => {}
                }
            }
        });
        assert!(soon(|| is_ready.load(Ordering::SeqCst)), "it listens");
        Self { stop, bytes, seen, listening: Some(listening) }
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        let _ = self.listening.take().map(JoinHandle::join);
    }
}
