//! How large the targets of a new cluster are.

use std::path::Path;

use forebay_command::{
    error::{CliError, CliResult},
    units::show_bytes,
};
use forebay_proto::{TargetId, Uuid};
use forebay_store::FormatOptions;

use crate::format;

/// Fewest data bytes of a target: slabs of 1 MiB for checkpoints and the cleaner, and as many for data.
const BYTES_MIN: u64 = 64 << 20;
/// Default sizes are multiples of this.
const BYTES_STEP: u64 = 64 << 20;
/// Least space that the targets leave free: for logs, and for other files there.
const LEFT_BYTES: u64 = 64 << 20;

/// Data bytes of the targets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Of the MDT.
    pub mdt: u64,
    /// Of each OST.
    pub ost: u64,
    osts: u32,
}

impl Sizes {
    /// The requested sizes, otherwise a share of the `free` bytes: all targets with their journals take at most half of
    /// them. Errors: there is not enough space.
    pub fn choose(ost_size: Option<u64>, mdt_size: Option<u64>, free: u64, osts: u32) -> CliResult<Self> {
        refuse_odd("--ost-size", ost_size)?;
        refuse_odd("--mdt-size", mdt_size)?;
        let half = free / 2;
        let mdt = mdt_size.unwrap_or(with_journal_within(half / 8, format::MDT_BYTES));
        let each = half.saturating_sub(mdt + journal_bytes(mdt)) / u64::from(osts);
        let ost = ost_size.unwrap_or(with_journal_within(each, format::OST_BYTES));
        let advice = match (ost_size, mdt_size) {
            (None, None) => "fewer --osts need less",
            _ => "give a smaller --ost-size or --mdt-size",
        };
        Self { mdt, ost, osts }.within(free, advice)
    }

    /// The same for a host that has OSTs only.
    pub fn of_osts(ost_size: Option<u64>, free: u64, osts: u32) -> CliResult<Self> {
        refuse_odd("--ost-size", ost_size)?;
        let ost = ost_size.unwrap_or(with_journal_within(free / 2 / u64::from(osts), format::OST_BYTES));
        let advice = if ost_size.is_some() { "give a smaller --ost-size" } else { "fewer --osts need less" };
        Self { mdt: 0, ost, osts }.within(free, advice)
    }

    fn within(self, free: u64, advice: &str) -> CliResult<Self> {
        let needed = self.all_bytes() + LEFT_BYTES;
        if needed <= free {
            return Ok(self);
        }
        let (needed, free) = (show_bytes(needed), show_bytes(free));
        Err(CliError::failed(format!("{free} are free there, and the targets need {needed}: {advice}")))
    }

    fn journals_bytes(&self) -> u64 {
        (if self.mdt == 0 { 0 } else { journal_bytes(self.mdt) }) + u64::from(self.osts) * journal_bytes(self.ost)
    }

    /// Bytes that formatting takes.
    fn all_bytes(&self) -> u64 {
        self.mdt + u64::from(self.osts) * self.ost + self.journals_bytes()
    }

    /// A text that says, before formatting, how many of the `free` bytes it takes.
    pub fn announcement(&self, dir: &Path, free: u64) -> String {
        let [all, of_free, mdt, ost, journals, left] =
            [self.all_bytes(), free, self.mdt, self.ost, self.journals_bytes(), free - self.all_bytes()]
                .map(show_bytes);
        let osts = if self.osts == 1 { "OST0000".into() } else { format!("each of {} OSTs", self.osts) };
        if self.mdt == 0 {
            return format!(
                "allocating {all} of the {of_free} free at {}: {ost} for {}, {journals} for journals; {left} stay free \
                 (--ost-size chooses)",
                dir.display(),
                if self.osts == 1 { "an OST" } else { "each OST" },
            );
        }
        format!(
            "allocating {all} of the {of_free} free at {}: {mdt} for {}, {ost} for {osts}, {journals} for journals; {left} stay free \
             (--mdt-size and --ost-size choose)",
            dir.display(),
            TargetId::mdt(0)
        )
    }
}

fn refuse_odd(flag: &str, asked: Option<u64>) -> CliResult {
    match asked.filter(|asked| *asked < BYTES_MIN || !asked.is_multiple_of(4096)) {
        None => Ok(()),
        Some(asked) => {
            let (asked, least) = (show_bytes(asked), show_bytes(BYTES_MIN));
            Err(CliError::usage(format!("{flag} {asked}: use {least} or more, a multiple of 4 KiB")))
        }
    }
}

/// The most data bytes that fit into `bytes` with their journal, in steps; never fewer than a target needs.
fn with_journal_within(bytes: u64, most: u64) -> u64 {
    let mut data = (bytes / BYTES_STEP * BYTES_STEP).clamp(BYTES_MIN, most);
    while data > BYTES_MIN && data + journal_bytes(data) > bytes {
        data -= BYTES_STEP;
    }
    data
}

fn journal_bytes(data_bytes: u64) -> u64 {
    FormatOptions::new(Uuid::default(), TargetId::ost(0), data_bytes).journal_bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::up::{OSTS, UpArgs};

    fn chosen(free: u64, flags: &[&str]) -> CliResult<Sizes> {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            up: UpArgs,
        }
        let line = ["up", "/x"].iter().chain(flags);
        let args = <Line as clap::Parser>::try_parse_from(line).expect("flags").up;
        Sizes::choose(args.ost_size, args.mdt_size, free, args.osts.unwrap_or(OSTS))
    }

    #[test]
    fn targets_take_half_of_what_is_free_and_less_where_there_is_less() {
        for gib in [2, 3, 5, 10, 40, 81, 200] {
            let free = gib << 30;
            let sizes = chosen(free, &[]).expect("room");
            assert!(sizes.all_bytes() <= free / 2, "{gib} GiB: {sizes:?}");
            assert!(sizes.ost >= free / 20 || sizes.ost == format::OST_BYTES, "{gib} GiB: {sizes:?}");
        }
        // Targets take the least they need even from little free space, but never all of it.
        let least = chosen(600 << 20, &[]).expect("room for the least");
        assert_eq!((least.mdt, least.ost, least.all_bytes()), (BYTES_MIN, BYTES_MIN, 400 << 20));
        assert!(chosen(463 << 20, &[]).expect_err("none").message.contains("fewer --osts"));
        let asked = chosen(10 << 30, &["--osts", "1", "--ost-size", "9GiB"]).expect("asked for, and there");
        assert_eq!((asked.ost, asked.mdt), (9 << 30, 576 << 20));
        assert!(
            chosen(10 << 30, &["--ost-size", "9GiB"]).expect_err("4 of them").message.contains("smaller --ost-size")
        );
    }

    #[test]
    fn up_announces_the_space_that_it_takes_and_the_space_that_stays_free() {
        let said = chosen(40 << 30, &["--osts", "2"]).expect("room").announcement(Path::new("/x"), 40 << 30);
        for words in ["of the 40 GiB free at /x", "for MDT0000", "each of 2 OSTs", "stay free", "--ost-size"] {
            assert!(said.contains(words), "{words}: {said}");
        }
    }
}
