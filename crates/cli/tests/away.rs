//! Programs on a mount whose servers are unreachable, and mounts and servers that end under load. Needs root and
//! /dev/fuse; without them the tests say so and skip.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)] // plays the user

mod common;

use std::{
    collections::BTreeSet,
    ffi::CString,
    fs::{self, File, OpenOptions},
    io::Error,
    os::{
        fd::{AsRawFd, FromRawFd},
        unix::{
            ffi::OsStrExt,
            fs::{FileExt, OpenOptionsExt},
            process::CommandExt,
        },
    },
    path::Path,
    process::{Child, Command, Stdio},
    sync::{
        Mutex,
        mpsc::{self, Receiver},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use common::{
    forebay,
    mounts::{Mounts, process_of, run, signal, soon},
};

extern "C" fn nothing(_: i32) {}

/// Catches the signal with a handler that does nothing, so that it interrupts waiting system calls.
fn catch(signal: i32) {
    // SAFETY: a handler that does nothing; all zeros are no flags and no mask.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = nothing as extern "C" fn(i32) as usize;
        assert_eq!(libc::sigaction(signal, &raw const action, std::ptr::null_mut()), 0);
    }
}

/// A thread in one system call.
struct Caller {
    what: &'static str,
    thread: JoinHandle<()>,
    pthread: libc::pthread_t,
    answer: Receiver<Result<(), i32>>,
}

impl Caller {
    fn start(what: &'static str, call: impl FnOnce() -> std::io::Result<()> + Send + 'static) -> Self {
        let ((tell, told), (say, answer)) = (mpsc::channel(), mpsc::channel());
        let thread = thread::spawn(move || {
            // SAFETY: calls without arguments that only tell.
            tell.send(unsafe { (libc::pthread_self() as usize, libc::gettid()) }).expect("heard");
            say.send(call().map_err(|error| error.raw_os_error().unwrap_or(0))).expect("heard");
        });
        let (pthread, tid) = told.recv().expect("it runs");
        let pthread = pthread as libc::pthread_t;
        // A signal before the call would not interrupt it. The kernel tells in which of its functions a thread waits.
        let waits_in = || fs::read_to_string(format!("/proc/self/task/{tid}/wchan")).unwrap_or_default();
        assert!(soon(|| !matches!(&waits_in()[..], "" | "0")), "{what} does not wait");
        Self { what, thread, pthread, answer }
    }

    fn signal(&self, signal: i32) {
        // SAFETY: the thread runs until it is joined.
        assert_eq!(unsafe { libc::pthread_kill(self.pthread, signal) }, 0);
    }

    fn answer(&self, timeout: Duration) -> Option<Result<(), i32>> {
        self.answer.recv_timeout(timeout).ok()
    }
}

fn checked(returned: i32) -> std::io::Result<()> {
    if returned < 0 { Err(Error::last_os_error()) } else { Ok(()) }
}

fn fsync(file: &File) -> std::io::Result<()> {
    // Not std's, which goes on after a signal. SAFETY: a descriptor that is open.
    checked(unsafe { libc::fsync(file.as_raw_fd()) })
}

fn pread(file: &File) -> std::io::Result<()> {
    let mut bytes = [0u8; 4096];
    // SAFETY: a descriptor that is open, and a buffer that outlives the call.
    checked(unsafe { libc::pread(file.as_raw_fd(), bytes.as_mut_ptr().cast(), 4096, 0) } as i32)
}

fn open(path: &Path, flags: i32) -> std::io::Result<()> {
    let path = CString::new(path.as_os_str().as_bytes()).expect("no zero byte");
    // SAFETY: a string that outlives the call. The descriptor ends with the test.
    checked(unsafe { libc::open(path.as_ptr(), flags, 0o600) })
}

#[test]
fn termination_signal_interrupts_read_only_requests_only() {
    let Some(mounts) = Mounts::new("interrupts") else { return };
    [libc::SIGTERM, libc::SIGHUP, libc::SIGUSR1].into_iter().for_each(catch);
    let at = |name: &str| mounts.first.join(name);
    fs::write(at("f"), vec![7; 1 << 20]).expect("written");
    let file =
        |name| OpenOptions::new().read(true).write(true).create(true).truncate(false).open(at(name)).expect("open");
    // The kernel makes an fsync wait for a write of the same file, and does not report that. So they use different
    // files.
    let (read, synced) = (file("f"), file("g"));
    // Others would be buffered by the mount, and wait for nobody.
    let written = OpenOptions::new().write(true).custom_flags(libc::O_DSYNC).open(at("f")).expect("open");
    mounts.kill_servers();
    let path = at;
    let looks = vec![
        Caller::start("stat", {
            let p = path("f");
            move || fs::metadata(p).map(drop)
        }),
        Caller::start("open", {
            let p = path("f");
            move || open(&p, libc::O_RDONLY)
        }),
        Caller::start("open or make", {
            let p = path("new");
            move || open(&p, libc::O_RDWR | libc::O_CREAT)
        }),
        Caller::start("list", {
            let p = path(".");
            move || fs::read_dir(p)?.next().expect("an entry").map(drop)
        }),
        Caller::start("read", move || pread(&read)),
        Caller::start("fsync", move || fsync(&synced)),
    ];
    // A smaller write would be delayed, and have its reply already.
    let write = Caller::start("write", move || written.write_all_at(&vec![b'8'; 512 << 10], 0));
    // Signals of timers, children and the like interrupt no call.
    thread::sleep(Duration::from_millis(1300));
    looks.iter().for_each(|caller| caller.signal(libc::SIGUSR1));
    thread::sleep(Duration::from_millis(300));
    for caller in &looks {
        assert_eq!(caller.answer(Duration::ZERO), None, "{}", caller.what);
    }
    for (number, caller) in looks.iter().chain([&write]).enumerate() {
        caller.signal([libc::SIGTERM, libc::SIGHUP][number % 2]);
    }
    for caller in &looks {
        // The call has failed with EINTR by now.
        let answer = caller.answer(Duration::from_secs(30));
        assert!(matches!(answer, Some(Err(libc::EINTR))), "{}: {answer:?}", caller.what);
    }
    assert_eq!(write.answer(Duration::from_millis(300)), None, "a write is half done");

    // `status` shows what programs wait for.
    let told = |json: &[&str]| forebay().arg("status").args(json).arg(mounts.cluster()).output().expect("it runs");
    // std repeats the write after a signal. The repeated write is shown once it has waited for a while.
    assert!(soon(|| String::from_utf8_lossy(&told(&[]).stdout).contains("request waits")));
    let said = String::from_utf8_lossy(&told(&[]).stdout).into_owned();
    let wait = format!("mount {}: 1 request waits", mounts.first.display());
    assert!(said.contains(&wait) && said.contains("MDT0000, which does not answer"), "{said}");
    let report: serde_json::Value = serde_json::from_slice(&told(&["--json"]).stdout).expect("JSON");
    assert_eq!(report["waiting_mounts"][0]["requests"], 1, "{report}");

    mounts.bring_back();
    assert_eq!(write.answer(Duration::from_secs(20)), Some(Ok(())));
    write.thread.join().expect("it ended");
    let read = fs::read(mounts.second.join("f")).expect("read");
    assert!(read[..512 << 10].iter().all(|byte| *byte == b'8') && read[512 << 10..] == [7; 512 << 10]);
    assert!(soon(|| !String::from_utf8_lossy(&told(&[]).stdout).contains("request waits")));
}

/// Programs that write, create, stat and remove as fast as they can, until an error.
struct Hammer(Vec<Child>);

impl Hammer {
    fn on(dir: &Path) -> Self {
        let works = [
            "dd if=/dev/zero of=big-$$ bs=1M count=16 conv=notrunc 2>/dev/null",
            "echo x > small-$$ && rm small-$$",
            "mkdir dir-$$ && rmdir dir-$$",
            "{ ls -l; cat big-*; :; } > /dev/null",
        ];
        let start = |words: &str| {
            let mut shell = Command::new("sh");
            shell.args(["-c", &format!("while :; do {words} || exit 1; done")]).current_dir(dir);
            shell.process_group(0).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            shell.spawn().expect("it starts")
        };
        let hammer = Self(works.iter().chain(&works[..3]).map(|words| start(words)).collect());
        thread::sleep(Duration::from_millis(1500));
        hammer
    }

    /// Kills all of them, and the processes that they started.
    fn kill(&mut self) {
        let begun = Instant::now();
        for child in &mut self.0 {
            let group = child.id() as i32;
            // SAFETY: no memory is involved; the group is ours, and its leader was not waited for before.
            unsafe { libc::kill(-group, libc::SIGKILL) };
            while is_alive(group) {
                assert!(begun.elapsed() < Duration::from_secs(60), "a program that was killed hangs");
                thread::sleep(Duration::from_millis(5));
            }
        }
    }
}

/// Whether any process of the group is still alive. Zombies do not count: if their shell died first, nothing may ever
/// reap them.
fn is_alive(group: i32) -> bool {
    let all = fs::read_dir("/proc")
        .expect("it lists")
        .filter_map(|entry| fs::read_to_string(entry.ok()?.path().join("stat")).ok());
    let mut states = all.filter_map(|stat| {
        let mut fields = stat.rsplit_once(") ")?.1.split(' ');
        Some((fields.next()?.to_owned(), fields.nth(1)?.parse::<i32>().ok()?))
    });
    states.any(|(state, of)| of == group && state != "Z" && state != "X")
}

impl Drop for Hammer {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // SAFETY: as above.
            unsafe { libc::kill(-(child.id() as i32), libc::SIGKILL) };
            let _ = child.try_wait();
        }
    }
}

/// Runs the command, and expects success: `umount --force` alone waits 4 s for servers that are away.
fn in_time(what: &str, command: &mut Command) {
    let begun = Instant::now();
    let mut child = command.stdout(Stdio::null()).spawn().expect("it starts");
    loop {
        match child.try_wait().expect("asked") {
            Some(status) => return assert!(status.success(), "{what}: {status}"),
            None if begun.elapsed() > Duration::from_secs(20) => {
                let _ = child.kill();
                panic!("{what} takes longer than 20 s");
            }
            None => thread::sleep(Duration::from_millis(5)),
        }
    }
}

fn is_mounted(mnt: &Path) -> bool {
    let table = fs::read_to_string("/proc/self/mountinfo").expect("the kernel's table");
    table.lines().any(|line| line.split(' ').nth(4) == mnt.to_str())
}

#[test]
fn mounts_and_servers_end_in_time_while_programs_hammer_them() {
    let Some(mounts) = Mounts::new("hammered") else { return };
    let mut hammers = [Hammer::on(&mounts.first), Hammer::on(&mounts.second)];
    let refused = forebay().arg("umount").arg(&mounts.first).output().expect("it runs");
    assert!(!refused.status.success() && common::words(&refused).contains("--lazy"), "{}", common::words(&refused));
    // The written data has to become durable first.
    hammers[1].kill();
    in_time("umount after load", forebay().arg("umount").arg(&mounts.second));
    in_time("umount --force under load", forebay().args(["umount", "--force"]).arg(&mounts.first));
    assert!(!is_mounted(&mounts.first) && !is_mounted(&mounts.second));
    hammers[0].kill();
    run(forebay().arg("mount").arg(mounts.cluster()).arg(&mounts.first));

    hammers[0] = Hammer::on(&mounts.first);
    let status = common::json(forebay().args(["status", &mounts.cluster(), "--json"]));
    let pid = status["targets"][0]["pid"].as_u64().expect("a pid").to_string();
    in_time(
        "a server's stop under load",
        Command::new("sh").args(["-c", &format!("kill {pid} && while kill -0 {pid} 2>/dev/null; do sleep 0.02; done")]),
    );
    mounts.bring_back();
    thread::sleep(Duration::from_millis(500));
    assert!(hammers[0].0.iter_mut().all(|child| child.try_wait().expect("asked").is_none()), "programs go on");
    in_time("down --force under load", forebay().args(["down", "--force", &mounts.cluster()]));
    hammers[0].kill();
}

#[test]
fn health_answers_in_time_while_servers_hang_and_names_what_does_not_work() {
    let Some(mounts) = Mounts::new("ill") else { return };
    let (dir, mnt) = (mounts.cluster(), mounts.first.to_string_lossy().into_owned());
    let health = || {
        let begun = Instant::now();
        let said = forebay().args(["health", "--timeout", "2s", &dir, &mnt]).output().expect("it runs");
        assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
        (said.status.success(), String::from_utf8_lossy(&said.stdout).into_owned())
    };
    let (well, said) = health();
    assert!(well && said.contains(&format!("{mnt}: works")) && said.contains("MDT0000: works"), "{said}");
    let status = common::json(forebay().args(["status", &dir, "--json"]));
    let pid = status["targets"][0]["pid"].as_i64().expect("a pid") as i32;
    // SAFETY: a server of this test; no memory is touched.
    assert_eq!(unsafe { libc::kill(pid, libc::SIGSTOP) }, 0);
    let (well, said) = health();
    // SAFETY: as above.
    assert_eq!(unsafe { libc::kill(pid, libc::SIGCONT) }, 0);
    assert!(!well && said.contains("MDT0000: no answer") && said.contains(&format!("{mnt}: no answer")), "{said}");
    assert!(soon(|| health().0), "it works again");
    mounts.kill_servers();
    let (well, said) = health();
    assert!(!well && said.contains("its server does not run"), "{said}");
}

#[test]
fn a_mount_whose_servers_are_away_is_taken_away_by_umount_and_by_us() {
    let Some(mounts) = Mounts::new("forced") else { return };
    let mut hammers = [Hammer::on(&mounts.first), Hammer::on(&mounts.second)];
    mounts.kill_servers();
    thread::sleep(Duration::from_millis(500));
    in_time("forebay umount --force", forebay().args(["umount", "--force"]).arg(&mounts.first));
    // `umount -f` makes programs end: the first call may still find them.
    let begun = Instant::now();
    while is_mounted(&mounts.second) {
        assert!(begun.elapsed() < Duration::from_secs(60), "umount -f leaves it mounted");
        let _ = Command::new("timeout").args(["5", "umount", "-f"]).arg(&mounts.second).output().expect("it runs");
        thread::sleep(Duration::from_millis(50));
    }
    hammers.iter_mut().for_each(Hammer::kill);
    assert!(!is_mounted(&mounts.first));
}

/// The errors of a program's calls on the mount at `mnt` while `end` unmounts it, and afterwards.
fn failures(mnt: &Path, end: impl FnOnce()) -> BTreeSet<i32> {
    let dir = mnt.join("d");
    fs::create_dir_all(&dir).expect("made");
    let file =
        OpenOptions::new().read(true).write(true).create(true).truncate(true).open(dir.join("f")).expect("opened");
    let dir = File::open(&dir).expect("opened");
    let open = || {
        // SAFETY: an open directory, a string that outlives the call; what it opens is this thread's to close.
        let opened = unsafe { libc::openat(dir.as_raw_fd(), c"f".as_ptr(), libc::O_RDONLY) };
        match opened {
            0.. => {
                drop(unsafe { std::os::fd::OwnedFd::from_raw_fd(opened) });
                Ok(())
            }
            _ => Err(std::io::Error::last_os_error()),
        }
    };
    let calls: [&(dyn Fn() -> std::io::Result<()> + Sync); 5] = [
        &|| file.write_all_at(&[7; 100], 0),
        &|| file.read_at(&mut [0; 100], 0).map(drop),
        &|| file.metadata().map(drop),
        &|| file.sync_data(),
        &open,
    ];
    let errnos = Mutex::new(BTreeSet::new());
    thread::scope(|scope| {
        for call in calls {
            scope.spawn(|| {
                // Continues until after the mount's process has ended.
                for _ in 0..200 {
                    let error = loop {
                        if let Err(error) = call() {
                            break error;
                        }
                    };
                    errnos.lock().expect("whole").insert(error.raw_os_error().expect("an errno"));
                    thread::sleep(Duration::from_millis(5));
                }
            });
        }
        thread::sleep(Duration::from_millis(100));
        end();
    });
    errnos.into_inner().expect("whole")
}

/// `umount -f`, `forebay umount --force`, the end of the mount's process | calls in flight, and those that follow
#[test]
fn programs_on_an_unmounted_mount_get_enotconn() {
    let Some(mounts) = Mounts::new("gone") else { return };
    let at = mounts.second.clone();
    let ways: [(&str, &dyn Fn()); 3] = [
        // It prints "target is busy", and unmounts nevertheless.
        ("umount -f", &|| drop(Command::new("umount").arg("-f").arg(&at).output().expect("it runs"))),
        ("forebay umount --force", &|| run(forebay().args(["umount", "--force"]).arg(&at))),
        ("SIGTERM", &|| signal("-TERM", &process_of(&at))),
    ];
    for (way, end) in ways {
        let mut errnos = failures(&at, end);
        // The error of calls in flight when the kernel aborts the mount.
        errnos.remove(&libc::ECONNABORTED);
        assert_eq!(errnos, BTreeSet::from([libc::ENOTCONN]), "{way}");
        let _ = forebay().args(["umount", "--force"]).arg(&at).output();
        run(forebay().arg("mount").arg(mounts.cluster()).arg(&at));
    }
}

/// a program that makes names |SIGKILL|, its directory emptied and removed | no name appears later
#[test]
fn a_program_that_was_killed_makes_no_more_names() {
    let Some(mounts) = Mounts::new("killed") else { return };
    let round = |thread: usize, number: u64| {
        let dir = mounts.first.join(format!("{thread}-{number}"));
        fs::create_dir(&dir).expect("a directory");
        let script = "i=0; while :; do i=$((i+1)); : > f$i; done";
        let mut program = Command::new("sh").args(["-c", script]).current_dir(&dir).spawn().expect("it starts");
        std::thread::sleep(Duration::from_millis(3 + number % 7));
        program.kill().and_then(|()| program.wait()).expect("it ends");
        for entry in fs::read_dir(&dir).expect("listed").flatten() {
            fs::remove_file(entry.path()).expect("removed");
        }
        fs::remove_dir(&dir).unwrap_or_else(|error| panic!("round {number}: {error}"));
    };
    std::thread::scope(|scope| {
        (0..4).for_each(|thread| drop(scope.spawn(move || (0..60).for_each(|number| round(thread, number)))));
    });
}
