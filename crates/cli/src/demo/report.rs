//! The page a person reads at the end of the demo.

use forebay_command::{
    table::align,
    units::{show_bytes, show_count, show_seconds},
};

use super::{checkpoint::Pace, faults::KillPhase, tree::Tree};

/// The rate of a copy of the tree.
#[derive(Clone, Copy, Debug)]
pub struct CopyPace {
    /// Files, directories and links.
    pub entries_per_s: f64,
}

/// The same work on Forebay and on the disk below it.
#[derive(Clone, Copy, Debug)]
pub struct Paces {
    /// Copy of the tree.
    pub copy: CopyPace,
    /// A checkpoint, with fsync.
    pub write: Pace,
    /// Reading it back, checking every byte.
    pub read: Pace,
}

/// All results of the demo.
#[derive(Debug)]
pub struct Report {
    /// One sentence about the cluster.
    pub headline: String,
    /// The tree and its source.
    pub tree: Tree,
    /// One sentence about the checkpoint.
    pub checkpoint: String,
    /// On the mount.
    pub forebay: Paces,
    /// On the disk below.
    pub local: Paces,
    /// The kills and their effects.
    pub fire: KillPhase,
    /// Bytes of files on each OST.
    pub spread: Vec<(String, Vec<u64>)>,
    /// Bytes in use on each OST.
    pub stored: Vec<u64>,
    /// What happened before the comparison.
    pub interruption: &'static str,
    /// Files and bytes compared at the end.
    pub verified: Verified,
    /// Duration of the whole demo.
    pub seconds: f64,
}

/// What was compared after everything was stopped and started again.
#[derive(Clone, Copy, Debug)]
pub struct Verified {
    /// Files, directories, links.
    pub entries: u64,
    /// Bytes of files and checkpoints.
    pub bytes: u64,
    /// How long it took.
    pub seconds: f64,
}

impl Report {
    /// As text.
    pub fn text(&self) -> String {
        let sections = [self.paces(), self.kills(), self.places(), self.verdict()];
        let mut lines = vec![self.headline.clone()];
        for section in sections {
            lines.push(String::new());
            lines.extend(section);
        }
        lines.join("\n") + "\n"
    }

    fn paces(&self) -> Vec<String> {
        let copy = |p: &Paces| format!("{} files/s", show_count(p.copy.entries_per_s as u64));
        let write = |p: &Paces| format!("{:.0} MiB/s", p.write.mib_per_s);
        let read = |p: &Paces| format!("{:.0} MiB/s", p.read.mib_per_s);
        let tree = format!("copy in {} files, {}", show_count(self.tree.file_count()), show_bytes(self.tree.bytes()));
        let row = |what: &str, of: &dyn Fn(&Paces) -> String| vec![what.to_owned(), of(&self.forebay), of(&self.local)];
        let heads = ["How fast", "Forebay", "this disk alone"].map(str::to_owned).to_vec();
        let rows = [
            heads,
            row(&format!("  {tree}"), &copy),
            row(&format!("  write {}", self.checkpoint), &write),
            row("  read it back, every byte checked", &read),
        ];
        align(&rows)
    }

    fn kills(&self) -> Vec<String> {
        let mut lines = vec!["What was killed while programs were writing".to_owned()];
        lines.extend(self.fire.kills.iter().map(|kill| {
            let replayed = kill.replayed.map_or(String::new(), |n| format!(", {} requests replayed", show_count(n)));
            format!(
                "  {}: SIGKILL when {} % of a second checkpoint was written; served again {} later{replayed}",
                kill.target,
                kill.at_percent,
                show_seconds(kill.away_s),
            )
        }));
        let stall = self.fire.pace.longest_call_s.max(self.fire.longest_file_s);
        let files = show_count(self.fire.copied.entries.len() as u64);
        lines.push(format!(
            "  Meanwhile {files} files and directories were copied in and the checkpoint was written at {:.0} MiB/s.",
            self.fire.pace.mib_per_s
        ));
        lines.push(format!(
            "  Errors that reached a program: none. The longest a program had to wait: {}.",
            show_seconds(stall)
        ));
        lines
    }

    fn places(&self) -> Vec<String> {
        let osts = self.spread.first().map_or(0, |(_, bytes)| bytes.len());
        let name = |ost: usize| forebay_proto::TargetId::ost(ost as u32).to_string();
        let mut rows =
            vec![["Where the files lie".to_owned()].into_iter().chain((0..osts).map(name)).collect::<Vec<_>>()];
        let cell = |bytes: &u64| if *bytes == 0 { "-".to_owned() } else { show_bytes(*bytes) };
        rows.extend(
            self.spread.iter().map(|(name, bytes)| {
                [format!("  {name}")].into_iter().chain(bytes.iter().map(cell)).collect::<Vec<_>>()
            }),
        );
        rows.push(["  everything".to_owned()].into_iter().chain(self.stored.iter().map(cell)).collect());
        align(&rows)
    }

    fn verdict(&self) -> Vec<String> {
        let Verified { entries, bytes, seconds } = self.verified;
        vec![
            format!("After {}", self.interruption),
            format!(
                "  {} files, directories and links compared with their originals, {} in all, in {}:",
                show_count(entries),
                show_bytes(bytes),
                show_seconds(seconds),
            ),
            "  every name, mode, size, time, link and byte is right; fsck found nothing wrong on any target."
                .to_owned(),
            String::new(),
            format!("All verified, in {}.", show_seconds(self.seconds)),
        ]
    }
}

#[cfg(test)]
mod tests {
    use forebay_proto::TargetId;

    use super::*;
    use crate::demo::faults::Kill;

    #[test]
    fn the_report_tells_rates_kills_places_and_the_verdict() {
        let pace = |mib_per_s| Pace { mib_per_s, longest_call_s: 0.25 };
        let paces = |scale: f64| Paces {
            copy: CopyPace { entries_per_s: 1000.0 * scale },
            write: pace(400.0 * scale),
            read: pace(600.0 * scale),
        };
        let tree = Tree { root: "/doc".into(), entries: Vec::new(), bounds: Tree::ALL };
        let kill = Kill { target: TargetId::ost(1), at_percent: 26, away_s: 0.8, replayed: Some(1214) };
        let fire = KillPhase { kills: vec![kill], pace: pace(90.0), copied: tree.clone(), longest_file_s: 1.9 };
        let report = Report {
            headline: "Forebay demo".into(),
            tree,
            checkpoint: "4 x 512 MiB, fsync".into(),
            forebay: paces(1.0),
            local: paces(2.0),
            fire,
            spread: vec![("checkpoint-1.00000000".into(), vec![1 << 20, 0])],
            stored: vec![2 << 20, 4096],
            interruption: "a crash",
            verified: Verified { entries: 52_000, bytes: 3 << 30, seconds: 20.0 },
            seconds: 61.0,
        };
        let text = report.text();
        for words in [
            "400 MiB/s",
            "2,000 files/s",
            "OST0001: SIGKILL when 26 %",
            "1,214 requests replayed",
            "had to wait: 1.9 s",
            "1 MiB        -",
            "After a crash\n",
            "52,000 files",
            "All verified, in 61.0 s.",
        ] {
            assert!(text.contains(words), "'{words}' in:\n{text}");
        }
    }
}
