//! The measures as a text.

use std::fmt::Write;

use forebay_tests::source::{Lines, percentile};

use super::measures::{Client, Measures};

/// How many of the longest functions are named.
const NAMED: usize = 10;
/// Width of the first column.
const HEAD: usize = 42;

/// The tables of a tree, with those of an earlier revision beside them.
pub fn page(now: &Measures, earlier: Option<(&str, &Measures)>) -> String {
    let revision = earlier.map(|(revision, _)| revision);
    let earlier = earlier.map(|(_, measures)| measures);
    let mut page = crates(now, revision, earlier);
    page += "\n";
    page += &client(&now.client, revision, earlier.map(|measures| &measures.client));
    page += &longest(&now.client, "");
    if let (Some(revision), Some(earlier)) = (revision, earlier) {
        page += &longest(&earlier.client, &format!(" in {revision}"));
    }
    page
}

fn crates(now: &Measures, revision: Option<&str>, earlier: Option<&Measures>) -> String {
    let heads = |revision: &str| format!("{:>9}{:>9}{:>9}  {revision:<12}", "code", "tests", "comments");
    let head = format!("{:10}{}{}", "crate", heads(""), revision.map(heads).unwrap_or_default());
    let mut table = format!("{}\n", head.trim_end());
    let names = now.crates.keys().chain(earlier.iter().flat_map(|measures| measures.crates.keys()));
    let names: std::collections::BTreeSet<_> = names.collect();
    let of = |measures: &Measures, name: &str| measures.crates.get(name).copied().unwrap_or_default();
    for name in names {
        add_row(&mut table, name, of(now, name), earlier.map(|measures| of(measures, name)));
    }
    add_row(&mut table, "all", sum(now), earlier.map(sum));
    table
}

fn sum(measures: &Measures) -> Lines {
    let mut all = Lines::default();
    measures.crates.values().for_each(|lines| all += *lines);
    all
}

fn add_row(table: &mut String, name: &str, now: Lines, earlier: Option<Lines>) {
    let cells = |lines: Lines| format!("{:>9}{:>9}{:>9}{:14}", lines.code, lines.tests, lines.comments, "");
    let row = format!("{name:10}{}{}", cells(now), earlier.map(cells).unwrap_or_default());
    *table += row.trim_end();
    *table += "\n";
}

fn client(now: &Client, revision: Option<&str>, earlier: Option<&Client>) -> String {
    let head = format!("{:HEAD$}{:>20}{:>20}", "client", "", revision.unwrap_or_default());
    let mut table = format!("{}\n", head.trim_end());
    let mut row = |head: &str, value: &dyn Fn(&Client) -> String| {
        let earlier = earlier.map(value).unwrap_or_default();
        let row = format!("{head:HEAD$}{:>20}{earlier:>20}", value(now));
        let _ = writeln!(table, "{}", row.trim_end());
    };
    row("lines of code of its caching", &|client| client.caching.code.to_string());
    row("tests that need no cluster", &|client| client.unit_tests.to_string());
    row("their share of these and cluster tests", &share);
    row("types with more than 15 fields", &|client| client.large_types.len().to_string());
    row("functions", &|client| client.functions.len().to_string());
    row("lines of a function: p50, p90, max", &lengths);
    for one in &now.large_types {
        let _ = writeln!(table, "   {} has {} fields", one.name, one.fields);
    }
    table
}

fn share(client: &Client) -> String {
    let all = client.unit_tests + client.cluster_tests;
    format!("{} %", 100 * client.unit_tests / all.max(1))
}

fn lengths(client: &Client) -> String {
    let mut lines: Vec<usize> = client.functions.iter().map(|(_, function)| function.lines).collect();
    lines.sort();
    [50, 90, 100].map(|percent| percentile(&lines, percent).to_string()).join(", ")
}

fn longest(client: &Client, of: &str) -> String {
    let mut list = format!("\nlongest functions of the client{of}\n");
    for (file, function) in client.functions.iter().take(NAMED) {
        let _ = writeln!(list, "{:>5}  {}  {file}:{}", function.lines, function.name, function.line);
    }
    list
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use forebay_tests::source::Function;

    use super::*;

    fn measures(code: usize) -> Measures {
        let function = Function { name: "send".into(), line: 7, lines: code };
        let client = Client {
            unit_tests: 1,
            cluster_tests: 2,
            functions: vec![("io/write.rs".into(), function)],
            ..Client::default()
        };
        Measures { crates: BTreeMap::from([("client".into(), Lines { code, tests: 5, comments: 6 })]), client }
    }

    #[test]
    fn a_revision_stands_beside_the_tree() {
        let page = page(&measures(40), Some(("v1", &measures(30))));
        let row = |begins: &str| {
            let line = page.lines().find(|line| line.starts_with(begins)).unwrap_or_default();
            line.split_whitespace().collect::<Vec<_>>().join(" ")
        };
        assert_eq!(row("client  "), "client 40 5 6 30 5 6");
        assert_eq!(row("all"), "all 40 5 6 30 5 6");
        assert_eq!(row("their share"), "their share of these and cluster tests 33 % 33 %");
        assert_eq!(row("lines of a function"), "lines of a function: p50, p90, max 40, 40, 40 30, 30, 30");
        assert!(page.contains("longest functions of the client in v1\n   30  send  io/write.rs:7"), "{page}");
    }
}
