//! A tree of small files with the commands that people use: unpack, list, search, remove. Beside our FUSE layer with an
//! empty back end, and local ext4.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Instant,
};

use super::{
    Outcome, Plan,
    cluster::Cluster,
    ext4::Ext4,
    floor::Floor,
    forebay::Forebay,
    process::output,
    summary::{Values, commands, table},
};

/// The commands, by name, in this order; `{}` is the tree. The floor has no bytes to read, so it runs only these two.
const WORK: [(&str, &[&str]); 2] =
    [("tar x", &["tar", "xf", "{archive}", "-C", "{}"]), ("rm -rf", &["rm", "-rf", "{}"])];
/// The commands that read the tree: once with empty caches, and once more.
const LOOKS: [(&str, &[&str]); 4] = [
    ("ls -lR", &["ls", "-lR", "{}"]),
    ("find", &["find", "{}"]),
    ("du", &["du", "-s", "{}"]),
    ("git status", &["git", "-C", "{}", "status"]),
];

/// Seconds of one command on each file system.
#[derive(Clone, Default)]
struct Seconds {
    floor: Values,
    ext4: Values,
    ours: Values,
}

/// Runs all rounds, and returns a table.
pub fn measure(forebay: &Forebay, plan: &Plan) -> Outcome<String> {
    let archive = archive(plan)?;
    let ext4 = Ext4::make(plan)?;
    let floor = Floor::mount(forebay, plan)?;
    let mut cluster = Cluster::make(forebay, plan)?;
    let mut work = vec![Seconds::default(); WORK.len()];
    let mut looks = vec![[Seconds::default(), Seconds::default()]; LOOKS.len()];
    for _ in 0..plan.rounds() {
        for mnt in [&floor.mnt, &cluster.mnt, &ext4.mnt] {
            let tree = new_tree(mnt)?;
            for ((name, words), seconds) in WORK.iter().zip(&mut work) {
                let took = timed(name, words, &tree, &archive)?;
                let of = [
                    (&floor.mnt, &mut seconds.floor),
                    (&cluster.mnt, &mut seconds.ours),
                    (&ext4.mnt, &mut seconds.ext4),
                ];
                of.into_iter().filter(|(of, _)| *of == mnt).for_each(|(_, values)| values.0.push(took));
            }
        }
    }
    let trees = [new_tree(&cluster.mnt)?, new_tree(&ext4.mnt)?];
    for tree in &trees {
        timed("unpack", WORK[0].1, tree, &archive)?;
        // Keep git's object files out of the tree that the commands read.
        let git = tree.with_file_name(".git-of-tree");
        let init = format!("git init -q --separate-git-dir {} . && git add -A", git.display());
        output(Command::new("sh").args(["-c", &init]).current_dir(tree))?;
    }
    for _ in 0..plan.rounds() {
        for ((name, words), seconds) in LOOKS.iter().zip(&mut looks) {
            cluster.restart()?;
            forget()?;
            for seconds in seconds.iter_mut() {
                seconds.ours.0.push(timed(name, words, &trees[0], &archive)?);
            }
            forget()?;
            for seconds in seconds.iter_mut() {
                seconds.ext4.0.push(timed(name, words, &trees[1], &archive)?);
            }
        }
    }
    let shown = |name: &str, seconds: &Seconds| {
        let of_floor = match seconds.floor.0.is_empty() {
            true => [String::new(), String::new()],
            false => [seconds.floor.show(2), seconds.floor.percent_of(&seconds.ours).show(0)],
        };
        let times = Values(seconds.ours.percent_of(&seconds.ext4).0.iter().map(|percent| percent / 100.0).collect());
        let [floor, rate] = of_floor;
        vec![name.to_owned(), floor, seconds.ext4.show(2), seconds.ours.show(2), rate, times.show(1)]
    };
    let mut rows: Vec<Vec<String>> = WORK.iter().zip(&work).map(|((name, _), seconds)| shown(name, seconds)).collect();
    for ((name, _), [cold, warm]) in LOOKS.iter().zip(&looks) {
        rows.push(shown(&format!("{name}, cold"), cold));
        rows.push(shown(&format!("{name}, warm"), warm));
    }
    let heads = ["seconds", "fuse-floor", "ext4", "Forebay", "rate, % of fuse-floor", "Forebay, times of ext4"];
    let files = output(Command::new("sh").args(["-c", &format!("tar tf {} | wc -l", archive.display())]))?;
    let typed = [
        "tar cf DOC.tar -C $(rustc --print sysroot)/share doc".to_owned(),
        "time tar xf DOC.tar -C MNT; time ls -lR MNT; time find MNT; time du -s MNT; time git -C MNT status; time rm -rf MNT/doc".to_owned(),
    ];
    std::fs::remove_file(&archive).map_err(|error| format!("{}: {error}", archive.display()))?;
    Ok(format!("{} names.\n\n{}\n{}", files.trim(), table(&heads, &rows), commands(&typed)))
}

/// The toolchain's documentation as an archive in memory.
fn archive(plan: &Plan) -> Outcome<PathBuf> {
    let sysroot = output(Command::new("rustc").args(["--print", "sysroot"]))?;
    let archive = Path::new("/dev/shm").join(format!("forebay-figures-{}.tar", std::process::id()));
    let part = plan.size("doc", "doc/rust/html/std", "doc/rust/html/std/collections");
    let mut tar = Command::new("tar");
    tar.arg("cf").arg(&archive).arg("-C").arg(Path::new(sysroot.trim()).join("share")).arg(part);
    output(&mut tar).map_err(|error| format!("{error}; rustup component add rust-docs brings it"))?;
    Ok(archive)
}

fn new_tree(mnt: &Path) -> Outcome<PathBuf> {
    let tree = mnt.join("tree");
    std::fs::create_dir(&tree).map_err(|error| format!("cannot make {}: {error}", tree.display()))?;
    Ok(tree)
}

/// Writes everything back and drops all caches.
fn forget() -> Outcome {
    output(&mut Command::new("sync"))?;
    std::fs::write("/proc/sys/vm/drop_caches", "3").map_err(|error| format!("cannot drop caches: {error}"))
}

fn timed(name: &str, words: &[&str], tree: &Path, archive: &Path) -> Outcome<f64> {
    eprintln!("   {name}, {}", tree.display());
    let (tree, archive) = (tree.to_string_lossy(), archive.to_string_lossy());
    let words: Vec<String> =
        words.iter().map(|word| word.replace("{archive}", &archive).replace("{}", &tree)).collect();
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).stdout(Stdio::null());
    let begun = Instant::now();
    let ended = command.status().map_err(|error| format!("{command:?}: {error}"))?;
    let took = begun.elapsed().as_secs_f64();
    if ended.success() { Ok(took) } else { Err(format!("{command:?}: {ended}")) }
}
