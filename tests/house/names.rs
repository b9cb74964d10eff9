//! Names in the documents exist: paths of the tree, types, functions, constants and planted bugs.
//!
//! Commands and their options are checked by `xtask every-command`, which asks the programs for them.

use std::{collections::BTreeSet, path::Path};

use forebay_tests::crates::{Files, read_files};

use super::root;

/// Documents: these folders, and the pages at the top of the tree. CHANGELOG.md speaks of earlier states.
const FOLDERS: &[&str] = &["docs"];
const PAGES: &[&str] = &["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"];

/// Extensions that make a name without a folder the name of a file.
const EXTENSIONS: &[&str] = &[".rs", ".md", ".toml", ".csv", ".txt"];

#[test]
fn names_in_documents_exist() {
    let tree = Tree::read(&root());
    let mut documents = read_files(&root(), FOLDERS, "md").expect("the documents are readable");
    for page in PAGES {
        documents.insert((*page).to_owned(), std::fs::read_to_string(root().join(page)).expect("a page"));
    }
    let unknown: Vec<String> = documents.iter().flat_map(|(name, text)| unknown(&tree, name, text)).collect();
    assert!(unknown.is_empty(), "\n{}", unknown.join("\n"));
}

/// Scenes show promises: a page lists which. These three files have no tests of their own.
#[test]
fn every_scene_is_named_in_the_page_of_promises() {
    let page = std::fs::read_to_string(root().join("docs/promises.md")).expect("a page");
    let scenes = read_files(&root(), &["crates/sim/tests/scenes"], "rs").expect("the scenes are readable");
    let names = scenes.keys().filter_map(|path| path.strip_prefix("crates/sim/tests/scenes/"));
    let scenes = names.filter(|name| !name.contains('/') && !["main.rs", "scene.rs", "site.rs"].contains(name));
    let absent: Vec<&str> = scenes.filter(|name| !page.contains(&format!("{name}`"))).collect();
    assert!(absent.is_empty(), "docs/promises.md has no row for {absent:?}");
}

/// Everything that a document may name.
#[derive(Default)]
struct Tree {
    /// Files and folders.
    paths: BTreeSet<String>,
    crates: BTreeSet<String>,
    /// Words of the sources, without comments.
    words: BTreeSet<String>,
    bugs: BTreeSet<String>,
}

impl Tree {
    fn read(root: &Path) -> Self {
        let mut tree = Self::default();
        tree.add_paths(root, "");
        let mut sources = read_files(root, &["crates", "tests", "xtask"], "rs").expect("the sources are readable");
        // Its fixtures are no names of the project.
        sources.retain(|path, _| !path.ends_with("house/names.rs"));
        tree.add_words(&sources);
        tree.bugs = forebay_env::Bug::ALL.iter().map(|bug| bug.name().to_owned()).collect();
        tree
    }

    fn add_paths(&mut self, folder: &Path, prefix: &str) {
        for entry in std::fs::read_dir(folder).expect("a folder of the tree") {
            let entry = entry.expect("an entry");
            let name = entry.file_name().to_string_lossy().into_owned();
            let is_folder = entry.path().is_dir();
            // What cargo and git keep here is no part of the tree.
            if !(prefix.is_empty() && ["target", ".git"].contains(&name.as_str())) {
                let path = format!("{prefix}{name}");
                if is_folder {
                    self.add_paths(&entry.path(), &format!("{path}/"));
                }
                self.add_path(path);
            }
        }
    }

    fn add_path(&mut self, path: String) {
        if let Some((name, _)) = path.strip_prefix("crates/").and_then(|inner| inner.split_once('/')) {
            self.crates.insert(name.to_owned());
        }
        self.paths.insert(path);
    }

    fn add_words(&mut self, sources: &Files) {
        let is_word = |character: char| character.is_alphanumeric() || character == '_';
        let code = sources.values().flat_map(|text| text.lines()).filter(|line| !line.trim_start().starts_with("//"));
        for line in code {
            self.words.extend(line.split(|character| !is_word(character)).map(str::to_owned));
        }
    }

    /// A path as documents write it: from the root, from the document, from `crates`, without `src`, or its end alone.
    fn has_path(&self, document: &str, path: &str) -> bool {
        let path = path.trim_end_matches('/');
        let folder = Path::new(document).parent().unwrap_or(Path::new(""));
        let from_document = folder.join(path).to_string_lossy().into_owned();
        let in_source = path.split_once('/').map(|(name, inner)| format!("crates/{name}/src/{inner}"));
        let whole = [path.to_owned(), from_document, format!("crates/{path}")].into_iter().chain(in_source);
        let end = format!("/{path}");
        whole.flat_map(|path| [format!("{path}.rs"), path]).any(|path| self.matches(&path))
            || self.paths.iter().any(|known| known.ends_with(&end))
    }

    /// A part `NAME`, or a `*` in a part, stands for any.
    fn matches(&self, path: &str) -> bool {
        self.paths.contains(path) || self.paths.iter().any(|known| same_parts(&path.replace("NAME", "*"), known))
    }

    fn is_path(&self, text: &str) -> bool {
        let is_character = |character: char| character.is_ascii_alphanumeric() || "_-./*{},".contains(character);
        let first = text.split('/').next().unwrap_or_default();
        let is_below = text.contains('/') && (self.paths.contains(first) || self.crates.contains(first));
        let is_file = EXTENSIONS.iter().any(|extension| text.ends_with(extension) && text.len() > extension.len());
        text.chars().all(is_character) && !text.starts_with('/') && (is_below || is_file)
    }
}

/// True if the paths agree part by part, where the first one may have one `*` in a part.
fn same_parts(pattern: &str, path: &str) -> bool {
    let same = |(pattern, part): (&str, &str)| match pattern.split_once('*') {
        Some((begin, end)) => part.len() + 1 >= pattern.len() && part.starts_with(begin) && part.ends_with(end),
        None => pattern == part,
    };
    pattern.contains('*')
        && pattern.split('/').count() == path.split('/').count()
        && pattern.split('/').zip(path.split('/')).all(same)
}

/// What a document names and `tree` does not have, each with the document.
fn unknown(tree: &Tree, document: &str, text: &str) -> Vec<String> {
    let text = without_blocks(text);
    let spans = spans(&text).into_iter();
    let named = spans.filter_map(|span| unknown_in(tree, document, span).map(|what| format!("{what} `{span}`")));
    let bugs = planted(&text).into_iter().filter(|bug| !tree.bugs.contains(*bug));
    named.chain(bugs.map(|bug| format!("planted bug `{bug}`"))).map(|name| format!("{document}: no {name}")).collect()
}

fn unknown_in(tree: &Tree, document: &str, span: &str) -> Option<&'static str> {
    if tree.is_path(span) {
        return alternatives(span).iter().any(|path| !tree.has_path(document, path)).then_some("path");
    }
    let last = span.trim_end_matches("()").split("::").last().unwrap_or_default();
    let kind = if is_type(last) {
        "type"
    } else if is_constant(last) {
        "constant"
    } else if is_long_name(last) {
        "function or name"
    } else {
        return None;
    };
    (!tree.words.contains(last)).then_some(kind)
}

/// `CAPITALS_OF_A_CONSTANT`, of two words and more: one word may be an errno, or a state. Names of the kernel's protocol
/// are not ours.
fn is_constant(word: &str) -> bool {
    let is_plain = word.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_');
    is_plain
        && word.starts_with(|first: char| first.is_ascii_uppercase())
        && word.contains('_')
        && !word.starts_with("FUSE_")
}

/// `CamelCase` of two words and more.
fn is_type(word: &str) -> bool {
    let capitals = word.chars().filter(char::is_ascii_uppercase).count();
    let is_plain = word.chars().all(|character| character.is_ascii_alphanumeric());
    let is_mixed = word.contains(|character: char| character.is_ascii_lowercase());
    is_plain && is_mixed && word.starts_with(|first: char| first.is_ascii_uppercase()) && capitals > 1
}

/// `a_name_of_many_words`, as tests have. Names of metrics are put together from parts.
fn is_long_name(word: &str) -> bool {
    !word.starts_with("forebay_")
        && word.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
        && word.matches('_').count() >= 4
}

/// Writes out `a/{b,c}`.
fn alternatives(path: &str) -> Vec<String> {
    let parts = path.split_once('{').and_then(|(begin, rest)| Some((begin, rest.split_once('}')?)));
    match parts {
        Some((begin, (list, end))) => {
            list.split(',').flat_map(|one| alternatives(&format!("{begin}{one}{end}"))).collect()
        }
        None => vec![path.to_owned()],
    }
}

/// The text without its blocks of code.
fn without_blocks(text: &str) -> String {
    text.split("\n```").step_by(2).collect::<Vec<_>>().join("\n")
}

/// What stands between backticks.
fn spans(text: &str) -> Vec<&str> {
    text.lines().flat_map(|line| line.split('`').skip(1).step_by(2)).collect()
}

/// The names in sentences that begin with `Planted:`.
fn planted(text: &str) -> Vec<&str> {
    let sentences = text.split("Planted:").skip(1).map(|rest| rest.split(['.', ';']).next().unwrap_or_default());
    sentences.flat_map(|sentence| sentence.split('`').skip(1).step_by(2)).filter(|name| !name.contains('/')).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree() -> Tree {
        let mut tree = Tree::default();
        let paths =
            ["crates", "crates/mds/src", "crates/mds/src/ops/rename.rs", "crates/oss/src", "docs", "docs/format.md"];
        paths.into_iter().for_each(|path| tree.add_path(path.to_owned()));
        tree.add_words(&Files::from([(
            "a.rs".into(),
            "// OldType OLD_BYTES\nstruct DirEntry; fn a_late_write_is_refused() {}\nconst NAME_BYTES: usize = 255;"
                .into(),
        )]));
        tree.bugs.insert("sums-skipped".into());
        tree
    }

    #[test]
    fn what_exists_may_be_named_in_every_customary_form() {
        let text = "`crates/mds/src/ops/rename.rs` `mds/ops/rename.rs` `mds/ops/rename` `ops/rename.rs` `rename.rs` \
                    `crates/{mds,oss}/src` `crates/mds/src/ops/NAME.rs` `format.md` `mds::DirEntry` `DirEntry::new()` \
                    `a_late_write_is_refused` `NAME_BYTES` `limits::NAME_BYTES`. Planted: `sums-skipped`. `/dev/nothing.rs` `a/b` \
                    `OK` `EIO` `mds` `FUSE_DEV_IOC_CLONE` `FOREBAY_SEED=N`";
        assert_eq!(unknown(&tree(), "docs/page.md", text), Vec::<String>::new());
    }

    #[test]
    fn what_does_not_exist_is_reported_with_its_document() {
        let text = "`mds/ops/link.rs` `crates/{mds,gone}/src` `NoType` `OldType` `limits::OLD_BYTES` `an_early_write_is_refused`.\n```\n`Block.rs`\n```\n\
                    Planted: `sums-skipped`, `gone-bug`.";
        let found = unknown(&tree(), "docs/page.md", text);
        let expected = [
            "path `mds/ops/link.rs`",
            "path `crates/{mds,gone}/src`",
            "type `NoType`",
            "type `OldType`",
            "constant `limits::OLD_BYTES`",
            "function or name `an_early_write_is_refused`",
            "planted bug `gone-bug`",
        ];
        assert_eq!(found, expected.map(|name| format!("docs/page.md: no {name}")));
    }
}
