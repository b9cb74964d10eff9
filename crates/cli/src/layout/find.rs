//! `forebay find DIR... [TEST...]`: files by name, age, size, owner and layout, with the tests of `lfs find`.
//!
//! Its tests begin with one dash or two, as in lfs, so this module parses them instead of clap. All tests must hold;
//! `!` before a test negates it. `+N` is more than N, `-N` less, `N` exactly N.

use std::{
    cmp::Ordering,
    collections::BTreeSet,
    ffi::{CString, OsString},
    fs::Metadata,
    io::{self, Write},
    os::unix::{ffi::OsStrExt, fs::FileTypeExt, fs::MetadataExt},
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

use clap::Args;
use forebay_command::{
    error::{CliError, CliResult, complain},
    posix,
    units::parse_size,
};
use serde_json::Value;

use super::{
    deep::{self, Place},
    layout_of_place,
};
use crate::refused;

/// The text of `--help`.
const HELP: &str = "\
Tests: -name|-iname PATTERN  -type f|d|l|p|s|b|c[,...]  -size|-blocks [+-]SIZE  -empty  -links [+-]N
       -mtime|-atime|-ctime [+-]DAYS (or 5s, 10m, 2h)  -newer FILE, -newerXY FILE (X, Y: a, c, m; Y = t: a time, @SECONDS)
       -user|-uid USER  -group|-gid GROUP  -perm [-/]MODE  -mindepth N  -maxdepth N
       -stripe-count|-c [+-]N  -stripe-size|-S [+-]SIZE  -stripe-index|-i OST[,OST]  -ost|-O OST[,OST]  -pool POOL
       -component-count [+-]N  -component-start|-component-end [+-]SIZE (eof: no end)  -layout|-L raid0|composite
Actions: -print  -print0|-0
A ! before a test turns it round.";

/// Where to look, and for what.
#[derive(Debug, Args)]
#[command(after_help = HELP, disable_help_flag = true)]
pub struct FindArgs {
    /// Directories, then tests
    #[arg(required = true, allow_hyphen_values = true, trailing_var_arg = true, value_name = "DIR... TEST")]
    words: Vec<OsString>,
}

/// Prints the files for which all tests hold.
pub fn run(args: &FindArgs) -> CliResult {
    if args.words.iter().any(|word| word == "--help" || word == "-help" || word == "-h") {
        println!("Find files by name, age, size, owner and layout\n\nUsage: forebay find DIR... [TEST...]\n\n{HELP}");
        return Ok(());
    }
    let query = Query::parse(&args.words)?;
    let mut walk = Walk::new(&query, std::io::stdout().lock());
    walk.run()?;
    walk.ended()
}

fn now_seconds() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs() as i64)
}

/// A comparison with a number: `+N`, `-N`, `N`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Compared {
    how: Ordering,
    value: u64,
    /// `N` matches values above N minus this, up to N.
    unit: u64,
}

impl Compared {
    fn holds(self, number: u64) -> bool {
        match self.how {
            Ordering::Equal => number <= self.value && self.value - number < self.unit,
            how => number.cmp(&self.value) == how,
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
enum Test {
    Name(CString),
    /// Ignores case.
    AnyCase(CString),
    /// One of these.
    Type(String),
    Size(Compared),
    /// Space on the OSTs.
    Blocks(Compared),
    Empty,
    Links(Compared),
    /// Exactly these bits (`N`), all of them (`-N`), or one of them (`/N`).
    Mode(Bits, u32),
    /// The time (`m`, `a` or `c`) is later than this, in nanoseconds since 1970.
    Newer(char, i128),
    /// The time, its age in units, seconds of the unit.
    Age(char, Compared, u64),
    Uid(u32),
    Gid(u32),
    StripeCount(Compared),
    StripeSize(Compared),
    StripeIndex(BTreeSet<u64>),
    Ost(BTreeSet<u64>),
    Pool(String),
    ComponentCount(Compared),
    ComponentStart(Compared),
    ComponentEnd(Compared),
    Composite(bool),
}

/// How many of the bits of `-perm` a file must have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bits {
    Exactly,
    All,
    Any,
}

#[derive(Debug, Default)]
struct Query {
    dirs: Vec<PathBuf>,
    /// Each test, with whether it is negated.
    tests: Vec<(bool, Test)>,
    min_depth: u64,
    max_depth: Option<u64>,
    ends_with_nul: bool,
}

impl Query {
    fn parse(words: &[OsString]) -> CliResult<Self> {
        let mut query = Self::default();
        let mut words = words.iter().peekable();
        while let Some(dir) = words.next_if(|word| !word.as_bytes().starts_with(b"-") && *word != "!") {
            query.dirs.push(dir.into());
        }
        if query.dirs.is_empty() {
            return Err(CliError::usage("say where to look: forebay find DIR... [TEST...]"));
        }
        let mut negated = false;
        while let Some(word) = words.next() {
            let text = word.to_str().ok_or_else(|| CliError::usage("a test is no text"))?;
            if text == "!" || text == "-not" {
                negated = !negated;
                continue;
            }
            let name = text.strip_prefix("--").or(text.strip_prefix('-')).unwrap_or_default();
            match name {
                "print" | "P" => continue,
                "print0" | "0" => {
                    query.ends_with_nul = true;
                    continue;
                }
                _ => {}
            }
            let mut value = || {
                let value = words.next().and_then(|value| value.to_str());
                value.ok_or_else(|| {
                    CliError::usage(format!("{text} needs a value; `forebay find --help` lists the tests"))
                })
            };
            match name {
                "maxdepth" | "D" => query.max_depth = Some(whole(value()?, text)?),
                "mindepth" => query.min_depth = whole(value()?, text)?,
                _ => {
                    let test = Test::parse(name, text, &mut value)?;
                    query.tests.push((std::mem::take(&mut negated), test));
                }
            }
        }
        Ok(query)
    }

    fn needs_layout(&self) -> bool {
        self.tests.iter().any(|(_, test)| test.is_of_layout())
    }
}

impl Test {
    fn parse<'a>(name: &str, flag: &str, value: &mut impl FnMut() -> CliResult<&'a str>) -> CliResult<Self> {
        Ok(match name {
            "name" | "n" => Self::Name(pattern(value()?, flag)?),
            "iname" => Self::AnyCase(pattern(value()?, flag)?),
            "type" | "t" => {
                let kinds: Vec<&str> = value()?.split(',').collect();
                if !kinds.iter().all(|kind| kind.len() == 1 && "fdlpsbc".contains(kind)) {
                    return Err(CliError::usage("-type: use f, d, l, p, s, b or c, or several: f,d"));
                }
                Self::Type(kinds.concat())
            }
            "size" | "s" => Self::Size(compared(value()?, flag, size)?),
            "blocks" | "b" => Self::Blocks(compared(value()?, flag, size)?),
            "empty" => Self::Empty,
            "links" => Self::Links(compared(value()?, flag, number)?),
            "perm" => mode(value()?, flag)?,
            "mtime" | "M" => age('m', value()?, flag)?,
            "atime" | "A" => age('a', value()?, flag)?,
            "ctime" | "C" => age('c', value()?, flag)?,
            "user" | "uid" | "u" | "U" => Self::Uid(id(value()?, posix::user_named, "user")?),
            "group" | "gid" | "g" | "G" => Self::Gid(id(value()?, posix::group_named, "group")?),
            "stripe-count" | "c" => Self::StripeCount(compared(value()?, flag, number)?),
            "stripe-size" | "S" => Self::StripeSize(compared(value()?, flag, size)?),
            "stripe-index" | "i" => Self::StripeIndex(osts(value()?)?),
            "ost" | "obd" | "O" => Self::Ost(osts(value()?)?),
            "pool" => Self::Pool(value()?.to_owned()),
            "component-count" | "comp-count" => Self::ComponentCount(compared(value()?, flag, number)?),
            "component-start" | "comp-start" => Self::ComponentStart(compared(value()?, flag, size)?),
            "component-end" | "comp-end" | "E" => Self::ComponentEnd(compared(value()?, flag, end)?),
            "layout" | "L" => match value()? {
                "raid0" => Self::Composite(false),
                "composite" => Self::Composite(true),
                _ => return Err(CliError::usage("-layout: use raid0 or composite")),
            },
            _ if name.starts_with("newer") => newer(&name["newer".len()..], value()?, flag)?,
            _ => return Err(no_test(name, flag)),
        })
    }

    fn is_of_layout(&self) -> bool {
        use Test::*;
        matches!(
            self,
            StripeCount(_)
                | StripeSize(_)
                | StripeIndex(_)
                | Ost(_)
                | Pool(_)
                | ComponentCount(_)
                | ComponentStart(_)
                | ComponentEnd(_)
                | Composite(_)
        )
    }

    fn holds(&self, place: &Place, meta: &Metadata, layout: Option<&Value>, now: i64) -> bool {
        match self {
            Self::Name(pattern) => posix::matches_pattern(pattern, &name_of(&place.path)),
            Self::AnyCase(pattern) => posix::matches_pattern_of_any_case(pattern, &name_of(&place.path)),
            Self::Type(kinds) => kinds.contains(type_of(meta)),
            Self::Size(size) => meta.is_file() && size.holds(meta.len()),
            Self::Blocks(size) => meta.is_file() && size.holds(meta.blocks().saturating_mul(512)),
            Self::Empty if meta.is_dir() => {
                std::fs::read_dir(&place.at).is_ok_and(|mut entries| entries.next().is_none())
            }
            Self::Empty => meta.is_file() && meta.len() == 0,
            Self::Links(links) => links.holds(meta.nlink()),
            Self::Mode(how, bits) => match how {
                Bits::Exactly => meta.mode() & 0o7777 == *bits,
                Bits::All => meta.mode() & bits == *bits,
                Bits::Any => *bits == 0 || meta.mode() & bits != 0,
            },
            Self::Newer(which, than) => time_of(meta, *which) > *than,
            Self::Age(which, age, unit) => {
                let time = (time_of(meta, *which) / NANOS) as i64;
                age.holds(now.saturating_sub(time).max(0) as u64 / unit)
            }
            Self::Uid(uid) => meta.uid() == *uid,
            Self::Gid(gid) => meta.gid() == *gid,
            _ => layout.is_some_and(|layout| self.holds_for_layout(layout)),
        }
    }

    /// For a composite layout one matching component is enough.
    fn holds_for_layout(&self, layout: &Value) -> bool {
        let parts = layout["components"].as_array().filter(|parts| !parts.is_empty());
        let parts = parts.map_or(std::slice::from_ref(layout), Vec::as_slice);
        let osts =
            |part: &Value| part["osts"].as_array().into_iter().flatten().filter_map(Value::as_u64).collect::<Vec<_>>();
        let any = |holds: &dyn Fn(&Value) -> bool| parts.iter().any(holds);
        match self {
            Self::StripeCount(count) => any(&|part| part["stripe_count"].as_u64().is_some_and(|n| count.holds(n))),
            Self::StripeSize(size) => any(&|part| part["stripe_size"].as_u64().is_some_and(|n| size.holds(n))),
            Self::StripeIndex(wanted) => {
                any(&|part| part["stripe_index"].as_u64().is_some_and(|n| wanted.contains(&n)))
            }
            Self::Ost(wanted) => any(&|part| osts(part).iter().any(|ost| wanted.contains(ost))),
            Self::Pool(pool) => any(&|part| part["pool"].as_str() == Some(pool)),
            Self::ComponentCount(count) => count.holds(parts.len() as u64),
            Self::ComponentStart(start) => any(&|part| start.holds(part["start"].as_u64().unwrap_or(0))),
            Self::ComponentEnd(end) => any(&|part| end.holds(part["end"].as_u64().unwrap_or(u64::MAX))),
            Self::Composite(composite) => *composite == (parts.len() > 1),
            _ => false,
        }
    }
}

/// The error for `flag`, which is not a test; `name` is the flag without its dashes.
fn no_test(name: &str, flag: &str) -> CliError {
    let spelled = if name.len() == 1 { format!("-{name}") } else { format!("--{name}") };
    let unknown = || CliError::usage(format!("{flag} is no test; `forebay find --help` lists them"));
    refused::instead_of("find", &spelled).unwrap_or_else(unknown)
}

const NANOS: i128 = 1_000_000_000;

/// The modification (`m`), access (`a`) or change (`c`) time, in nanoseconds since 1970.
fn time_of(meta: &Metadata, which: char) -> i128 {
    let (seconds, nanos) = match which {
        'm' => (meta.mtime(), meta.mtime_nsec()),
        'a' => (meta.atime(), meta.atime_nsec()),
        _ => (meta.ctime(), meta.ctime_nsec()),
    };
    i128::from(seconds) * NANOS + i128::from(nanos)
}

/// The name that patterns are matched with. `.` and `/` match themselves, without trailing slashes.
fn name_of(path: &Path) -> CString {
    let name = path.file_name().unwrap_or(path.as_os_str());
    CString::new(name.as_bytes()).unwrap_or_default()
}

fn type_of(meta: &Metadata) -> char {
    let kind = meta.file_type();
    match () {
        () if kind.is_dir() => 'd',
        () if kind.is_symlink() => 'l',
        () if kind.is_fifo() => 'p',
        () if kind.is_socket() => 's',
        () if kind.is_block_device() => 'b',
        () if kind.is_char_device() => 'c',
        () => 'f',
    }
}

fn pattern(text: &str, flag: &str) -> CliResult<CString> {
    CString::new(text).map_err(|_| CliError::usage(format!("{flag}: a name has no zero byte")))
}

/// `644`, `-020` or `/222`.
fn mode(text: &str, flag: &str) -> CliResult<Test> {
    let (how, digits) = match text.as_bytes().first() {
        Some(b'-') => (Bits::All, &text[1..]),
        Some(b'/') => (Bits::Any, &text[1..]),
        _ => (Bits::Exactly, text),
    };
    let bits = u32::from_str_radix(digits, 8).ok().filter(|bits| *bits <= 0o7777);
    bits.map(|bits| Test::Mode(how, bits)).ok_or_else(|| {
        CliError::usage(format!("{flag} {text}: use octal digits: 644 (exactly), -020 (all), /222 (any)"))
    })
}

/// `-newer FILE` is `-newermm FILE`. The first letter is for the files found, the second for FILE.
fn newer(letters: &str, text: &str, flag: &str) -> CliResult<Test> {
    let letters: Vec<char> = if letters.is_empty() { vec!['m', 'm'] } else { letters.chars().collect() };
    let (which, of) = match letters[..] {
        [which @ ('a' | 'c' | 'm'), of @ ('a' | 'c' | 'm' | 't')] => (which, of),
        _ => return Err(CliError::usage(format!("{flag}: use -newer or -newerXY, X and Y of a, c and m, or Y = t"))),
    };
    if of != 't' {
        let meta = std::fs::metadata(text)
            .map_err(|error| CliError::failed(format!("{flag}: cannot look at {text}: {error}")))?;
        return Ok(Test::Newer(which, time_of(&meta, of)));
    }
    let seconds = text.strip_prefix('@').and_then(|seconds| seconds.parse::<i64>().ok());
    let seconds = seconds
        .ok_or_else(|| CliError::usage(format!("{flag} {text}: use @SECONDS since 1970: @$(date -d TIME +%s)")))?;
    Ok(Test::Newer(which, i128::from(seconds) * NANOS))
}

/// The end of a component: a size, or no end.
fn end(text: &str) -> Option<(u64, u64)> {
    if text == "-1" || text.eq_ignore_ascii_case("eof") { Some((u64::MAX, 1)) } else { size(text) }
}

/// Parses `+N`, `-N`, `N`; `read` returns N and its unit.
fn compared(text: &str, flag: &str, read: fn(&str) -> Option<(u64, u64)>) -> CliResult<Compared> {
    let (how, rest) = match text.as_bytes().first() {
        _ if text == "-1" && read("-1").is_some() => (Ordering::Equal, text),
        Some(b'+') => (Ordering::Greater, &text[1..]),
        Some(b'-') => (Ordering::Less, &text[1..]),
        _ => (Ordering::Equal, text),
    };
    let (value, unit) = read(rest).ok_or_else(|| CliError::usage(format!("{flag} {text}: use N, +N or -N")))?;
    Ok(Compared { how, value, unit })
}

fn number(text: &str) -> Option<(u64, u64)> {
    Some((text.parse().ok()?, 1))
}

/// A size and its unit: `1M` matches every number of bytes that rounds up to 1 MiB.
fn size(text: &str) -> Option<(u64, u64)> {
    let text = text.strip_suffix('c').unwrap_or(text);
    let digits: String = text.chars().take_while(char::is_ascii_digit).collect();
    let value = parse_size(text).ok()?;
    let count: u64 = digits.parse().ok()?;
    Some((value, value.checked_div(count).unwrap_or(1).max(1)))
}

fn age(which: char, text: &str, flag: &str) -> CliResult<Test> {
    let units = [('s', 1), ('m', 60), ('h', 3600), ('d', 86_400), ('w', 7 * 86_400)];
    let unit = units.iter().find(|(letter, _)| text.ends_with(*letter));
    let digits = if unit.is_some() { &text[..text.len() - 1] } else { text };
    Ok(Test::Age(which, compared(digits, flag, number)?, unit.map_or(86_400, |(_, seconds)| *seconds)))
}

fn whole(text: &str, flag: &str) -> CliResult<u64> {
    text.parse().map_err(|_| CliError::usage(format!("{flag} {text}: use a number")))
}

fn id(text: &str, named: fn(&str) -> Option<u32>, what: &str) -> CliResult<u32> {
    let id = text.parse().ok().or_else(|| named(text));
    id.ok_or_else(|| CliError::usage(format!("there is no {what} '{text}'")))
}

fn osts(text: &str) -> CliResult<BTreeSet<u64>> {
    let index = |word: &str| match word.strip_prefix("OST") {
        Some(hex) => u64::from_str_radix(hex.trim_end_matches("_UUID"), 16).ok(),
        None => word.parse().ok(),
    };
    text.split(',')
        .map(|word| index(word).ok_or_else(|| CliError::usage(format!("'{word}' is no OST: use 3 or OST0003"))))
        .collect()
}

struct Walk<'a, W: Write> {
    query: &'a Query,
    out: W,
    failed: usize,
    /// The last failure, which has not been printed yet.
    last: Option<CliError>,
    now: i64,
}

impl<'a, W: Write> Walk<'a, W> {
    fn new(query: &'a Query, out: W) -> Self {
        Self { query, out, failed: 0, last: None, now: now_seconds() }
    }

    fn run(&mut self) -> CliResult {
        let places = self.query.dirs.iter().map(|dir| Place::new(dir)).collect();
        deep::walk(places, |place, depth| self.visit(place, depth))
    }

    /// Prints the file if all tests hold. Returns its entries if they are to be visited.
    fn visit(&mut self, place: &Place, depth: u64) -> CliResult<Vec<Place>> {
        let meta = match place.at.symlink_metadata() {
            Ok(meta) => meta,
            Err(error) => return Ok(self.pass_over(place, &error)),
        };
        let has_layout = self.query.needs_layout() && (meta.is_file() || meta.is_dir());
        let layout = match has_layout.then(|| layout_of_place(place)).transpose() {
            Ok(layout) => layout,
            Err(error) => {
                self.fail(error);
                return Ok(Vec::new());
            }
        };
        let holds = |(negated, test): &(bool, Test)| test.holds(place, &meta, layout.as_ref(), self.now) != *negated;
        if depth >= self.query.min_depth && self.query.tests.iter().all(holds) {
            self.print(&place.path)?;
        }
        let enters = meta.is_dir() && self.query.max_depth.is_none_or(|most| depth < most);
        Ok(if enters { self.entries(place) } else { Vec::new() })
    }

    fn entries(&mut self, dir: &Place) -> Vec<Place> {
        match dir.entries() {
            Ok((entries, None)) => entries,
            Ok((entries, Some(error))) => {
                let shown = dir.path.display();
                self.fail(CliError::failed(format!("not all of {shown} could be listed: {error}")));
                entries
            }
            Err(error) => self.pass_over(dir, &error),
        }
    }

    fn print(&mut self, path: &Path) -> CliResult {
        let end = if self.query.ends_with_nul { b"\0" } else { b"\n" };
        let written = self.out.write_all(path.as_os_str().as_bytes()).and_then(|()| self.out.write_all(end));
        written.map_err(|error| CliError::failed(format!("cannot write: {error}")))
    }

    fn pass_over(&mut self, place: &Place, error: &io::Error) -> Vec<Place> {
        self.fail(CliError::failed(format!("cannot look at {}: {error}", place.path.display())));
        Vec::new()
    }

    fn fail(&mut self, error: CliError) {
        self.failed += 1;
        self.last.replace(error).iter().for_each(complain);
    }

    /// The error of the command; a single failure is returned as it is.
    fn ended(&mut self) -> CliResult {
        let Some(last) = self.last.take() else { return Ok(()) };
        if self.failed == 1 {
            return Err(last);
        }
        complain(&last);
        Err(CliError::failed(format!("{} files or directories could not be looked at", self.failed)))
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use serde_json::json;

    use super::*;

    fn query(line: &str) -> CliResult<Query> {
        Query::parse(&line.split_whitespace().map(OsString::from).collect::<Vec<_>>())
    }

    fn holds(test: &str, layout: &Value) -> bool {
        let query = query(&format!(". {test}")).expect(test);
        query.tests.iter().all(|(negated, test)| test.holds_for_layout(layout) != *negated)
    }

    #[test]
    fn sizes_and_numbers_are_more_less_or_up_to() {
        let size = |text| compared(text, "-size", size).expect("a size");
        assert!(size("+1M").holds((1 << 20) + 1) && !size("+1M").holds(1 << 20));
        assert!(size("-1M").holds(1000) && !size("-1M").holds(1 << 20));
        assert!(size("1M").holds(1) && size("1M").holds(1 << 20) && !size("1M").holds(0));
        assert!(size("2M").holds((1 << 20) + 1) && !size("2M").holds(1 << 20));
        assert!(size("47008").holds(47_008) && !size("47008").holds(47_007));
    }

    #[test]
    fn tests_of_layouts_hold_for_any_component() {
        let layout = json!({"components": [
            {"stripe_count": 1, "stripe_size": 65536, "stripe_index": 2, "pool": "", "osts": [2]},
            {"stripe_count": -1, "stripe_size": 1048576, "stripe_index": -1, "pool": "fast", "osts": []},
        ]});
        for test in [
            "-stripe-count 1",
            "-ost 2",
            "--pool fast",
            "-S +64k",
            "-i 0,2",
            "! -c +4",
            "-L composite",
            "-E eof",
            "-E -1",
            "! -E -64K",
            "-component-start 0",
        ] {
            assert!(holds(test, &layout), "{test}");
        }
        for test in ["-c 2", "-O OST0003", "-pool slow", "! -component-count 2", "-layout raid0"] {
            assert!(!holds(test, &layout), "{test}");
        }
    }

    #[test]
    fn tests_of_attributes_are_those_of_find() {
        let dir = std::env::temp_dir().join(format!("forebay-find-{}", std::process::id()));
        std::fs::create_dir(&dir).expect("made");
        let (file, other) = (dir.join("File"), dir.join("other"));
        std::fs::write(&file, "x").expect("written");
        std::fs::hard_link(&file, dir.join("second")).expect("linked");
        std::fs::write(&other, "").expect("written");
        std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o640)).expect("set");
        posix::set_times(&file, 1_000_000_000).expect("set");
        let found = |test: &str| {
            let query = query(&format!("{} {test}", dir.display())).expect(test);
            let mut out = Vec::new();
            Walk::new(&query, &mut out).run().expect("walked");
            String::from_utf8(out).expect("text").replace(&format!("{}/", dir.display()), "").replace('\n', " ")
        };
        let itself = format!("{} ", dir.display());
        for (test, names) in [
            ("-iname file", "File "),
            ("-name file", ""),
            ("-type f,l -links 2", "File second "),
            ("-empty", "other "),
            ("-mindepth 1 ! -empty", "File second "),
            ("-type d,l", &itself),
            ("-perm 640", "File second "),
            ("-type f -perm -200 ! -perm /7", "File second "),
            ("-type f -newermt @1000000000", "other "),
            ("-type f -newer DIR/File", "other "),
            ("-type f -newer DIR/other", ""),
            ("-blocks 0 -mindepth 1", "other "),
        ] {
            let test = test.replace("DIR", &dir.display().to_string());
            assert_eq!(found(&test), names, "{test}");
        }
        std::fs::remove_dir_all(&dir).expect("removed");
    }

    #[test]
    fn a_tree_is_walked_beyond_the_longest_path_that_the_kernel_takes() {
        let dir = std::env::temp_dir().join(format!("forebay-find-deep-{}", std::process::id()));
        std::fs::create_dir(&dir).expect("made");
        let (mut path, mut held) = (dir.clone(), std::fs::File::open(&dir).expect("open"));
        let name = "d".repeat(250);
        for _ in 0..40 {
            let at = PathBuf::from(format!("/proc/self/fd/{}", held.as_raw_fd())).join(&name);
            std::fs::create_dir(&at).expect("made");
            (path, held) = (path.join(&name), std::fs::File::open(&at).expect("open"));
        }
        std::fs::write(format!("/proc/self/fd/{}/file", held.as_raw_fd()), "x").expect("written");
        let found = |test: &str| {
            let query = query(&format!("{} {test}", dir.display())).expect(test);
            let mut out = Vec::new();
            let mut walk = Walk::new(&query, &mut out);
            walk.run().and_then(|()| walk.ended()).expect("walked");
            String::from_utf8(out).expect("text")
        };
        assert_eq!(found("-type f"), format!("{}/file\n", path.display()));
        assert_eq!((found("").lines().count(), found("-empty").len()), (42, 0));
        std::fs::remove_dir_all(&dir).expect("removed");
    }

    #[test]
    fn find_names_a_single_unreadable_path_and_counts_several() {
        let ended = |line: &str| {
            let query = query(line).expect(line);
            let mut walk = Walk::new(&query, Vec::new());
            walk.run().expect("walked");
            walk.ended().expect_err(line).message
        };
        assert!(ended("/nobody/is/here").starts_with("cannot look at /nobody/is/here: No such file"));
        assert_eq!(ended("/nobody /is/here -type f"), "2 files or directories could not be looked at");
    }

    #[test]
    fn words_that_are_no_tests_are_refused() {
        for (line, words) in [
            ("-name x", "where to look"),
            (". -nmae x", "-nmae is no test"),
            (". -mdt-index 0", "one MDT"),
            (". --mdt-count 2", "one MDT"),
            (". -m 0", "one MDT"),
            (". -size", "needs a value"),
            (". -size big", "+N"),
            (". -type x", "-type"),
            (". -type f,", "-type"),
            (". -perm rw", "octal"),
            (". -newerxm .", "-newerXY"),
            (". -newermt yesterday", "@SECONDS"),
            (". -newer /nobody/is/here", "cannot look at"),
            (". -ost x", "no OST"),
        ] {
            let error = query(line).expect_err(line);
            assert!(error.message.contains(words), "{error}");
        }
        let query = query("a b -maxdepth 1 --type f -print0").expect("fine");
        assert_eq!((query.dirs.len(), query.max_depth, query.ends_with_nul), (2, Some(1), true));
    }
}
