//! Modules of a crate do not depend on each other in a circle. A module is a file; `forebay_tests::crates` says what
//! counts as an edge: paths to items do, calls of methods do not. An `impl` of a type in another file adds none.

use std::fmt::Write;

use forebay_tests::crates::{Edges, components, edges, modules, read_files};

use super::root;

/// The crates without circles, with the root of each. `env`, `fuse`, `oss`, `store` and `target` have some, and `xtask`
/// has a file outside its tree.
const CRATES: &[(&str, &str)] = &[
    ("bench", "crates/bench/src/lib.rs"),
    ("cli", "crates/cli/src/main.rs"),
    ("client", "crates/client/src/lib.rs"),
    ("command", "crates/command/src/lib.rs"),
    ("decoders", "crates/decoders/src/lib.rs"),
    ("fsck", "crates/fsck/src/lib.rs"),
    ("history", "crates/history/src/lib.rs"),
    ("lab", "crates/lab/src/lib.rs"),
    ("mds", "crates/mds/src/lib.rs"),
    ("proto", "crates/proto/src/lib.rs"),
    ("rpc", "crates/rpc/src/lib.rs"),
    ("sim", "crates/sim/src/lib.rs"),
    ("tests", "tests/src/lib.rs"),
];

#[test]
fn modules_of_a_crate_depend_on_each_other_in_no_circle() {
    let files = read_files(&root(), &["crates", "tests"], "rs").expect("the crates are readable");
    let mut complaints = String::new();
    for (name, top) in CRATES {
        complaints += &circles(name, &edges(&modules(&files, top).expect("a crate of files")));
    }
    assert!(complaints.is_empty(), "\n{complaints}");
}

/// The components of a crate, each with its edges.
fn circles(name: &str, edges: &Edges) -> String {
    let mut told = String::new();
    for component in components(edges) {
        let line = component.iter().cloned().collect::<Vec<_>>().join(" ");
        let _ = writeln!(told, "{name}: these modules depend on each other: {line}");
        let inner = |from: &String, to: &String| component.contains(from) && component.contains(to);
        for ((from, to), place) in edges.iter().filter(|((from, to), _)| inner(from, to)) {
            let _ = writeln!(told, "   {from} -> {to}   {place}");
        }
    }
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(pairs: &[&str]) -> String {
        let edge = |pair: &&str| {
            let (from, to) = pair.split_once(' ').expect("two names");
            ((from.to_owned(), to.to_owned()), format!("{from}.rs:1 crate::{to}"))
        };
        circles("client", &pairs.iter().map(edge).collect())
    }

    #[test]
    fn a_tree_without_circles_is_fine() {
        assert_eq!(told(&["a b", "b c", "a c"]), "");
    }

    #[test]
    fn a_component_is_reported_with_its_edges_only() {
        let told = told(&["a b", "b a", "b c"]);
        assert!(told.contains("depend on each other: a b\n   a -> b   a.rs:1 crate::b\n   b -> a"), "{told}");
        assert!(!told.contains("-> c"), "{told}");
    }

    #[test]
    fn every_component_is_reported() {
        let told = told(&["a b", "b c", "c a", "d e", "e d"]);
        assert!(told.contains("depend on each other: a b c\n") && told.contains("each other: d e\n"), "{told}");
    }
}
