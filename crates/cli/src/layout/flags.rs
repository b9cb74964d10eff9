//! The flags of a layout, in their order on the command line. Flags after an `-E` belong to that component.
//!
//! As in lfs, a component inherits stripe size, stripe count and pool from the previous one unless it sets them.

use std::path::Path;

use clap::{Arg, ArgAction, ArgMatches, Command, FromArgMatches};
use forebay_command::{
    error::{CliError, CliResult},
    units::{parse_size, show_bytes},
};
use forebay_proto::limits;
use serde_json::Value;

use super::{Choices, layout_of};

/// One flag with its value.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Flag {
    End(u64),
    Count(i64),
    Size(u64),
    Index(i64),
    Pool(String),
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct LayoutFlags(Vec<Flag>);

/// The values requested for the whole file, or for one component.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Part {
    end: Option<u64>,
    count: Option<i64>,
    size: Option<u64>,
    index: Option<i64>,
    pool: Option<String>,
}

const END: &str = "component-end";
const COUNT: &str = "stripe-count";
const SIZE: &str = "stripe-size";
const INDEX: &str = "stripe-index";
const OST: &str = "ost";
const POOL: &str = "pool";

/// `64M`; -1 and `eof` mean no end.
fn parse_end(text: &str) -> Result<u64, String> {
    if text == "-1" || text.eq_ignore_ascii_case("eof") { Ok(u64::MAX) } else { parse_size(text) }
}

fn parse_ost(text: &str) -> Result<i64, String> {
    text.parse()
        .ok()
        .filter(|index: &i64| *index >= 0)
        .ok_or_else(|| "one OST's number; several make a pool (`forebay pool new`), which -p names".to_owned())
}

impl clap::Args for LayoutFlags {
    fn augment_args(command: Command) -> Command {
        let arg = |id: &'static str, short, value, help| {
            Arg::new(id).long(id).short(short).value_name(value).help(help).action(ArgAction::Append)
        };
        command
            .arg(
                arg(
                    END,
                    'E',
                    "END",
                    "Composite layout: what follows is for the bytes up to END (64M; -1 or eof: all that follow)",
                )
                .allow_negative_numbers(true)
                .value_parser(parse_end),
            )
            .arg(
                arg(COUNT, 'c', "N", "Stripes: 0 = inherited, -1 = over all OSTs")
                    .alias("count")
                    .allow_negative_numbers(true)
                    .value_parser(clap::value_parser!(i64)),
            )
            .arg(
                arg(SIZE, 'S', "SIZE", "Bytes of a stripe, a multiple of 64KiB; 0 = inherited")
                    .alias("size")
                    .value_parser(parse_size),
            )
            .arg(
                arg(INDEX, 'i', "OST", "OST of the first stripe; -1 = the server chooses")
                    .aliases(["index", "offset"])
                    .allow_negative_numbers(true)
                    .value_parser(clap::value_parser!(i64)),
            )
            .arg(arg(OST, 'o', "OST", "The same as -i").aliases(["ost-list", "ost-index"]).value_parser(parse_ost))
            .arg(arg(POOL, 'p', "POOL", "Pool of OSTs; 'none' = any OST"))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for LayoutFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        fn take<T: Clone + Send + Sync + 'static>(
            matches: &ArgMatches,
            id: &str,
            to: fn(T) -> Flag,
        ) -> Vec<(usize, Flag)> {
            let indices = matches.indices_of(id).into_iter().flatten();
            indices
                .zip(matches.get_many::<T>(id).into_iter().flatten())
                .map(|(at, value)| (at, to(value.clone())))
                .collect()
        }
        let mut flags = take::<u64>(matches, END, Flag::End);
        flags.extend(take::<i64>(matches, COUNT, Flag::Count));
        flags.extend(take::<u64>(matches, SIZE, Flag::Size));
        flags.extend(take::<i64>(matches, INDEX, Flag::Index));
        flags.extend(take::<i64>(matches, OST, Flag::Index));
        flags.extend(take::<String>(matches, POOL, Flag::Pool));
        flags.sort_by_key(|(at, _)| *at);
        Ok(Self(flags.into_iter().map(|(_, flag)| flag).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl LayoutFlags {
    /// The flags that make a layout like this one of `forebay.layout`, without its choice of OSTs. Components that
    /// differ only in their OSTs become one: the file grew past a full OST.
    pub fn of(layout: &Value) -> Self {
        let parts = layout["components"].as_array().filter(|parts| !parts.is_empty());
        let parts = parts.map_or(std::slice::from_ref(layout), Vec::as_slice);
        let flags_of = |part: &Value| {
            let pool = part["pool"].as_str().filter(|pool| !pool.is_empty()).unwrap_or("none");
            let count = part["stripe_count"].as_i64().map(Flag::Count);
            let size = part["stripe_size"].as_u64().map(Flag::Size);
            let pool = Flag::Pool(pool.to_owned());
            count.into_iter().chain(size).chain([pool]).collect::<Vec<_>>()
        };
        let end_of = |part: &Value| part["end"].as_u64().unwrap_or(u64::MAX);
        let mut like: Vec<(u64, Vec<Flag>)> = Vec::new();
        for part in parts {
            let flags = flags_of(part);
            // A requested component ends at a multiple of this. A component with another end ended where an OST became
            // full. The next component continues it as well as possible, perhaps over fewer OSTs.
            let odd = |end: u64| !end.is_multiple_of(forebay_proto::limits::STRIPE_BYTES_MIN.into());
            let goes_on = |(end, before): &&mut (u64, Vec<Flag>)| {
                *before == flags || odd(*end) && before.iter().skip(1).eq(flags.iter().skip(1))
            };
            match like.last_mut().filter(goes_on) {
                Some((end, _)) => *end = end_of(part),
                None => like.push((end_of(part), flags)),
            }
        }
        let several = like.len() > 1;
        let flags = |(end, flags): (u64, Vec<Flag>)| several.then_some(Flag::End(end)).into_iter().chain(flags);
        Self(like.into_iter().flat_map(flags).collect())
    }

    /// These flags, or with `--copy` those of another file.
    pub fn or_like(&self, copy: Option<&Path>) -> CliResult<Self> {
        match copy {
            None => Ok(self.clone()),
            Some(from) if self.is_empty() => Ok(Self::of(&layout_of(from)?)),
            Some(_) => Err(CliError::usage("--copy takes the layout of another file: leave the other flags out")),
        }
    }

    /// The flags for a file in a directory: these, completed from the directory's layout as far as the two agree.
    pub fn or_inherited(&self, dir: &Value, choices: &Choices) -> Self {
        let is_composite = dir["components"].as_array().is_some_and(|parts| !parts.is_empty());
        if is_composite && self.is_empty() {
            return Self::of(dir);
        }
        if is_composite || self.0.iter().any(|flag| matches!(flag, Flag::End(_))) {
            return self.clone();
        }
        let mut flags: Vec<Flag> =
            self.0.iter().filter(|flag| !matches!(flag, Flag::Count(0) | Flag::Size(0))).cloned().collect();
        let has = |flags: &[Flag], which: fn(&Flag) -> bool| flags.iter().any(which);
        let size = dir["stripe_size"].as_u64().filter(|size| *size != 0);
        if let Some(size) = size.filter(|_| !has(&flags, |flag| matches!(flag, Flag::Size(_)))) {
            flags.push(Flag::Size(size));
        }
        let members = |pool: &str| {
            let named = choices.pools.iter().find(|(name, _)| name == pool);
            named.map_or(choices.osts.as_slice(), |(_, members)| members)
        };
        let own_index = flags.iter().find_map(|flag| if let Flag::Index(index) = flag { Some(*index) } else { None });
        let has_pool = has(&flags, |flag| matches!(flag, Flag::Pool(_)));
        // The directory's OST need not be in another pool, nor need a requested OST be in the directory's pool.
        let index = dir["stripe_index"].as_i64().filter(|index| *index >= 0);
        if let Some(index) = index.filter(|_| !has_pool && own_index.is_none()) {
            flags.push(Flag::Index(index));
        }
        let holds = |pool: &&str| own_index.is_none_or(|index| index < 0 || members(pool).contains(&(index as u64)));
        let pool = dir["pool"].as_str().filter(|pool| !pool.is_empty() && !has_pool).filter(holds);
        flags.extend(pool.map(|pool| Flag::Pool(pool.to_owned())));
        let pool = flags.iter().find_map(|flag| if let Flag::Pool(pool) = flag { Some(pool.as_str()) } else { None });
        let most = members(pool.unwrap_or("none")).len() as i64;
        let count = dir["stripe_count"].as_i64().filter(|count| *count != 0);
        if let Some(count) = count.filter(|_| !has(&flags, |flag| matches!(flag, Flag::Count(_)))) {
            flags.push(Flag::Count(if count > most { -1 } else { count }));
        }
        Self(flags)
    }

    /// The stripe count requested for the beginning of a file, if it is a number.
    pub fn stripes(&self) -> CliResult<Option<u64>> {
        let count = self.parts()?.first().and_then(|part| part.count);
        Ok(count.and_then(|count| u64::try_from(count).ok()).filter(|count| *count > 0))
    }

    /// True if no flag was given.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The flags in the mount's syntax: `-c 4 -S 1048576 -i -1 -p POOL`, with `-E END` before those of each component.
    /// Errors: the flags contradict each other.
    pub fn text(&self) -> CliResult<String> {
        let parts = self.parts()?;
        let words = parts.iter().map(|part| {
            let end = part.end.map(|end| if end == u64::MAX { "-E -1 ".into() } else { format!("-E {end} ") });
            let pool = part.pool.as_ref().filter(|pool| *pool != "none").map(|pool| format!(" -p {pool}"));
            format!(
                "{}-c {} -S {} -i {}{}",
                end.unwrap_or_default(),
                part.count.unwrap_or(0),
                part.size.unwrap_or(0),
                part.index.unwrap_or(-1),
                pool.unwrap_or_default()
            )
        });
        Ok(words.collect::<Vec<_>>().join(" "))
    }

    /// Refuses flags that these OSTs and pools cannot satisfy.
    pub fn check(&self, choices: &Choices) -> CliResult {
        self.parts()?.iter().try_for_each(|part| part.check_against(choices))
    }

    fn parts(&self) -> CliResult<Vec<Part>> {
        let mut parts = vec![Part::default()];
        for flag in &self.0 {
            if let Flag::End(end) = flag {
                let last = parts.last().cloned().unwrap_or_default();
                if last.end.is_none() && last != Part::default() {
                    return Err(CliError::usage(
                        "flags before the first -E belong to no component: put them behind it",
                    ));
                }
                let next = Part { end: Some(*end), ..Part::default() };
                if last.end.is_none() {
                    parts[0] = next
                } else {
                    parts.push(next)
                }
                continue;
            }
            parts.last_mut().expect("there is always one").take(flag)?;
        }
        for number in 1..parts.len() {
            let before = parts[number - 1].clone();
            let part = &mut parts[number];
            part.count = part.count.or(before.count);
            part.size = part.size.or(before.size);
            part.pool = part.pool.take().or(before.pool);
        }
        parts.iter().try_for_each(Part::check)?;
        check_ends(&parts)?;
        Ok(parts)
    }
}

/// Checks that components follow each other, and that the last has no end.
fn check_ends(parts: &[Part]) -> CliResult {
    let ends: Vec<u64> = parts.iter().filter_map(|part| part.end).collect();
    let minimum = u64::from(limits::STRIPE_BYTES_MIN);
    if let Some(end) = ends.iter().find(|end| **end != u64::MAX && (**end == 0 || !end.is_multiple_of(minimum))) {
        return Err(CliError::usage(format!("-E {end}: components end at multiples of {}", show_bytes(minimum))));
    }
    if let Some(pair) = ends.windows(2).find(|pair| pair[0] >= pair[1]) {
        let show = |end: u64| if end == u64::MAX { "-1".into() } else { show_bytes(end) };
        let (before, after) = (show(pair[0]), show(pair[1]));
        return Err(CliError::usage(format!("-E {after} does not lie behind -E {before}: ends have to ascend")));
    }
    if ends.last().is_some_and(|last| *last != u64::MAX) {
        return Err(CliError::usage("the last component has an end: add -E -1 (and its -c, -S) for all that follows"));
    }
    let most = limits::COMPONENTS / 2;
    if ends.len() > most {
        return Err(CliError::usage(format!("{} components: use at most {most}", ends.len())));
    }
    Ok(())
}

/// The number of OSTs, for messages.
fn there_are(osts: usize) -> String {
    if osts == 1 { "there is 1 OST".into() } else { format!("there are {osts} OSTs") }
}

impl Part {
    fn take(&mut self, flag: &Flag) -> CliResult {
        fn once<T: Clone>(slot: &mut Option<T>, value: &T, name: &str) -> CliResult {
            match slot.replace(value.clone()) {
                None => Ok(()),
                Some(_) => Err(CliError::usage(format!("{name} is given twice; -E begins another component"))),
            }
        }
        match flag {
            Flag::Count(count) => once(&mut self.count, count, "-c"),
            Flag::Size(size) => once(&mut self.size, size, "-S"),
            Flag::Index(index) => once(&mut self.index, index, "-i"),
            Flag::Pool(pool) => once(&mut self.pool, pool, "-p"),
            Flag::End(_) => Ok(()),
        }
    }

    fn check(&self) -> CliResult {
        if let Some(count) = self.count.filter(|count| !(-1..=limits::STRIPES as i64).contains(count)) {
            let most = limits::STRIPES;
            return Err(CliError::usage(format!("-c {count}: use 1 to {most}, -1 for all OSTs, 0 to inherit")));
        }
        let minimum = u64::from(limits::STRIPE_BYTES_MIN);
        if let Some(size) = self.size.filter(|size| !size.is_multiple_of(minimum) || *size > u64::from(u32::MAX)) {
            let size = show_bytes(size);
            return Err(CliError::usage(format!("-S {size}: use a multiple of {} below 4 GiB", show_bytes(minimum))));
        }
        if let Some(index) = self.index.filter(|index| !(-1..i64::from(u32::MAX)).contains(index)) {
            return Err(CliError::usage(format!("-i {index}: use the number of an OST, or -1")));
        }
        match &self.pool {
            Some(pool) if pool.is_empty() || pool.contains(char::is_whitespace) => {
                Err(CliError::usage("-p: the name of a pool has no spaces; 'none' means any OST"))
            }
            _ => Ok(()),
        }
    }

    fn check_against(&self, choices: &Choices) -> CliResult {
        let osts = choices.osts.len();
        let pool = self.pool.as_deref().filter(|pool| *pool != "none");
        let members = match pool {
            None => &choices.osts,
            Some(pool) => match choices.pools.iter().find(|(name, _)| name == pool) {
                Some((_, members)) => members,
                None => {
                    let names: Vec<&str> = choices.pools.iter().map(|(name, _)| name.as_str()).collect();
                    let there = if names.is_empty() { "there is none".into() } else { names.join(", ") };
                    let words = format!("-p {pool}: there is no such pool ({there}); `forebay pool new` makes one");
                    return Err(CliError::failed(words));
                }
            },
        };
        let place = pool.map_or("".into(), |pool| format!(" in pool {pool}"));
        if members.is_empty() {
            return Err(CliError::failed(format!("there is no OST{place}; `forebay pool add` adds some")));
        }
        if let Some(count) = self.count.filter(|count| *count > members.len() as i64) {
            let there = there_are(members.len());
            let words = format!("-c {count}: {there}{place}; use -c -1 for all, however many there are");
            return Err(CliError::failed(words));
        }
        if let Some(index) = self.index.filter(|index| *index >= 0 && !members.contains(&(*index as u64))) {
            let last = choices.osts.last().copied().unwrap_or(0);
            let words = match choices.osts.contains(&(index as u64)) {
                true => format!("-i {index}: that OST is not{place}; leave out -i or -p"),
                false => {
                    let there = there_are(osts);
                    let which = if osts == 1 { format!("number {last}") } else { format!("0 to {last}") };
                    format!("-i {index}: {there}, {which}; leave out -i to let the server choose")
                }
            };
            return Err(CliError::failed(words));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use serde_json::json;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        flags: LayoutFlags,
    }

    fn flags(line: &str) -> LayoutFlags {
        let words = ["setstripe"].into_iter().chain(line.split_whitespace());
        Line::try_parse_from(words).expect(line).flags
    }

    fn choices() -> Choices {
        Choices { osts: vec![0, 1, 2, 3], pools: vec![("fast".into(), vec![1, 2])] }
    }

    #[test]
    fn flags_of_lfs_become_the_mounts_text() {
        let text = |line| flags(line).text().expect(line);
        assert_eq!(text("-c 4 -S 1M -i 2"), "-c 4 -S 1048576 -i 2");
        assert_eq!(text("--stripe-count -1 -o 3"), "-c -1 -S 0 -i 3");
        assert_eq!(text("-p fast -i -1"), "-c 0 -S 0 -i -1 -p fast");
        assert_eq!(text("-p none"), "-c 0 -S 0 -i -1");
        assert_eq!(
            text("-E 64M -c 1 -S 1M -p fast -E eof -c -1 -p none"),
            "-E 67108864 -c 1 -S 1048576 -i -1 -p fast -E -1 -c -1 -S 1048576 -i -1"
        );
        assert!(flags("").is_empty());
    }

    #[test]
    fn a_file_inherits_what_is_left_open() {
        let dir =
            json!({"stripe_count": 2, "stripe_size": 1 << 22, "stripe_index": 2, "pool": "fast", "components": []});
        let text = |line, dir: &Value| flags(line).or_inherited(dir, &choices()).text().expect("flags");
        assert_eq!(text("", &dir), "-c 2 -S 4194304 -i 2 -p fast");
        assert_eq!(text("-c 1", &dir), "-c 1 -S 4194304 -i 2 -p fast");
        assert_eq!(text("-c 0 -S 2M -i -1", &dir), "-c 2 -S 2097152 -i -1 -p fast");
        assert_eq!(text("-i 3", &dir), "-c 2 -S 4194304 -i 3", "the pool has no such OST");
        assert_eq!(text("-p none -c -1", &dir), "-c -1 -S 4194304 -i -1");
        assert_eq!(text("-E 1M -c 1 -E -1", &dir), "-E 1048576 -c 1 -S 0 -i -1 -E -1 -c 1 -S 0 -i -1");
        let plain = json!({"stripe_count": 0, "stripe_size": 0, "stripe_index": -1, "pool": "", "components": []});
        assert_eq!(text("-c 3", &plain), "-c 3 -S 0 -i -1");
        let wide = json!({"stripe_count": 4, "stripe_size": 0, "stripe_index": -1, "pool": "", "components": []});
        assert_eq!(text("-p fast", &wide), "-c -1 -S 0 -i -1 -p fast", "the pool has no four");
        let part = |start: u64, end: i64| json!({"start": start, "end": end, "stripe_count": 1, "stripe_size": 65536, "stripe_index": -1, "pool": "", "osts": []});
        let composite = json!({"stripe_count": 1, "components": [part(0, 1 << 20), part(1 << 20, -1)]});
        assert_eq!(text("-c 3", &composite), "-c 3 -S 0 -i -1");
        assert_eq!(text("", &composite), LayoutFlags::of(&composite).text().expect("flags"));
    }

    #[test]
    fn a_layout_is_copied_without_its_osts() {
        let part = |start: u64, end: i64, count: i64, osts: &[u64]| json!({"start": start, "end": end, "stripe_count": count, "stripe_size": 65536, "stripe_index": 3, "pool": "", "osts": osts});
        let text = |layout: Value| LayoutFlags::of(&layout).text().expect("flags");
        let composite = json!({"components": [part(0, 1 << 20, 1, &[3]), part(1 << 20, -1, -1, &[])]});
        assert_eq!(text(composite), "-E 1048576 -c 1 -S 65536 -i -1 -E -1 -c -1 -S 65536 -i -1");
        let grown = json!({"components": [part(0, 1_000_001, 1, &[3]), part(1_000_001, -1, 1, &[2])]});
        assert_eq!(text(grown), "-c 1 -S 65536 -i -1");
        let dir = json!({"stripe_count": 4, "stripe_size": 0, "stripe_index": 2, "pool": "fast", "components": []});
        assert_eq!(text(dir), "-c 4 -S 0 -i -1 -p fast");
    }

    #[test]
    fn impossible_layouts_are_refused_before_anything_is_made() {
        let cases = [
            ("-c 2001", "1 to 2000"),
            ("-S 47008", "64 KiB"),
            ("-i -2", "-1"),
            ("-c 1 -c 2", "twice"),
            ("-c 1 -E 64M -E -1", "before the first -E"),
            ("-E 64M -c 1", "-E -1"),
            ("-E 64M -E 1M -E -1", "ascend"),
            ("-E 1000 -E -1", "64 KiB"),
            ("-p", "a value is required"),
        ];
        for (line, words) in &cases[..8] {
            let error = flags(line).text().expect_err(line);
            assert!(error.exit_code() == 2 && error.message.contains(words), "{error}");
        }
    }

    #[test]
    fn layout_options_that_the_cluster_cannot_fulfil_are_refused_with_advice() {
        let cases = [
            ("-c 5", "there are 4 OSTs"),
            ("-c 3 -p fast", "2 OSTs in pool fast"),
            ("-i 4", "0 to 3"),
            ("-i 0 -p fast", "not in pool fast"),
            ("-p slow", "fast"),
            ("-E 1M -c 1 -E -1 -c 9", "4 OSTs"),
        ];
        for (line, words) in cases {
            let error = flags(line).check(&choices()).expect_err(line);
            assert!(error.exit_code() == 1 && error.message.contains(words), "{error}");
        }
        assert!(flags("-E 1M -c 1 -E -1 -c -1 -p fast -i 2").check(&choices()).is_ok());
        let alone = Choices { osts: vec![0], pools: Vec::new() };
        for (line, words) in [("-c 2", "there is 1 OST; use"), ("-i 1", "there is 1 OST, number 0; leave")] {
            let error = flags(line).check(&alone).expect_err(line);
            assert!(error.message.contains(words), "{error}");
        }
    }
}
