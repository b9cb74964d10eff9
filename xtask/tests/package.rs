//! The Debian package: what its units start works without anything else of this tree, and tells systemd so.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)] // plays the admin, and systemd

use std::{
    fs,
    os::unix::{fs::PermissionsExt, net::UnixDatagram},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Output, Stdio},
    time::Duration,
};

/// A unit may take this long until it is ready.
const START: Duration = Duration::from_secs(60);

/// An unpacked package in a directory of its own.
struct Installed {
    dir: PathBuf,
}

impl Installed {
    /// Makes the package of the program beside this test, and unpacks it.
    fn new() -> Self {
        let dir = std::env::temp_dir().join(format!("forebay-package-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        let xtask = Path::new(env!("CARGO_BIN_EXE_xtask"));
        let mut made = Command::new(xtask);
        made.arg("package").arg("--dir").arg(dir.join("made"));
        // The test command builds the program too. If only this test is run, xtask builds it now.
        let forebay = xtask.with_file_name("forebay");
        if forebay.exists() {
            made.arg("--program").arg(forebay);
        }
        let said = succeed(&mut made);
        let package = said.lines().next_back().expect("the path of the package").to_owned();
        succeed(Command::new("dpkg-deb").arg("--extract").arg(&package).arg(dir.join("root")));
        succeed(Command::new("dpkg-deb").arg("--control").arg(&package).arg(dir.join("control")));
        Self { dir }
    }

    fn path(&self, path: &str) -> PathBuf {
        self.dir.join("root").join(path)
    }

    fn read(&self, path: &str) -> String {
        fs::read_to_string(self.path(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    /// The words of a unit's line, as systemd expands them.
    fn words(&self, unit: &str, key: &str, instance: &Path, settings: &[(&str, &str)]) -> Option<Vec<String>> {
        let text = self.read(&format!("usr/lib/systemd/system/{unit}"));
        let line = text.lines().find_map(|line| line.strip_prefix(key))?;
        let expand = |word: &str| {
            let word = word.replace("%f", instance.to_str().expect("UTF-8"));
            settings.iter().fold(word, |word, (name, value)| word.replace(&format!("${{{name}}}"), value))
        };
        let words: Vec<String> = line.split(' ').map(expand).collect();
        assert!(!words.iter().any(|word| word.contains(['%', '$'])), "{unit} says all that it needs: {words:?}");
        Some(words)
    }

    /// Starts what a unit starts, as systemd does: its ExecStart with the instance's directory, the settings as variables.
    fn start(&self, unit: &str, instance: &Path, settings: &[(&str, &str)]) -> Service {
        if self.words(unit, "ExecStartPre=-", instance, settings).is_some_and(|words| !succeeds(&words)) {
            // The unit says that this does not matter.
            eprintln!("{unit}: its ExecStartPre failed");
        }
        let words = self.words(unit, "ExecStart=", instance, settings).expect("it starts something");
        let address = self.dir.join(format!("{unit}.notify"));
        let _ = fs::remove_file(&address);
        let socket = UnixDatagram::bind(&address).expect("a socket");
        socket.set_read_timeout(Some(START)).expect("a timeout");
        let program = self.path(words[0].strip_prefix('/').expect("an absolute path"));
        let child =
            Command::new(program).args(&words[1..]).env("NOTIFY_SOCKET", &address).stdout(Stdio::null()).spawn();
        Service { child: child.expect("it starts"), socket }
    }
}

impl Drop for Installed {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // A test that failed leaves nothing behind; after the others it has ended.
        let _ = self.child.kill().and_then(|()| self.child.wait());
    }
}

/// A process that says how it stands, as systemd hears it.
struct Service {
    child: Child,
    socket: UnixDatagram,
}

impl Service {
    /// Waits for a message with `line`.
    fn hear(&self, line: &str) -> String {
        let mut message = [0; 4096];
        let length = self.socket.recv(&mut message).unwrap_or_else(|error| panic!("nobody said {line}: {error}"));
        let said = String::from_utf8_lossy(&message[..length]).into_owned();
        assert!(said.lines().any(|said| said == line), "{said}");
        said
    }

    fn ready(self) -> Self {
        self.hear("READY=1");
        self
    }

    fn ended(&mut self) -> ExitStatus {
        self.child.wait().expect("it ends")
    }

    /// As `systemctl stop` does.
    fn stop(mut self) {
        succeed(Command::new("kill").arg(self.child.id().to_string()));
        self.hear("STOPPING=1");
        let status = self.ended();
        assert!(status.success(), "{status}");
    }
}

fn succeeds(words: &[String]) -> bool {
    Command::new(&words[0]).args(&words[1..]).status().is_ok_and(|status| status.success())
}

fn succeed(command: &mut Command) -> String {
    let Output { status, stdout, stderr } = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let said = [&stdout[..], &stderr[..]].map(String::from_utf8_lossy).concat();
    assert!(status.success(), "{command:?}: {said}");
    String::from_utf8_lossy(&stdout).into_owned()
}

/// deb: server unit |up --foreground| READY, mount unit |mount --foreground| READY, files, both stopped and started
#[test]
fn the_package_is_whole_and_what_its_units_start_serves_and_mounts_and_tells_systemd() {
    // SAFETY: asks for a number.
    let can_mount = unsafe { libc::geteuid() } == 0 && Path::new("/dev/fuse").exists();
    let installed = Installed::new();
    check_files(&installed);
    if !can_mount {
        return eprintln!("nothing can be mounted here (not root, or no /dev/fuse): the units are skipped");
    }
    let forebay = installed.path("usr/bin/forebay");
    let (cluster, mnt) = (installed.dir.join("c"), installed.dir.join("m"));
    succeed(
        Command::new(&forebay)
            .args(["up", "--osts", "2", "--ost-size", "128MiB", "--mdt-size", "128MiB", "--no-mount"])
            .arg(&cluster),
    );
    succeed(Command::new(&forebay).arg("down").arg(&cluster));

    let servers = installed.start("forebay-server@.service", &cluster, &[]);
    let said = servers.hear("READY=1");
    assert!(said.contains("STATUS=serving MDT0000"), "{said}");
    let settings = [("CLUSTER", cluster.to_str().expect("UTF-8")), ("OPTIONS", "noatime")];
    let mount = installed.start("forebay-mount@.service", &mnt, &settings);
    mount.hear("READY=1");
    fs::write(mnt.join("file"), "packed").expect("written");
    let status = succeed(Command::new(&forebay).arg("status").arg(&cluster));
    assert!(status.contains("serving"), "{status}");
    mount.stop();
    servers.stop();

    // After a reboot the units start again.
    let mut servers = installed.start("forebay-server@.service", &cluster, &[]).ready();
    let mount = installed.start("forebay-mount@.service", &mnt, &settings).ready();
    assert_eq!(fs::read_to_string(mnt.join("file")).expect("read"), "packed");
    // A mount that was killed comes back.
    drop(mount);
    let mount = installed.start("forebay-mount@.service", &mnt, &settings).ready();
    assert_eq!(fs::read_to_string(mnt.join("file")).expect("read"), "packed");
    mount.stop();
    // `down` stops servers that a unit has started, too: systemd sees a clean end.
    succeed(Command::new(&forebay).arg("down").arg(&cluster));
    assert!(servers.ended().success());
}

/// Manual, completions, links, scripts that a shell can read; systemd finds no fault in the units.
fn check_files(installed: &Installed) {
    for file in [
        "usr/share/man/man1/forebay.1.gz",
        "usr/share/man/man1/forebay-up.1.gz",
        "usr/share/man/man1/forebay-pool-new.1.gz",
        "usr/share/man/man8/mount.forebay.8.gz",
        "usr/share/bash-completion/completions/forebay.bash",
        "usr/share/zsh/vendor-completions/_forebay",
        "usr/share/fish/vendor_completions.d/forebay.fish",
        "usr/share/doc/forebay/copyright",
        "etc/forebay/mounts",
    ] {
        assert!(installed.path(file).exists(), "{file}");
    }
    let mode = |path: &str| fs::metadata(installed.path(path)).expect("there").permissions().mode() & 0o7777;
    assert_eq!((mode("usr/bin/forebay"), mode("usr/share/doc/forebay/copyright")), (0o755, 0o644));
    let helper = succeed(Command::new(installed.path("usr/sbin/mount.forebay")).args(["a:1", "/none", "-f"]));
    assert_eq!(helper, "", "mount -f shows only");
    let completions = installed.read("usr/share/bash-completion/completions/forebay.bash");
    assert!(completions.contains("setstripe") && !completions.contains("command-tree"), "no hidden commands");
    let control = fs::read_to_string(installed.dir.join("control/control")).expect("read");
    assert!(!["VERSION", "ARCHITECTURE", "KIBIBYTES", "GLIBC"].iter().any(|word| control.contains(word)), "{control}");
    for script in ["postinst", "prerm", "postrm"] {
        succeed(Command::new("sh").arg("-n").arg(installed.dir.join("control").join(script)));
    }
    // Where systemd's own check is installed it is asked, with the program at the place that the units name.
    if Command::new("systemd-analyze").arg("--version").output().is_ok_and(|output| output.status.success()) {
        for unit in ["forebay-server@.service", "forebay-mount@.service", "forebay-servers.target"] {
            let text = installed.read(&format!("usr/lib/systemd/system/{unit}"));
            let place = installed.dir.join(unit.replace('@', "@x"));
            let program = installed.path("usr/bin/forebay");
            fs::write(&place, text.replace("/usr/bin/forebay", program.to_str().expect("UTF-8"))).expect("written");
            let output =
                Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&place).output().expect("it runs");
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            let ours: Vec<&str> = said.lines().filter(|line| line.contains("forebay")).collect();
            assert!(ours.is_empty(), "{unit}: {ours:#?}");
        }
    }
}
