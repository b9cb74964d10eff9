//! Journals and commits: how full the journals are, the number of commits, why each group closed, how long it took.

use forebay_command::{
    table::align,
    units::{show_bytes, show_count},
};
use serde_json::Value;

const HEADS: [&str; 10] =
    ["journal", "used", "free", "commits", "by time", "by size", "on demand", "p50", "p99", "max"];

/// A line per target that replied, after an empty line; nothing if none did.
pub fn table<'a>(targets: impl Iterator<Item = &'a Value>) -> Vec<String> {
    let rows: Vec<Vec<String>> = targets.filter_map(row).collect();
    if rows.is_empty() {
        return Vec::new();
    }
    let heads = [HEADS.map(str::to_owned).to_vec()];
    [String::new()].into_iter().chain(align(&[&heads[..], &rows].concat())).collect()
}

fn row(target: &Value) -> Option<Vec<String>> {
    let (journal, commits) = (&target["journal"], &target["commits"]);
    let bytes = |key: &str| journal[key].as_u64().map(show_bytes);
    let closed = |why: &str| commits["closed_by"][why].as_u64().map(show_count);
    let committed = commits["count"].as_u64()?;
    let latency = |which: &str| match commits["latency_us"][which].as_u64() {
        Some(us) if committed > 0 => show_us(us),
        _ => "-".into(),
    };
    Some(vec![
        target["name"].as_str()?.to_owned(),
        bytes("used_bytes")?,
        bytes("free_bytes")?,
        show_count(committed),
        closed("time")?,
        closed("size")?,
        closed("demand")?,
        latency("p50"),
        latency("p99"),
        latency("max"),
    ])
}

/// `840 us`, `4.2 ms`, `130 ms`, `1.3 s`.
fn show_us(us: u64) -> String {
    match us {
        0..1000 => format!("{us} us"),
        1000..10_000 => format!("{:.1} ms", us as f64 / 1e3),
        10_000..1_000_000 => format!("{:.0} ms", us as f64 / 1e3),
        _ => format!("{:.1} s", us as f64 / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_target_that_answers_has_a_line() {
        let answered = json!({
            "name": "OST0000",
            "journal": {"ring_bytes": 16 << 20, "used_bytes": 1 << 20, "free_bytes": 12 << 20},
            "commits": {"count": 1234, "closed_by": {"time": 1200, "size": 4, "demand": 30},
                "latency_us": {"p50": 840, "p99": 4213, "max": 1_300_000}},
        });
        let idle = json!({
            "name": "OST0001", "journal": {"used_bytes": 0, "free_bytes": 1024},
            "commits": {"count": 0, "closed_by": {"time": 0, "size": 0, "demand": 0}, "latency_us": {"p50": 0}},
        });
        let silent = json!({"name": "OST0002", "state": "down"});
        let lines = table([&answered, &idle, &silent].into_iter());
        let expected = [
            "",
            "journal   used    free  commits  by time  by size  on demand     p50     p99    max",
            "OST0000  1 MiB  12 MiB    1,234    1,200        4         30  840 us  4.2 ms  1.3 s",
            "OST0001    0 B   1 KiB        0        0        0          0       -       -      -",
        ];
        assert_eq!(lines, expected);
        assert!(table([&silent].into_iter()).is_empty());
    }
}
