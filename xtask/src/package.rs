//! `xtask package`: a Debian package of the program, its manual, and units for systemd.
//!
//! Decision 51 says why dpkg-deb makes it. What is not generated lies in `package/`.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
    process::Command,
};

use clap::Args;

use crate::figures::{
    Outcome,
    forebay::{self, Forebay, root},
    process::output,
};

/// Make a Debian package; the last line is its path
#[derive(Args)]
pub struct Plan {
    /// Where to put it [default: package in the target directory]
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Package this program instead of building one
    #[arg(long)]
    program: Option<PathBuf>,
}

pub fn run(plan: &Plan) -> Outcome {
    let program = plan.program.as_deref().map(Forebay::at).map_or_else(forebay::build, Ok)?;
    let dir = plan.dir.clone().unwrap_or_else(|| root().join("target/package"));
    let tree = Tree { root: dir.join("tree") };
    // What an interrupted run has left would become part of the package.
    if tree.root.exists() {
        fs::remove_dir_all(&tree.root).map_err(|error| format!("{}: {error}", tree.root.display()))?;
    }
    let package = fill(&tree, &program).and_then(|control| {
        tree.write("DEBIAN/control", control.text.as_bytes(), 0o644)?;
        let package = dir.join(format!("forebay_{}_{}.deb", control.version, control.architecture));
        output(Command::new("dpkg-deb").args(["--build", "--root-owner-group", "-z2"]).arg(&tree.root).arg(&package))?;
        Ok(package)
    });
    let _ = fs::remove_dir_all(&tree.root);
    println!("{}", package?.display());
    Ok(())
}

/// The file `control` of a package.
struct Control {
    version: &'static str,
    architecture: String,
    text: String,
}

/// Puts everything where it is on an installed machine.
fn fill(tree: &Tree, program: &Forebay) -> Outcome<Control> {
    let page = |name: &str| read(&root().join(name));
    let binary = read(program.path())?;
    tree.write("usr/bin/forebay", &binary, 0o755)?;
    tree.link("usr/sbin/mount.forebay", "../bin/forebay")?;
    for unit in ["forebay-server@.service", "forebay-mount@.service", "forebay-servers.target"] {
        tree.write(&format!("usr/lib/systemd/system/{unit}"), &page(&format!("package/{unit}"))?, 0o644)?;
    }
    tree.make("etc/forebay/mounts")?;
    output(program.command(&["manual"]).arg(tree.root.join("usr/share")))?;
    tree.write("usr/share/man/man8/mount.forebay.8", b".so man1/forebay-mount.1\n", 0o644)?;
    for (name, from) in [
        ("README.md", "README.md"),
        ("changelog", "CHANGELOG.md"),
        ("LICENSE-MIT", "LICENSE-MIT"),
        ("LICENSE-APACHE", "LICENSE-APACHE"),
        ("copyright", "package/copyright"),
    ] {
        tree.write(&format!("usr/share/doc/forebay/{name}"), &page(from)?, 0o644)?;
    }
    tree.compress("usr/share/man/man1")?;
    tree.compress("usr/share/man/man8")?;
    for script in ["postinst", "prerm", "postrm"] {
        tree.write(&format!("DEBIAN/{script}"), &page(&format!("package/{script}"))?, 0o755)?;
    }
    let architecture = output(Command::new("dpkg").arg("--print-architecture"))?.trim().to_owned();
    let version = env!("CARGO_PKG_VERSION");
    let text = String::from_utf8_lossy(&page("package/control")?)
        .replace("VERSION", version)
        .replace("ARCHITECTURE", &architecture)
        .replace("KIBIBYTES", &tree.kibibytes()?.to_string())
        .replace("GLIBC", &glibc_of(&binary).ok_or("the program names no version of the C library")?);
    Ok(Control { version, architecture, text })
}

/// The least version of the C library with all symbols that `binary` links, as `2.34`.
fn glibc_of(binary: &[u8]) -> Option<String> {
    const MARK: &[u8] = b"GLIBC_2.";
    let minor = |at: usize| {
        let digits: Vec<u8> = binary[at + MARK.len()..].iter().copied().take_while(u8::is_ascii_digit).collect();
        String::from_utf8(digits).ok()?.parse::<u32>().ok()
    };
    let starts = binary.windows(MARK.len()).enumerate().filter(|(_, bytes)| *bytes == MARK).map(|(at, _)| at);
    starts.filter_map(minor).max().map(|minor| format!("2.{minor}"))
}

fn read(path: &Path) -> Outcome<Vec<u8>> {
    fs::read(path).map_err(|error| format!("{}: {error}", path.display()))
}

/// The directory that becomes the package.
struct Tree {
    root: PathBuf,
}

impl Tree {
    fn make(&self, dir: &str) -> Outcome {
        fs::create_dir_all(self.root.join(dir)).map_err(|error| format!("{dir}: {error}"))
    }

    fn write(&self, path: &str, bytes: &[u8], mode: u32) -> Outcome {
        let at = self.root.join(path);
        let written = || {
            fs::create_dir_all(at.parent().unwrap_or(&self.root))?;
            fs::write(&at, bytes)?;
            fs::set_permissions(&at, fs::Permissions::from_mode(mode))
        };
        written().map_err(|error| format!("{}: {error}", at.display()))
    }

    fn link(&self, path: &str, target: &str) -> Outcome {
        let at = self.root.join(path);
        self.make(Path::new(path).parent().and_then(Path::to_str).unwrap_or(""))?;
        symlink(target, &at).map_err(|error| format!("{}: {error}", at.display()))
    }

    /// Compresses the man pages in `dir`, without their names and times: equal pages give equal packages.
    fn compress(&self, dir: &str) -> Outcome {
        let pages = files(&self.root.join(dir))?;
        output(Command::new("gzip").args(["-9", "--no-name"]).args(pages)).map(drop)
    }

    fn kibibytes(&self) -> Outcome<u64> {
        let sizes = files(&self.root)?.into_iter().map(|file| Ok(file.symlink_metadata()?.len().div_ceil(1024)));
        sizes.sum::<std::io::Result<u64>>().map_err(|error| error.to_string())
    }
}

/// All files below `dir`.
fn files(dir: &Path) -> Outcome<Vec<PathBuf>> {
    let entries = fs::read_dir(dir).map_err(|error| format!("{}: {error}", dir.display()))?;
    let mut found = Vec::new();
    for entry in entries {
        let path = entry.map_err(|error| error.to_string())?.path();
        let is_dir = path.is_dir() && !path.is_symlink();
        if is_dir { found.extend(files(&path)?) } else { found.push(path) }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_needs_the_newest_c_library_that_it_names() {
        let binary = b"\0GLIBC_2.9\0GLIBC_2.34\0GLIBC_2.2.5\0GLIBC_PRIVATE\0";
        assert_eq!(glibc_of(binary).as_deref(), Some("2.34"));
        assert_eq!(glibc_of(b"static"), None);
    }
}
