//! Programs on a mount: killed while a server is unreachable, and the demo.

use std::{
    fs,
    io::{Read, Write},
    os::unix::process::CommandExt,
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use crate::common::{
    Scratch, forebay,
    mounts::{Mounts, can_mount, run},
};

/// Programs that read, write, create and stat: a killed one ends, and the file system stays intact.
#[test]
fn killed_program_ends_while_server_is_unreachable() {
    let Some(mounts) = Mounts::new("killed") else { return };
    let file = mounts.first.join("file");
    fs::write(&file, vec![7; 3 << 20]).expect("written");
    // A stat that the mount can serve itself does not wait. So the other mount makes this file, in a directory that
    // both use.
    fs::write(mounts.second.join("unseen"), "x").expect("written");
    // Each program reports that it runs, and waits for a line. Starting a program in the mount needs servers too, and a
    // shell catches SIGINT.
    let script = |words: &&str| {
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("echo >&2; read line; {words} 2>/dev/null")]).current_dir(&mounts.first);
        shell.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        // The starter of this test may have made it ignore SIGINT.
        // SAFETY: signal(2) may be called between fork and exec.
        unsafe {
            shell.pre_exec(|| {
                libc::signal(libc::SIGINT, libc::SIG_DFL);
                Ok(())
            });
        }
        let mut shell = shell.spawn().expect("it starts");
        shell.stderr.as_mut().expect("a pipe").read_exact(&mut [0]).expect("it runs");
        shell
    };
    let works = [
        "echo more > other",
        "exec cat file",
        "exec dd if=/dev/zero of=file bs=1M count=2 conv=notrunc",
        "exec stat unseen",
        "exec mkdir dir",
        "exec ls -l",
        "exec ln file linked",
    ];
    let mut waiting: Vec<_> = works.iter().map(script).collect();
    mounts.kill_servers();
    for program in &mut waiting {
        writeln!(program.stdin.take().expect("a pipe")).expect("heard");
    }
    std::thread::sleep(Duration::from_millis(700));
    for (number, program) in waiting.iter_mut().enumerate() {
        assert!(program.try_wait().expect("asked").is_none(), "{} waits for the server", works[number]);
        // Every other program gets SIGINT, as by Ctrl-C, and does not catch it.
        let signal = if number % 2 == 0 { libc::SIGKILL } else { libc::SIGINT };
        // SAFETY: no memory is involved; the child is ours and not waited for yet.
        unsafe { libc::kill(program.id() as i32, signal) };
    }
    let deadline = Instant::now() + Duration::from_secs(30);
    for (number, program) in waiting.iter_mut().enumerate() {
        while program.try_wait().expect("asked").is_none() {
            assert!(Instant::now() < deadline, "{} hangs", works[number]);
            std::thread::sleep(Duration::from_millis(10));
        }
    }
    // Unmounting needs no server.
    let mut umount = forebay().args(["umount", "--force"]).arg(&mounts.second).spawn().expect("it starts");
    let deadline = Instant::now() + Duration::from_secs(60);
    let ended = loop {
        if let Some(ended) = umount.try_wait().expect("asked") {
            break ended;
        }
        assert!(Instant::now() < deadline, "umount hangs");
        std::thread::sleep(Duration::from_millis(10));
    };
    assert!(ended.success());
    mounts.bring_back();
    run(forebay().arg("mount").arg(mounts.cluster()).arg(&mounts.second));
    assert_eq!(fs::metadata(&file).expect("it is there").len(), 3 << 20);
    assert!(fs::read(mounts.second.join("file")).expect("read").iter().all(|byte| matches!(byte, 0 | 7)));
    fs::remove_file(&file).expect("removed");
    fs::create_dir(mounts.second.join("dir2")).expect("made");
}

/// Long enough that servers die in the middle of it: a server is restarted while copiers wait for it.
#[test]
fn the_demo_runs_through_a_mount_and_cleans_up() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new("mounted-demo");
    let at = |name: &str| format!("{}/{name}", scratch.path());
    let (dir, tree) = (at("demo"), at("tree"));
    for number in 0..2400 {
        let sub = format!("{tree}/{:02}", number / 100);
        fs::create_dir_all(&sub).expect("made");
        fs::write(format!("{sub}/{number}"), vec![number as u8; 40 * number]).expect("written");
    }
    let flags = ["demo", &dir, "--quick", "--checkpoint-size", "192MiB", "--tree", &tree];
    let output = Command::new("timeout").args(["-k", "9", "120", env!("CARGO_BIN_EXE_forebay")]).args(flags).output();
    let output = output.expect("it runs");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("All verified") && said.contains("mounted at"), "{said}");
    let in_the_middle =
        |target: &str| (25..100).any(|percent| said.contains(&format!("{target}: SIGKILL when {percent} %")));
    assert!(in_the_middle("OST0001") && in_the_middle("MDT0000"), "{said}");
    assert!(!Path::new(&dir).exists());
}

/// Three hosts, two joins, a client with a token: written on one host, |every process| read on another.
#[test]
fn the_demo_runs_over_hosts_and_leaves_none_of_them_behind() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new("hosts-demo");
    let (dir, tree) = (format!("{}/demo", scratch.path()), format!("{}/src", env!("CARGO_MANIFEST_DIR")));
    let flags = ["demo", &dir, "--hosts", "3", "--quick", "--checkpoint-size", "8MiB", "--tree", &tree];
    let demo = forebay().args(flags).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let prefix = format!("fb{}-", demo.id());
    let output = demo.wait_with_output().expect("it ends");
    let (said, complained) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    // As for other tests over hosts: this machine can have none.
    if ["only root can make", "hosts need ip(8)", "no network namespaces"].iter().any(|why| complained.contains(why)) {
        return eprintln!("skipped: {complained}");
    }
    assert!(output.status.success(), "{said}\n{complained}");
    assert!(said.contains("All verified") && said.contains("3 OSTs on 3 hosts"), "{said}");
    assert!(said.contains("OST0001: SIGKILL") && said.contains("MDT0000: SIGKILL"), "{said}");
    assert!(said.contains("every process on every host was killed"), "{said}");
    assert!(!Path::new(&dir).exists());
    let mut left = fs::read_dir("/run/netns").into_iter().flatten().flatten().map(|entry| entry.file_name());
    assert!(!left.any(|name| name.to_string_lossy().starts_with(&prefix)), "hosts are left");
}
