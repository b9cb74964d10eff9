//! What was seen of each file so far on one file system: which file it is, and which of its times have moved since.
//!
//! Times of two file systems are not comparable; whether a call moved one is. A time that a program set is compared
//! directly.

use std::collections::BTreeMap;

use super::answer::{Differ, Stat};

/// A time that differs from now by more than this was set by utimensat(2), in nanoseconds.
const GIVEN_FROM: i128 = 86_400 * 1_000_000_000;

/// If a time of the mount moves by at most this, while the local one stays, it "moved a little".
const A_LITTLE: i128 = 16;

/// See [`A_LITTLE`].
pub const MOVED_A_LITTLE: &str = "moved a little";

/// Everything seen on one file system.
pub struct Looks {
    begun: i128,
    seen: BTreeMap<(u64, i128), Look>,
}

struct Look {
    number: usize,
    times: [Option<i128>; 3],
}

/// An attribute as text; for a time, by how much it moved.
struct Word {
    what: &'static str,
    words: String,
    by: Option<i128>,
}

impl Looks {
    /// Nothing seen yet.
    pub fn new() -> Self {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("it is after 1970");
        Self { begun: since.as_nanos() as i128, seen: BTreeMap::new() }
    }

    /// Returns the attributes as text, and remembers them.
    fn see(&mut self, stat: &Stat) -> Vec<Word> {
        let fresh = self.seen.len();
        let look = self.seen.entry(stat.inode).or_insert(Look { number: fresh, times: [None; 3] });
        let asked = |flag| stat.mask & flag != 0;
        let number = look.number.to_string();
        let word = |what, words| Word { what, words, by: None };
        let mut words = vec![word("file", number), word("kind", format!("{:o}", stat.kind()))];
        if asked(libc::STATX_MODE) {
            words.push(word("mode", format!("{:o}", stat.mode)));
        }
        if asked(libc::STATX_NLINK) {
            words.push(word("nlink", stat.nlink.to_string()));
        }
        if asked(libc::STATX_UID) {
            words.push(word("uid", stat.uid.to_string()));
        }
        if asked(libc::STATX_GID) {
            words.push(word("gid", stat.gid.to_string()));
        }
        if asked(libc::STATX_SIZE) {
            words.push(word("size", stat.size.to_string()));
        }
        let times = [("atime", libc::STATX_ATIME), ("mtime", libc::STATX_MTIME), ("ctime", libc::STATX_CTIME)];
        for (which, (name, flag)) in times.into_iter().enumerate().filter(|(_, (_, flag))| asked(*flag)) {
            let _ = flag;
            let now = stat.times[which];
            let by = look.times[which].map(|before| now - before);
            words.push(Word { what: name, words: moved(self.begun, look.times[which], now), by });
            look.times[which] = Some(now);
        }
        words
    }
}

fn moved(begun: i128, before: Option<i128>, now: i128) -> String {
    match before {
        _ if (now - begun).abs() > GIVEN_FROM => format!("given {now}"),
        None => "first seen".into(),
        Some(before) if before == now => "stayed".into(),
        Some(before) if before < now => "moved".into(),
        Some(_) => "went back".into(),
    }
}

/// Compares the attributes of two file systems, each relative to what was seen there before.
pub fn compare(looks: &mut [Looks; 2], local: &Stat, mount: &Stat) -> Vec<Differ> {
    let [local, mount] = [looks[0].see(local), looks[1].see(mount)];
    let other = local.into_iter().zip(mount).filter(|(local, mount)| local.words != mount.words);
    let differ = |(local, mount): (Word, Word)| {
        let a_little = local.words == "stayed" && mount.by.is_some_and(|by| (1..=A_LITTLE).contains(&by));
        let shown = if a_little { MOVED_A_LITTLE.into() } else { mount.words };
        Differ { what: local.what, local: local.words, mount: shown }
    };
    other.map(differ).collect()
}
