//! Real programs, before and after every server was killed and restarted.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use super::{Plan, cluster::Cluster, packages};
use crate::figures::{Outcome, forebay::root, process::output};

/// Files of the toolchain's documentation that --quick copies.
const QUICK_TREE: &str = "std/collections";

/// A program to run.
struct Program {
    name: &'static str,
    /// The Debian package that contains it.
    package: &'static str,
    /// Shell commands that succeed if it is installed.
    there: &'static str,
    run: fn(&Cluster<'_>, &Plan) -> Outcome<String>,
}

const fn program(
    name: &'static str,
    package: &'static str,
    there: &'static str,
    run: fn(&Cluster<'_>, &Plan) -> Outcome<String>,
) -> Program {
    Program { name, package, there, run }
}

const PROGRAMS: [Program; 9] = [
    program("tree", "rsync", "command -v rsync", trees),
    program("git", "git", "command -v git", git),
    program("sqlite", "sqlite3", "command -v sqlite3", sqlite),
    program("make", "build-essential", "command -v make && command -v cc", c_project),
    program("postgresql", "postgresql", "ls -d /usr/lib/postgresql/*/bin && id -u postgres", packages::postgres),
    program("h5py", "python3-h5py", "/usr/bin/python3 -c 'import h5py'", packages::hdf5),
    program("fio", "fio", "command -v fio", packages::fio),
    program("dbench", "dbench", "command -v dbench", packages::dbench),
    program("stress-ng", "stress-ng", "command -v stress-ng", packages::stress),
];

impl Program {
    fn is_there(&self) -> bool {
        sh(Path::new("/"), self.there).is_ok()
    }
}

/// Checks before hours of work that every program and its input is installed. With --quick a missing one is skipped.
pub fn all_there(plan: &Plan) -> Outcome {
    if plan.quick {
        return Ok(());
    }
    let missing: Vec<_> =
        PROGRAMS.iter().filter(|program| !program.is_there()).map(|program| program.package).collect();
    if !missing.is_empty() {
        return Err(format!("the suite programs needs what is not installed: apt-get install {}", missing.join(" ")));
    }
    if !documentation()?.exists() {
        return Err("the suite programs needs the toolchain's documentation: rustup component add rust-docs".into());
    }
    if !root().join(".git").exists() {
        return Err("the suite programs clones the project: it has to be a clone itself".into());
    }
    Ok(())
}

/// Runs all of them.
pub fn run(cluster: &Cluster<'_>, plan: &Plan) -> Outcome<String> {
    let (mut done, mut missing) = (Vec::new(), Vec::new());
    for program in PROGRAMS {
        eprintln!("   {}", program.name);
        if program.is_there() {
            done.push((program.run)(cluster, plan).map_err(|error| format!("{}: {error}", program.name))?);
        } else {
            missing.push(program.package);
        }
    }
    if !missing.is_empty() {
        done.push(format!("NOT RUN, as they are not installed (apt-get install {})", missing.join(" ")));
    }
    Ok(done.join("; "))
}

/// Runs shell commands in `dir`; the first failure ends them.
pub fn sh(dir: &Path, words: &str) -> Outcome<String> {
    output(Command::new("sh").args(["-euc", words]).current_dir(dir))
}

/// The toolchain's documentation, if it is installed.
fn documentation() -> Outcome<PathBuf> {
    let sysroot = output(Command::new("rustc").args(["--print", "sysroot"]))?;
    Ok(Path::new(sysroot.trim()).join("share/doc/rust/html"))
}

/// Copies a tree with cp, tar and rsync: it is the same as the original, before and after the servers were killed.
fn trees(cluster: &Cluster<'_>, plan: &Plan) -> Outcome<String> {
    let docs = documentation()?;
    let docs = if plan.quick { docs.join(QUICK_TREE) } else { docs };
    if !docs.exists() {
        eprintln!("   the toolchain has no documentation (rustup component add rust-docs): our own source instead");
    }
    let tree = if docs.exists() { docs } else { root().join("crates") };
    let (from, to) = (tree.display(), &cluster.first);
    let copies = ["cp", "tar", "rsync"];
    sh(to, &format!("cp -a {from} cp"))?;
    sh(to, &format!("tar -C {from} -cf tree.tar . && mkdir tar && tar -C tar -xpf tree.tar"))?;
    sh(to, &format!("rsync -a {from}/ rsync/"))?;
    let compare = |mnt: &Path| {
        copies.iter().try_for_each(|copy| {
            sh(mnt, &format!("diff -r --no-dereference {from} {copy}"))?;
            let list = "find . -mindepth 1 -printf '%P %y %m %U %G %T@ %l\\n' | sort";
            let (theirs, ours) = (sh(&tree, list)?, sh(&mnt.join(copy), list)?);
            let differs = theirs.lines().zip(ours.lines()).find(|(a, b)| a != b);
            match differs {
                Some((a, b)) => Err(format!("{copy}: {a} became {b}")),
                None if theirs.len() != ours.len() => Err(format!("{copy}: names are missing")),
                None => Ok(()),
            }
        })
    };
    compare(&cluster.first)?;
    cluster.kill_servers()?;
    compare(&cluster.first)?;
    compare(&cluster.second)?;
    let files = sh(&tree, "find . | wc -l")?;
    sh(to, "rm -rf cp tar tree.tar rsync")?;
    Ok(format!("{} of {} names", copies.join(", "), files.trim()))
}

/// Clones, collects garbage and verifies, and once more after the servers were killed.
fn git(cluster: &Cluster<'_>, _plan: &Plan) -> Outcome<String> {
    if !root().join(".git").exists() {
        return Ok("git NOT RUN, as the project is not a clone".into());
    }
    let from = root();
    let words =
        format!("git -c safe.directory='*' clone -q --no-local {} clone && cd clone && git status -s", from.display());
    sh(&cluster.first, &words)?;
    let clone = cluster.first.join("clone");
    sh(&clone, "git gc -q --aggressive --prune=now && git fsck --full --strict")?;
    let head = sh(&clone, "git rev-parse HEAD")?;
    cluster.kill_servers()?;
    let check =
        "git fsck --full --strict && git checkout -q --detach && git diff --exit-code HEAD && git rev-parse HEAD";
    for mnt in [&cluster.second, &cluster.first] {
        let after = sh(&mnt.join("clone"), check)?;
        if !after.ends_with(&head) {
            return Err(format!("the head was {head}, it is {after}"));
        }
    }
    sh(&cluster.first, "rm -rf clone")?;
    Ok("git clone, gc, fsck".into())
}

/// Two processes write to one database, with a rollback journal and with a write-ahead log.
fn sqlite(cluster: &Cluster<'_>, plan: &Plan) -> Outcome<String> {
    let rounds = if plan.quick { 50 } else { 300 };
    for (mode, other) in [("delete", &cluster.second), ("wal", &cluster.first)] {
        let db = format!("{mode}.db");
        let make = format!("sqlite3 {db} 'pragma journal_mode={mode}; create table t(who, n integer);' > /dev/null");
        sh(&cluster.first, &make)?;
        // A write-ahead log needs shared memory on one machine, so both processes use one mount.
        let writer = |who: &str| {
            format!(
                "for n in $(seq {rounds}); do sqlite3 -cmd '.timeout 60000' {db} \
                 \"begin immediate; insert into t values('{who}', (select count(*) from t)); commit;\"; done"
            )
        };
        let mut second = Command::new("sh");
        second.args(["-euc", &writer("b")]).current_dir(other);
        let mut second = second.spawn().map_err(|error| format!("sh: {error}"))?;
        let first = sh(&cluster.first, &writer("a"));
        let status = second.wait().map_err(|error| format!("sh: {error}"))?;
        first?;
        if !status.success() {
            return Err(format!("{mode}: the second writer: {status}"));
        }
        cluster.kill_servers()?;
        let ask = "select count(*), count(distinct n), max(n) from t; pragma integrity_check;";
        let found = sh(&cluster.first, &format!("sqlite3 {db} '{ask}'"))?;
        let expected = format!("{0}|{0}|{1}\nok\n", 2 * rounds, 2 * rounds - 1);
        if found != expected {
            return Err(format!("{mode}: {found:?}, not {expected:?}"));
        }
        sh(&cluster.first, &format!("rm -f {db} {db}-wal {db}-shm"))?;
    }
    Ok(format!("SQLite with two writers of {rounds} transactions"))
}

/// A small C project is configured and built twice (the second time there is nothing to do), and runs its tests.
fn c_project(cluster: &Cluster<'_>, _plan: &Plan) -> Outcome<String> {
    let dir = cluster.first.join("project");
    fs::create_dir_all(&dir).map_err(|error| format!("{}: {error}", dir.display()))?;
    let parts = 40;
    let write =
        |name: String, text: String| fs::write(dir.join(&name), text).map_err(|error| format!("{name}: {error}"));
    for part in 0..parts {
        write(
            format!("part{part}.c"),
            format!("#include \"config.h\"\nint part{part}(void) {{ return {part} * FACTOR; }}\n"),
        )?;
    }
    let names = |show: fn(u32) -> String| (0..parts).map(show).collect::<Vec<_>>().join(" ");
    let calls = (0..parts).map(|part| format!("int part{part}(void); sum += part{part}();\n")).collect::<String>();
    write("main.c".into(), format!("int main(void) {{ int sum = 0;\n{calls} return sum == 1560 ? 0 : 1; }}\n"))?;
    write("configure".into(), "#!/bin/sh\nset -e\necho 'int main(void){return 0;}' > t.c\ncc t.c -o t\n./t\nrm t t.c\necho '#define FACTOR 2' > config.h\n".into())?;
    let objects = names(|part| format!("part{part}.o"));
    let makefile = format!(
        "all: main\nmain: main.o libparts.a\n\tcc -o $@ main.o libparts.a\nlibparts.a: {objects}\n\tar rcs $@ $^\n%.o: %.c config.h\n\tcc -O1 -c -o $@ $<\n"
    );
    write("Makefile".into(), makefile)?;
    sh(&dir, "chmod +x configure && ./configure && make -s -j4 && ./main")?;
    let again = sh(&dir, "make")?;
    if !again.contains("Nothing to be done") {
        return Err(format!("a second make did something: {again}"));
    }
    cluster.kill_servers()?;
    sh(&cluster.second.join("project"), "./main && make -q")?;
    sh(&cluster.first, "rm -rf project")?;
    Ok("a C project configured and built".into())
}
