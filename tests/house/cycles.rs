//! Modules of a crate do not depend on each other in a circle. A module is a file; `forebay_tests::crates` says what
//! counts as an edge: paths to items do, calls of methods do not. An `impl` of a type in another file adds none.

use std::{collections::BTreeSet, fmt::Write};

use forebay_tests::crates::{Component, Edges, components, edges, modules, read_files};

use super::root;

/// The crates that are checked, with the root of each.
const CRATES: &[(&str, &str)] =
    &[("client", "crates/client/src/lib.rs"), ("cli", "crates/cli/src/main.rs"), ("mds", "crates/mds/src/lib.rs")];

/// Modules that depend on each other for now, in one line per component. Lines only leave this list.
const ALLOWED: &[(&str, &str)] = &[("cli", "down metrics::of_cluster up up::servers")];

#[test]
fn modules_of_a_crate_depend_on_each_other_in_no_circle() {
    let files = read_files(&root(), &["crates"], "rs").expect("the crates are readable");
    let mut complaints = String::new();
    for (name, top) in CRATES {
        let edges = edges(&modules(&files, top).expect("a crate of files"));
        let allowed = ALLOWED.iter().filter(|(of, _)| of == name).map(|(_, modules)| component(modules)).collect();
        complaints += &differences(name, &edges, &allowed);
    }
    assert!(complaints.is_empty(), "\n{complaints}");
}

fn component(modules: &str) -> Component {
    modules.split(' ').map(str::to_owned).collect()
}

/// The components that are not listed, with their edges, and the listed ones that are gone.
fn differences(name: &str, edges: &Edges, allowed: &BTreeSet<Component>) -> String {
    let found = components(edges);
    let line = |component: &Component| component.iter().cloned().collect::<Vec<_>>().join(" ");
    let mut told = String::new();
    for new in found.difference(allowed) {
        let _ = writeln!(told, "{name}: these modules depend on each other: {}", line(new));
        for ((from, to), place) in edges.iter().filter(|((from, to), _)| new.contains(from) && new.contains(to)) {
            let _ = writeln!(told, "   {from} -> {to}   {place}");
        }
    }
    for gone in allowed.difference(&found) {
        let _ = writeln!(told, "{name}: no longer a component, so strike it from ALLOWED: {}", line(gone));
    }
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(pairs: &[&str], allowed: &[&str]) -> String {
        let edge = |pair: &&str| {
            let (from, to) = pair.split_once(' ').expect("two names");
            ((from.to_owned(), to.to_owned()), format!("{from}.rs:1 crate::{to}"))
        };
        let edges: Edges = pairs.iter().map(edge).collect();
        differences("client", &edges, &allowed.iter().map(|modules| component(modules)).collect())
    }

    #[test]
    fn a_listed_component_is_allowed_and_a_tree_without_circles_is_fine() {
        assert_eq!(told(&["a b", "b a", "b c"], &["a b"]), "");
        assert_eq!(told(&["a b", "b c"], &[]), "");
    }

    #[test]
    fn a_new_component_is_reported_with_its_edges_only() {
        let told = told(&["a b", "b a", "b c"], &[]);
        assert!(told.contains("depend on each other: a b\n   a -> b   a.rs:1 crate::b\n   b -> a"), "{told}");
        assert!(!told.contains("-> c"), "{told}");
    }

    #[test]
    fn a_component_that_grew_is_reported_as_new_and_as_gone() {
        let told = told(&["a b", "b c", "c a"], &["a b"]);
        assert!(told.contains("depend on each other: a b c\n"), "{told}");
        assert!(told.contains("strike it from ALLOWED: a b\n"), "{told}");
    }

    #[test]
    fn a_listed_component_that_vanished_is_reported() {
        assert!(told(&["a b"], &["a b"]).contains("strike it from ALLOWED: a b\n"));
    }
}
