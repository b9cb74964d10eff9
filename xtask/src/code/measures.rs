//! What is measured of a tree.

use std::{collections::BTreeMap, path::Path};

use forebay_tests::{
    crates::{Files, modules, read_files},
    source::{Function, Lines, Source, Struct},
};

use crate::figures::Outcome;

/// The client's sources.
const CLIENT: &str = "crates/client/src/";
/// The files and folders of the client's caching: what it keeps, delays, and may keep and delay.
const CACHING: [&str; 4] = ["cache/", "delayed/", "leases/", "file.rs"];
/// Tests on simulated clusters.
const CLUSTER_TESTS: &str = "crates/sim/tests/";
/// A type with more fields has more than one idea.
const MOST_FIELDS: usize = 15;

/// The measures of one tree.
pub struct Measures {
    /// Lines by crate.
    pub crates: BTreeMap<String, Lines>,
    pub client: Client,
}

/// The measures of the client alone.
#[derive(Default)]
pub struct Client {
    /// Lines of its caching.
    pub caching: Lines,
    pub unit_tests: usize,
    /// Tests that simulate a cluster.
    pub cluster_tests: usize,
    /// Types with too many fields, largest first.
    pub large_types: Vec<Struct>,
    /// Functions with their files, longest first.
    pub functions: Vec<(String, Function)>,
}

impl Measures {
    /// Measures the tree in the directory `root`.
    pub fn take(root: &Path) -> Outcome<Self> {
        let files = read_files(root, &["crates", "tests", "xtask"], "rs");
        Self::of(&files.map_err(|error| format!("cannot read the code in {}: {error}", root.display()))?)
    }

    fn of(files: &Files) -> Outcome<Self> {
        let test_modules = test_modules(files)?;
        let mut measures = Self { crates: BTreeMap::new(), client: Client::default() };
        for (file, text) in files {
            let Some((name, inner)) = crate_of(file) else { continue };
            let source = Source::read(text).map_err(|error| format!("{file}: {error}"))?;
            let is_test = !inner.starts_with("src/") || test_modules.contains(file);
            let lines = if is_test { source.lines.of_test() } else { source.lines };
            *measures.crates.entry(name.to_owned()).or_default() += lines;
            measures.client.add(file, source, is_test, lines);
        }
        measures.client.large_types.sort_by_key(|one| std::cmp::Reverse(one.fields));
        measures.client.functions.sort_by_key(|(_, function)| std::cmp::Reverse(function.lines));
        Ok(measures)
    }
}

impl Client {
    fn add(&mut self, file: &str, source: Source, is_test: bool, lines: Lines) {
        if file.starts_with(CLUSTER_TESTS) {
            self.cluster_tests += source.tests.len();
        }
        let Some(inner) = file.strip_prefix(CLIENT) else { return };
        self.unit_tests += source.tests.len();
        if CACHING.iter().any(|part| inner.starts_with(part)) {
            self.caching += lines;
        }
        if !is_test {
            self.large_types.extend(source.structs.into_iter().filter(|one| one.fields > MOST_FIELDS));
            self.functions.extend(source.functions.into_iter().map(|function| (inner.to_owned(), function)));
        }
    }
}

/// The crate that a file belongs to, and the file's path in it.
fn crate_of(file: &str) -> Option<(&str, &str)> {
    file.strip_prefix("crates/").unwrap_or(file).split_once('/')
}

/// Files of modules below `#[cfg(test)]`.
fn test_modules(files: &Files) -> Outcome<Vec<String>> {
    let is_root = |file: &&String| file.starts_with("crates/") && file.ends_with("/src/lib.rs");
    let mut found = Vec::new();
    for root in files.keys().filter(is_root) {
        let tests = modules(files, root)?.into_iter().filter(|module| module.is_test);
        found.extend(tests.map(|module| module.file));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measures_of_a_small_tree() {
        let large: String = (0..16).map(|number| format!("f{number}: u8,\n")).collect();
        let file = |name: &str, text: &str| (name.to_owned(), text.to_owned());
        let files = Files::from([
            file("crates/client/src/lib.rs", "mod file;\nmod cache;\n#[cfg(test)]\nmod testing;\n"),
            file(
                "crates/client/src/cache/mod.rs",
                "// why\nfn f() {\n}\n#[cfg(test)]\nmod tests {\n#[test]\nfn t() {}\n}\n",
            ),
            file("crates/client/src/file.rs", &format!("struct File {{\n{large}}}\nstruct Small {{ a: u8 }}\n")),
            file("crates/client/src/testing.rs", "fn help() {}\n"),
            file("crates/sim/tests/scenes/main.rs", "#[test]\nfn a() {}\n#[test]\nfn b() {}\n"),
            file("xtask/src/main.rs", "fn main() {}\n"),
        ]);
        let measures = Measures::of(&files).expect("they are Rust");
        let lines = |code, tests, comments| Lines { code, tests, comments };
        assert_eq!(measures.crates["client"], lines(2 + 2 + 19, 2 + 5 + 1, 1));
        assert_eq!(measures.crates["sim"], lines(0, 4, 0));
        assert_eq!(measures.crates["xtask"], lines(1, 0, 0));
        let client = measures.client;
        assert_eq!((client.caching, client.unit_tests, client.cluster_tests), (lines(21, 5, 1), 1, 2));
        assert_eq!(client.large_types, [Struct { name: "File".into(), fields: 16 }]);
        assert_eq!(client.functions, [("cache/mod.rs".to_owned(), Function { name: "f".into(), line: 2, lines: 2 })]);
    }
}
