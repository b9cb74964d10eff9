//! Hosts on one machine: network namespaces on a switch. Needs root, `ip` and /dev/fuse.

use std::{
    fs::File,
    io::{ErrorKind, Read},
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
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

/// Bytes of a file that must not be seen on the wire.
pub const SECRET: &[u8; 32] = b"a result that nobody may see yet";

/// Hosts with a switch between them; host 0 has the address 10.77.0.1.
pub struct Hosts {
    names: Vec<String>,
    switch: String,
}

impl Hosts {
    /// `None`: this machine cannot make hosts.
    pub fn new(name: &str, count: usize) -> Option<Self> {
        if !can_mount() {
            return None;
        }
        let called = |end: &str| format!("fb{}{name}{end}", std::process::id());
        let hosts = Self { names: (0..count).map(|number| called(&number.to_string())).collect(), switch: called("s") };
        if !ip(&format!("netns add {}", hosts.switch)) {
            eprintln!("skipped: network namespaces need root and ip(8)");
            return None;
        }
        let switch = &hosts.switch;
        assert!(ip(&format!("-n {switch} link add br0 type bridge")) && ip(&format!("-n {switch} link set br0 up")));
        for (number, host) in hosts.names.iter().enumerate() {
            assert!(ip(&format!("netns add {host}")));
            assert!(ip(&format!("link add e0 netns {host} type veth peer name p{number} netns {switch}")));
            assert!(ip(&format!("-n {switch} link set p{number} master br0")));
            assert!(ip(&format!("-n {switch} link set p{number} up")));
            assert!(ip(&format!("-n {host} address add 10.77.0.{}/24 dev e0", number + 1)));
            assert!(ip(&format!("-n {host} link set e0 up")) && ip(&format!("-n {host} link set lo up")));
        }
        Some(hosts)
    }

    /// Connects the hosts by a second network, 10.78.0.0/24: interface e1, a switch of its own.
    pub fn connect_twice(&self) {
        let switch = &self.switch;
        assert!(ip(&format!("-n {switch} link add br1 type bridge")) && ip(&format!("-n {switch} link set br1 up")));
        for (number, host) in self.names.iter().enumerate() {
            assert!(ip(&format!("link add e1 netns {host} type veth peer name q{number} netns {switch}")));
            assert!(ip(&format!("-n {switch} link set q{number} master br1")));
            assert!(ip(&format!("-n {switch} link set q{number} up")));
            assert!(ip(&format!("-n {host} address add 10.78.0.{}/24 dev e1", number + 1)));
            assert!(ip(&format!("-n {host} link set e1 up")));
        }
    }

    /// Cuts a host off from its second network, at the switch: nobody there is told.
    pub fn cut_second(&self, host: usize) {
        assert!(ip(&format!("-n {} link set q{host} nomaster", self.switch)));
    }

    pub fn heal_second(&self, host: usize) {
        assert!(ip(&format!("-n {} link set q{host} master br1", self.switch)));
    }

    /// The file of a host's network.
    fn network(&self, host: usize) -> String {
        format!("/run/netns/{}", self.names[host])
    }

    /// Our program on a host.
    pub fn command(&self, host: usize) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net={}", self.network(host))).arg(forebay().get_program());
        command
    }

    pub fn forebay(&self, host: usize, arguments: &[&str]) -> Output {
        self.command(host).args(arguments).output().expect("nsenter is part of util-linux")
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
        let network = File::open(self.network(host)).expect("a namespace");
        thread::spawn(move || {
            // SAFETY: an open descriptor; it changes this thread alone.
            assert_eq!(unsafe { libc::setns(network.as_raw_fd(), libc::CLONE_NEWNET) }, 0);
            work()
        })
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for name in self.names.iter().chain([&self.switch]) {
            let _ = Command::new("ip").args(["netns", "delete", name]).output();
        }
    }
}

fn ip(words: &str) -> bool {
    Command::new("ip").args(words.split(' ')).output().is_ok_and(|said| said.status.success())
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
