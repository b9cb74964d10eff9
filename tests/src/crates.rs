//! The files of the tree, and the modules of a crate with the edges between them.
//!
//! A module is a file. An edge is a path that begins with `crate` or `super`, or with a name imported by such a path,
//! outside tests. It leads to the module that defines the item: re-exports are followed. A path to a module's own child
//! by the child's name is no edge, because every parent has these.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use crate::source::{Import, Source};

/// Texts of files by their path below the root of the tree.
pub type Files = BTreeMap<String, String>;

/// A module in a file of its own.
pub struct Module {
    /// Its path in the crate; empty for the root.
    pub path: Vec<String>,
    pub file: String,
    pub is_test: bool,
    pub source: Source,
}

/// Modules of a crate that depend on each other, in order.
pub type Component = BTreeSet<String>;

/// Edges with one place each: from, to, and `file:line path`.
pub type Edges = BTreeMap<(String, String), String>;

/// How many re-exports a path may lead through.
const REEXPORTS: usize = 8;

/// Files below `folders` of `root` with the extension `extension`.
///
/// # Errors
/// A folder or a file cannot be read.
pub fn read_files(root: &Path, folders: &[&str], extension: &str) -> std::io::Result<Files> {
    let mut files = Files::new();
    for folder in folders {
        read_folder(root, &root.join(folder), extension, &mut files)?;
    }
    Ok(files)
}

#[allow(clippy::disallowed_methods)] // reads the sources of the tree, as an editor would
fn read_folder(root: &Path, folder: &Path, extension: &str, files: &mut Files) -> std::io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            read_folder(root, &path, extension, files)?;
        } else if path.extension().is_some_and(|found| found == extension) {
            let name = path.strip_prefix(root).unwrap_or(&path).to_string_lossy().into_owned();
            files.insert(name, std::fs::read_to_string(&path)?);
        }
    }
    Ok(())
}

/// The modules of the crate whose root is the file `root`.
///
/// # Errors
/// A file is missing or is not Rust.
pub fn modules(files: &Files, root: &str) -> Result<Vec<Module>, String> {
    let mut found = Vec::new();
    let mut waiting = vec![(Vec::new(), root.to_owned(), false)];
    while let Some((path, file, is_test)) = waiting.pop() {
        let text = files.get(&file).ok_or_else(|| format!("{file} is missing"))?;
        let source = Source::read(text).map_err(|error| format!("{file}: {error}"))?;
        for child in &source.modules {
            let inner: Vec<String> = path.iter().chain([&child.name]).cloned().collect();
            let child_file = file_of(files, &file, root, &child.name)?;
            waiting.push((inner, child_file, is_test || child.is_test));
        }
        found.push(Module { path, file, is_test, source });
    }
    found.sort_by(|a, b| a.file.cmp(&b.file));
    Ok(found)
}

fn file_of(files: &Files, parent: &str, root: &str, name: &str) -> Result<String, String> {
    let stem = match parent == root || parent.ends_with("/mod.rs") {
        true => parent.rsplit_once('/').map_or("", |(folder, _)| folder),
        false => parent.trim_end_matches(".rs"),
    };
    let choices = [format!("{stem}/{name}.rs"), format!("{stem}/{name}/mod.rs")];
    choices.into_iter().find(|file| files.contains_key(file)).ok_or_else(|| format!("{parent}: no file of mod {name}"))
}

/// The edges between `modules`.
pub fn edges(modules: &[Module]) -> Edges {
    let modules: BTreeMap<&[String], &Module> = modules.iter().map(|module| (&module.path[..], module)).collect();
    let mut edges = Edges::new();
    for from in modules.values().filter(|module| !module.is_test) {
        let imports = from.source.imports.iter().map(|import| &import.path);
        for path in imports.chain(&from.source.paths) {
            let target = target(&modules, from, &path.segments, REEXPORTS);
            if let Some(to) = target.filter(|to| to.path != from.path) {
                let place = format!("{}:{} {}", from.file, path.line, path.segments.join("::"));
                edges.entry((name(from), name(to))).or_insert(place);
            }
        }
    }
    edges
}

/// The name of a module in lists.
fn name(module: &Module) -> String {
    if module.path.is_empty() { "crate".into() } else { module.path.join("::") }
}

/// The module that a path in `from` leads to.
fn target<'a>(
    modules: &BTreeMap<&[String], &'a Module>,
    from: &'a Module,
    segments: &[String],
    reexports: usize,
) -> Option<&'a Module> {
    let supers = segments.iter().take_while(|segment| *segment == "super").count();
    match segments.first()?.as_str() {
        "crate" => descend(modules, from, Vec::new(), &segments[1..], reexports),
        "super" => {
            let depth = from.path.len().checked_sub(supers)?;
            descend(modules, from, from.path[..depth].to_vec(), &segments[supers..], reexports)
        }
        _ => {
            let (Import { path: import, .. }, rest) = import(from, segments)?;
            let begins = import.segments.first().is_some_and(|first| first == "crate" || first == "super");
            target(modules, from, &[&import.segments, rest].concat(), reexports.checked_sub(1).filter(|_| begins)?)
        }
    }
}

/// The import of `from` that brought the first segment into scope.
fn import<'a>(from: &'a Module, segments: &'a [String]) -> Option<(&'a Import, &'a [String])> {
    let import = from.source.imports.iter().find(|import| import.name == segments[0])?;
    // An import of the same name from itself, as in `use bytes;`, leads nowhere.
    (import.path.segments.len() > 1).then_some((import, &segments[1..]))
}

/// Follows `rest` from the module at `path`, through its imports that `from` may use.
fn descend<'a>(
    modules: &BTreeMap<&[String], &'a Module>,
    from: &'a Module,
    mut path: Vec<String>,
    rest: &[String],
    reexports: usize,
) -> Option<&'a Module> {
    for (index, segment) in rest.iter().enumerate() {
        path.push(segment.clone());
        if modules.contains_key(&path[..]) {
            continue;
        }
        path.pop();
        let here = *modules.get(&path[..])?;
        let import =
            import(here, &rest[index..]).filter(|(import, _)| import.is_public || from.path.starts_with(&path));
        let Some((Import { path: import, .. }, after)) = import else { return Some(here) };
        let own_child = || descend(modules, from, path.clone(), &[&import.segments, after].concat(), reexports - 1);
        return match import.segments[0].as_str() {
            _ if reexports == 0 => Some(here),
            "crate" | "super" => target(modules, here, &[&import.segments, after].concat(), reexports - 1),
            "self" => descend(modules, from, path, &[&import.segments[1..], after].concat(), reexports - 1),
            child => match modules.contains_key(&[&path[..], &[child.to_owned()]].concat()[..]) {
                true => own_child(),
                // Of another crate.
                false => None,
            },
        };
    }
    modules.get(&path[..]).copied()
}

/// Sets of two and more modules each of which reaches all others of its set.
pub fn components(edges: &Edges) -> BTreeSet<Component> {
    let reached = |from: &str| {
        let mut reached = BTreeSet::new();
        let mut waiting = vec![from];
        while let Some(at) = waiting.pop() {
            let next = edges.keys().filter(|(from, _)| from == at).map(|(_, to)| to);
            waiting.extend(next.filter(|to| reached.insert((*to).clone())).map(String::as_str));
        }
        reached
    };
    let all: BTreeMap<&String, BTreeSet<String>> = edges.keys().map(|(from, _)| (from, reached(from))).collect();
    let mutual = |from: &String, to: &String| all[from].contains(to) && all.get(to).is_some_and(|r| r.contains(from));
    let component = |from: &&String| all[*from].iter().filter(|to| mutual(from, to)).cloned().collect::<Component>();
    all.keys().map(component).filter(|component| component.len() > 1).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Edges of a crate of these files, as `from to`.
    fn edges_of(files: &[(&str, &str)]) -> Vec<String> {
        found(files).into_keys().map(|(from, to)| format!("{from} {to}")).collect()
    }

    fn found(files: &[(&str, &str)]) -> Edges {
        let files: Files = files.iter().map(|(name, text)| (format!("src/{name}"), (*text).to_owned())).collect();
        edges(&modules(&files, "src/lib.rs").expect("a crate"))
    }

    #[test]
    fn paths_of_other_modules_are_edges_and_those_of_tests_and_own_children_are_none() {
        let lib = "mod a; mod b; #[cfg(test)] mod testing; pub use a::A; pub use b::inner::run;";
        let b =
            "mod inner; use inner::run; fn f() { inner::run() }\n#[cfg(test)]\nmod tests { use crate::testing::X; }";
        let found = edges_of(&[
            ("lib.rs", lib),
            ("a.rs", "pub struct A; fn f() { crate::b::f() }"),
            ("b/mod.rs", b),
            ("b/inner.rs", "pub fn run() { super::f() }"),
            ("testing.rs", "use crate::a::A;"),
        ]);
        assert_eq!(found, ["a b", "b::inner b"]);
    }

    #[test]
    fn an_edge_leads_to_where_the_item_is_defined() {
        let found = edges_of(&[
            ("lib.rs", "mod a; mod b; pub use b::Thing; pub struct Own; pub use bytes::Bytes;"),
            ("a.rs", "use crate::Thing; use crate::Own; use crate::Bytes; use crate::b; fn f() { b::deep::g() }"),
            ("b.rs", "pub mod deep; pub use deep::Thing;"),
            ("b/deep.rs", "pub struct Thing; fn g() {}"),
        ]);
        assert_eq!(found, ["a b", "a b::deep", "a crate"]);
    }

    #[test]
    fn a_private_import_is_not_followed_from_outside() {
        let found = edges_of(&[
            ("lib.rs", "mod a; mod b; mod serve;"),
            ("a.rs", "use crate::b; fn f() { b::serve() }"),
            ("b.rs", "use crate::serve; pub fn serve() { serve::run() }"),
            ("serve.rs", "pub fn run() {}"),
        ]);
        assert_eq!(found, ["a b", "b serve"]);
    }

    #[test]
    fn an_edge_names_its_first_place() {
        let found = found(&[("lib.rs", "mod a;\nmod b;"), ("a.rs", "\nuse super::b::B;"), ("b.rs", "pub struct B;")]);
        assert_eq!(found.into_values().collect::<Vec<_>>(), ["src/a.rs:2 super::b::B"]);
    }

    #[test]
    fn modules_that_reach_each_other_are_one_component() {
        let edge = |edge: &str| {
            let (from, to) = edge.split_once(' ').expect("two names");
            ((from.to_owned(), to.to_owned()), String::new())
        };
        let edges: Edges = ["a b", "b c", "c a", "c d", "d e", "f g", "g f"].into_iter().map(edge).collect();
        let found: Vec<String> =
            components(&edges).into_iter().map(|names| names.into_iter().collect::<Vec<_>>().join(" ")).collect();
        assert_eq!(found, ["a b c", "f g"]);
    }

    #[test]
    fn a_module_without_a_file_is_an_error() {
        let files = Files::from([("src/lib.rs".into(), "mod gone;".into())]);
        assert!(modules(&files, "src/lib.rs").is_err_and(|error| error.contains("gone")));
    }
}
