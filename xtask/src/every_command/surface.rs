//! What the two programs offer according to their hidden `command-tree` and their help, and which part of it a row
//! uses.
//!
//! Each item is a text: `forebay bench ior`, `forebay bench ior --name`, `forebay bench ior DIRS`, and for options with
//! a fixed choice of values `forebay bench xdd --op read`.

use std::{collections::BTreeSet, process::Command};

use serde_json::Value;

use super::site::Site;
use crate::figures::{Outcome, process::output};

/// One of the programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    Forebay,
    Xtask,
}

impl Program {
    /// The name of the program.
    pub fn name(self) -> &'static str {
        match self {
            Self::Forebay => "forebay",
            Self::Xtask => "xtask",
        }
    }
}

/// Words that a command parses itself instead of clap. They are known from its help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Own {
    /// The tests of `find`.
    Find,
    /// The options of `mount -o`.
    Mount,
}

/// A command that can be run.
#[derive(Debug)]
struct Offer {
    path: Vec<String>,
    hidden: bool,
    options: Vec<Choice>,
    /// Positional arguments.
    words: Vec<String>,
    /// Words that the command parses itself.
    own: Option<(Own, BTreeSet<String>)>,
}

/// An option.
#[derive(Debug)]
struct Choice {
    /// The first one is the one that help shows.
    names: Vec<String>,
    aliases: Vec<String>,
    values: Vec<String>,
    takes_value: bool,
}

/// All commands of one program.
#[derive(Debug)]
pub struct Surface {
    program: Program,
    offers: Vec<Offer>,
}

impl Surface {
    /// Asks the program for its commands.
    pub fn ask(site: &Site, program: Program) -> Outcome<Self> {
        let said = output(Command::new(site.path(program)).arg("command-tree"))?;
        let tree: Value = serde_json::from_str(&said).map_err(|error| format!("command-tree: {error}"))?;
        let mut surface = Self::read(program, &tree)?;
        for offer in &mut surface.offers {
            let own = match (program, offer.path.join(" ").as_str()) {
                (Program::Forebay, "find") => Own::Find,
                (Program::Forebay, "mount") => Own::Mount,
                _ => continue,
            };
            let help = output(Command::new(site.path(program)).args(&offer.path).arg("--help"))?;
            let words = match own {
                Own::Find => find_tests(&help),
                Own::Mount => mount_options(&help),
            };
            if words.is_empty() {
                return Err(format!("the help of {} names no words of its own any more", offer.path.join(" ")));
            }
            offer.own = Some((own, words));
        }
        Ok(surface)
    }

    /// Reads what `command-tree` prints.
    pub fn read(program: Program, tree: &Value) -> Outcome<Self> {
        let offers = tree.as_array().ok_or("command-tree is no list")?;
        Ok(Self { program, offers: offers.iter().map(Offer::read).collect() })
    }

    /// The commands that help shows.
    pub fn shown(&self) -> impl Iterator<Item = &[String]> {
        self.offers.iter().filter(|offer| !offer.hidden).map(|offer| offer.path.as_slice())
    }

    /// All items.
    pub fn offered(&self) -> BTreeSet<String> {
        let mut all = BTreeSet::new();
        for offer in &self.offers {
            let name = self.name(offer);
            for option in &offer.options {
                let (shown, aliases) = (&option.names[0], &option.aliases);
                // Help is tested for every command, and all commands have the version.
                if shown == "--help" || shown == "--version" {
                    continue;
                }
                all.extend([shown].into_iter().chain(aliases).map(|one| format!("{name} {one}")));
                all.extend(option.values.iter().map(|value| format!("{name} {shown} {value}")));
            }
            let own = offer.own.iter().flat_map(|(_, words)| words);
            all.extend(offer.words.iter().chain(own).map(|word| format!("{name} {word}")));
            all.insert(name);
        }
        all
    }

    /// The items that these words use. Errors: the words name something that does not exist.
    pub fn used(&self, words: &[String]) -> Outcome<BTreeSet<String>> {
        let line = || format!("{} {}", self.program.name(), words.join(" "));
        let is_of = |offer: &&Offer| words.starts_with(&offer.path);
        let offer = self.offers.iter().filter(is_of).max_by_key(|offer| offer.path.len());
        let offer = offer.ok_or_else(|| format!("{}: there is no such command", line()))?;
        let name = self.name(offer);
        let mut used = BTreeSet::from([name.clone()]);
        let mut plain = 0;
        let mut words = words[offer.path.len()..].iter();
        let mut only_plain = false;
        while let Some(word) = words.next() {
            if let Some((Own::Find, tests)) = &offer.own {
                let test = if word.starts_with("-newer") && word.len() == 8 { "-newerXY" } else { word };
                used.extend(tests.get(test).map(|test| format!("{name} {test}")));
                used.insert(format!("{name} {}", offer.words[0]));
                continue;
            }
            if word == "--" {
                only_plain = true;
                continue;
            }
            if only_plain || !word.starts_with('-') || word == "-" {
                let known = offer.words.get(plain).or(offer.words.last());
                used.extend(known.map(|known| format!("{name} {known}")));
                plain += 1;
                continue;
            }
            let (called, value) =
                word.split_once('=').map_or((word.as_str(), None), |(name, value)| (name, Some(value)));
            let option = offer.options.iter().find(|option| option.is_called(called));
            let option = option.ok_or_else(|| format!("{}: {name} has no option {called}", line()))?;
            let shown = &option.names[0];
            let value = match (value, option.takes_value) {
                (None, true) => words.next().map(String::as_str),
                (value, _) => value,
            };
            let item = if option.aliases.iter().any(|alias| alias == called) { called } else { shown };
            used.insert(format!("{name} {item}"));
            let values = || value.into_iter().flat_map(|value| value.split(','));
            used.extend(
                values()
                    .filter(|value| option.values.iter().any(|one| one == value))
                    .map(|one| format!("{name} {shown} {one}")),
            );
            if let (Some((Own::Mount, known)), "-o") = (&offer.own, shown.as_str()) {
                let named = values().map(|value| value.split('=').next().unwrap_or_default());
                used.extend(named.filter(|one| known.contains(*one)).map(|one| format!("{name} {one}")));
            }
        }
        Ok(used)
    }

    /// Checks that there is a command, or a group of commands, that these words begin with, and that it has their long
    /// options.
    pub fn has(&self, words: &[&str]) -> Outcome {
        let line = || format!("{} {}", self.program.name(), words.join(" "));
        let is_of =
            |offer: &&Offer| offer.path.len() <= words.len() && offer.path.iter().zip(words).all(|(a, b)| a == b);
        let Some(offer) = self.offers.iter().filter(is_of).max_by_key(|offer| offer.path.len()) else {
            let is_group = self.offers.iter().any(|offer| words.len() == 1 && offer.path[0] == words[0]);
            return if is_group { Ok(()) } else { Err(format!("`{}`: there is no such command", line())) };
        };
        let options = words.iter().filter(|word| word.len() > 2 && word.starts_with("--"));
        let mut names = options.map(|word| word.split(['=', ',']).next().unwrap_or(word));
        match names.find(|name| !offer.options.iter().any(|option| option.is_called(name))) {
            Some(name) => Err(format!("`{}`: there is no option {name}", line())),
            None => Ok(()),
        }
    }

    fn name(&self, offer: &Offer) -> String {
        [self.program.name()].into_iter().chain(offer.path.iter().map(String::as_str)).collect::<Vec<_>>().join(" ")
    }
}

impl Offer {
    fn read(told: &Value) -> Self {
        Self {
            path: texts(&told["path"]),
            hidden: told["hidden"] == true,
            options: told["options"].as_array().into_iter().flatten().map(Choice::read).collect(),
            words: texts(&told["words"]).iter().map(|word| word.to_uppercase()).collect(),
            own: None,
        }
    }
}

impl Choice {
    fn read(told: &Value) -> Self {
        Self {
            names: texts(&told["names"]),
            aliases: texts(&told["aliases"]),
            values: texts(&told["values"]),
            takes_value: told["takes_value"] == true,
        }
    }

    fn is_called(&self, name: &str) -> bool {
        self.names.iter().chain(&self.aliases).any(|one| one == name)
    }
}

fn texts(told: &Value) -> Vec<String> {
    told.as_array().into_iter().flatten().filter_map(|text| text.as_str().map(str::to_owned)).collect()
}

/// Parses `-name|-iname PATTERN  -empty`: every word with a dash between "Tests:" and the end, and `!`.
fn find_tests(help: &str) -> BTreeSet<String> {
    let (_, tests) = help.split_once("Tests:").unwrap_or_default();
    let words = tests.split(|c: char| c.is_whitespace() || c == '|' || c == ',');
    let is_test = |word: &&str| {
        let name = word.strip_prefix('-').unwrap_or_default();
        *word == "!" || (!name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-'))
    };
    words.filter(is_test).map(str::to_owned).collect()
}

/// Parses `Options, as in fstab: commit=memory|data|commit, ro, ...`: words, some with `=`, between commas.
fn mount_options(help: &str) -> BTreeSet<String> {
    let (_, listed) = help.split_once("as in fstab:").unwrap_or_default();
    // The paragraph ends where the next option begins.
    let listed: String =
        listed.lines().take_while(|line| !line.trim_start().starts_with('-')).collect::<Vec<_>>().join(" ");
    let names = listed.split([',', ';']).map(|one| one.trim().split('=').next().unwrap_or_default());
    let is_name = |name: &&str| !name.is_empty() && name.chars().all(|c| c.is_ascii_lowercase() || c == '_');
    names.filter(is_name).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn surface() -> Surface {
        let option = |names: &[&str], aliases: &[&str], values: &[&str], takes_value: bool| json!({ "names": names, "aliases": aliases, "values": values, "takes_value": takes_value });
        let options = json!([
            option(&["--way", "-w"], &["--how"], &["dry", "wet"], true),
            option(&["--quick"], &[], &[], false),
            option(&["--help", "-h"], &[], &[], false)
        ]);
        let tree = json!([
            { "path": ["pool", "new"], "hidden": false, "options": [], "words": ["cluster", "pool"] },
            { "path": ["run"], "hidden": true, "options": options, "words": ["dirs"] }
        ]);
        Surface::read(Program::Forebay, &tree).expect("a tree")
    }

    fn used(line: &str) -> Vec<String> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        surface().used(&words).expect(line).into_iter().collect()
    }

    #[test]
    fn everything_on_offer_has_a_name_but_help() {
        let offered: Vec<_> = surface().offered().into_iter().collect();
        let options =
            ["--how", "--quick", "--way", "--way dry", "--way wet", "DIRS"].map(|one| format!("forebay run {one}"));
        let pool = ["", " CLUSTER", " POOL"].map(|one| format!("forebay pool new{one}"));
        assert_eq!(offered, [&pool[..], &["forebay run".to_owned()], &options].concat());
    }

    #[test]
    fn rows_use_what_they_name_and_values_are_no_options() {
        assert_eq!(used("pool new c p o"), ["forebay pool new", "forebay pool new CLUSTER", "forebay pool new POOL"]);
        assert_eq!(used("run -w dry"), ["forebay run", "forebay run --way", "forebay run --way dry"]);
        assert_eq!(used("run --how=-x d e"), ["forebay run", "forebay run --how", "forebay run DIRS"]);
        assert_eq!(used("run -- --quick"), ["forebay run", "forebay run DIRS"]);
    }

    #[test]
    fn a_row_that_names_what_is_not_there_is_refused() {
        for line in ["walk", "run --fast"] {
            let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            assert!(surface().used(&words).is_err(), "{line}");
        }
    }

    #[test]
    fn a_document_may_name_groups_commands_and_their_long_options() {
        let has = |line: &str| surface().has(&line.split(' ').collect::<Vec<_>>());
        for line in ["pool", "pool new c p", "run --way=dry", "run --quick X", "run --help"] {
            assert_eq!(has(line), Ok(()), "{line}");
        }
        for line in ["walk", "pool old", "run --fast", "pool new --quick"] {
            assert!(has(line).is_err(), "{line}");
        }
    }

    #[test]
    fn tests_of_find_and_options_of_mount_are_read_from_their_help() {
        let help = "Tests: -name|-iname PATTERN  -size|-blocks [+-]SIZE  -links [+-]N\n  -newer FILE, -newerXY FILE\nActions: -print0|-0\nA ! turns.";
        let found: Vec<_> = find_tests(help).into_iter().collect();
        assert_eq!(
            found,
            ["!", "-0", "-blocks", "-iname", "-links", "-name", "-newer", "-newerXY", "-print0", "-size"]
        );
        let help = "-o <OPTIONS>  Options, as in fstab: commit=memory|data, ro,\n  rpcs_in_flight=N; with remount ro, suid of a mount\n  -f, --foreground  Stay";
        let found: Vec<_> = mount_options(help).into_iter().collect();
        assert_eq!(found, ["commit", "ro", "rpcs_in_flight"]);
    }
}
