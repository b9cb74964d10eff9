//! Request sizes: those of clients' requests, and those that reached the devices ([Spider] figures 10 and 11).

use std::collections::BTreeMap;

use forebay_command::{
    table::align,
    units::{show_bytes, show_count},
};
use serde_json::Value;

/// Upper bounds of the columns, in KiB, with their heads. A further column counts larger requests.
const COLUMNS: [(u64, &str); 9] = [
    (4, "4K"),
    (8, "8K"),
    (16, "16K"),
    (32, "32K"),
    (64, "64K"),
    (128, "128K"),
    (256, "256K"),
    (512, "512K"),
    (1024, "1M"),
];

/// The requests of one kind.
#[derive(Clone, Debug, Default)]
struct Sizes {
    count: u64,
    bytes: u64,
    columns: [u64; COLUMNS.len() + 1],
}

impl Sizes {
    fn add(&mut self, json: &Value) {
        self.count += json["count"].as_u64().unwrap_or(0);
        self.bytes += json["bytes"].as_u64().unwrap_or(0);
        for bucket in json["sizes"].as_array().into_iter().flatten() {
            let bound = bucket["up_to"].as_u64().unwrap_or(u64::MAX);
            let column = COLUMNS.iter().position(|(kib, _)| bound <= kib << 10).unwrap_or(COLUMNS.len());
            self.columns[column] += bucket["count"].as_u64().unwrap_or(0);
        }
    }

    fn cells(&self) -> Vec<String> {
        let percent = |count: &u64| match (100.0 * *count as f64 / self.count as f64, count) {
            (_, 0) => ".".into(),
            (percent, _) if percent < 0.5 => "<1".into(),
            (percent, _) => format!("{percent:.0}"),
        };
        let sums = [show_count(self.count), show_bytes(self.bytes)];
        sums.into_iter().chain(self.columns.iter().map(percent)).collect()
    }
}

/// Lines after an empty line; nothing if there was no request. `each`: one for every target and device, otherwise for
/// all OSTs and MDTs together.
pub fn table<'a>(targets: impl Iterator<Item = &'a Value>, each: bool) -> Vec<String> {
    let mut kinds: BTreeMap<(String, u8, String), Sizes> = BTreeMap::new();
    for target in targets {
        let name = target["name"].as_str().unwrap_or_default();
        let all = if target["kind"] == "mdt" { "all MDTs" } else { "all OSTs" };
        let who = if each { name } else { all };
        for (order, what, json) in of_target(target, each) {
            kinds.entry((who.to_owned(), order, what)).or_default().add(json);
        }
    }
    kinds.retain(|_, sizes| sizes.count > 0);
    if kinds.is_empty() {
        return Vec::new();
    }
    let bounds = COLUMNS.iter().map(|(_, head)| *head);
    let heads = ["requests", "number", "bytes"].into_iter().chain(bounds).chain([">1M"]).map(str::to_owned).collect();
    let rows = kinds.iter().map(|((who, _, what), sizes)| {
        let first = format!("{who} {what}");
        [first].into_iter().chain(sizes.cells()).collect::<Vec<String>>()
    });
    let rows: Vec<Vec<String>> = [heads].into_iter().chain(rows).collect();
    let explained = "Of each 100 requests, so many of at most this size and more than the next smaller:";
    let lines = [String::new(), explained.to_owned()].into_iter().chain(align(&rows));
    let hint = (!each).then(|| "(of each target and device: --devices)".to_owned());
    lines.chain(hint).collect()
}

/// The kinds of requests in display order: clients' requests before those to devices.
fn of_target(target: &Value, each: bool) -> Vec<(u8, String, &Value)> {
    let mut kinds = Vec::new();
    for (order, direction, asked, done) in
        [(0, "writes", "asked to write", "written"), (4, "reads", "asked to read", "read")]
    {
        kinds.push((order, asked.to_owned(), &target["asked"][direction]));
        for device in target["devices"].as_array().into_iter().flatten() {
            let part = device["device"].as_str().unwrap_or("?");
            let order = order + if part == "data" { 1 } else { 2 };
            let copy = match device["copy"].as_u64() {
                Some(copy) if each && copy > 0 => format!(", copy {}", copy + 1),
                _ => String::new(),
            };
            kinds.push((order, format!("{part} {done}{copy}"), &device[direction]));
        }
    }
    kinds
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn ost(name: &str) -> Value {
        let sizes = |list: &[(u64, u64)]| {
            let count: u64 = list.iter().map(|(_, count)| count).sum();
            let bytes: u64 = list.iter().map(|(bound, count)| bound * count).sum();
            let sizes: Vec<Value> = list.iter().map(|(bound, count)| json!({"up_to": bound, "count": count})).collect();
            json!({"count": count, "bytes": bytes, "sizes": sizes})
        };
        json!({
            "name": name, "kind": "ost",
            "asked": {"writes": sizes(&[(1 << 12, 250), (1 << 20, 750)]), "reads": sizes(&[])},
            "devices": [
                {"device": "data", "copy": 0, "writes": sizes(&[(1 << 21, 999), (512, 1)]), "reads": sizes(&[(1 << 14, 3)])},
                {"device": "journal", "copy": 0, "writes": sizes(&[(1 << 12, 8)]), "reads": sizes(&[])},
            ],
        })
    }

    #[test]
    fn sizes_of_all_targets_are_parts_of_a_hundred() {
        let lines = table([&ost("OST0000"), &ost("OST0001")].into_iter(), false);
        let row = |head: &str| {
            let line = lines.iter().find(|line| line.starts_with(head)).unwrap_or_else(|| panic!("{head}: {lines:#?}"));
            line[head.len()..].split_whitespace().map(str::to_owned).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(row("all OSTs asked to write"), "2,000 1.5 GiB 25 . . . . . . . 75 .");
        assert_eq!(row("all OSTs data written"), "2,000 3.9 GiB <1 . . . . . . . . 100");
        assert_eq!(row("all OSTs journal written"), "16 64 KiB 100 . . . . . . . . .");
        assert_eq!(row("all OSTs data read"), "6 96 KiB . . 100 . . . . . . .");
        assert_eq!(row("requests"), "number bytes 4K 8K 16K 32K 64K 128K 256K 512K 1M >1M");
        assert!(!lines.iter().any(|line| line.contains("asked to read")), "{lines:#?}");
    }

    #[test]
    fn each_device_has_a_line_if_that_is_asked_for() {
        let lines = table([&ost("OST0000"), &ost("OST0001")].into_iter(), true);
        assert_eq!(lines.iter().filter(|line| line.contains("asked to write")).count(), 2);
        assert!(lines.iter().any(|line| line.starts_with("OST0001 journal written")), "{lines:#?}");
        assert!(table(std::iter::empty(), true).is_empty());
    }
}
