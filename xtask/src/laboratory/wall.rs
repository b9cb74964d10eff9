//! Tables of `forebay sim wall`. Each task count is run and stored separately.

use serde_json::{Value, json};

use super::{list, text};
use crate::figures::{Outcome, summary::table};

/// Task counts.
pub const TASKS: [u32; 8] = [1, 4, 16, 64, 256, 1024, 4096, 16_384];
/// The task count at which devices are compared.
const COMPARED_AT: u64 = 64;
/// Task counts that are compared.
const FEW_AND_MANY: [u64; 2] = [64, 1024];
const DEVICES: [(&str, &str); 2] = [("sata", "SATA"), ("ssd", "SSD")];
const WAYS: [&str; 2] = ["paper_mode", "default"];

/// The stored points with this one added, ordered by tasks and files.
pub fn with(kept: Value, point: Value) -> Outcome<Value> {
    let own = (tasks_of(&point)?, files_of(&point)?);
    let place = |one: &Value| Some((tasks_of(one).ok()?, files_of(one).ok()?));
    let Value::Array(mut points) = kept else { return Err("the kept points of wall are no list".into()) };
    points.retain(|one| place(one) != Some(own));
    points.push(point);
    points.sort_by_key(place);
    Ok(json!(points))
}

/// The points for these task counts that all have the same number of files, the largest available.
fn like<const N: usize>(points: &[Value], tasks: [u64; N]) -> Option<[&Value; N]> {
    let mut files: Vec<u64> = points.iter().filter_map(|point| files_of(point).ok()).collect();
    files.sort_unstable_by(|a, b| b.cmp(a));
    files.into_iter().find_map(|files| {
        // All tasks make the same number of files, so the total may differ slightly.
        let is_like = |point: &Value| files_of(point).is_ok_and(|own| own.abs_diff(files) * 100 < files);
        let found = tasks.map(|tasks| points.iter().find(|point| tasks_of(point) == Ok(tasks) && is_like(point)));
        found.iter().all(Option::is_some).then(|| found.map(|point| point.expect("all were found")))
    })
}

fn tasks_of(point: &Value) -> Outcome<u64> {
    number(&point["result"]["hosts"][0], "tasks")
}

fn files_of(point: &Value) -> Outcome<u64> {
    number(&point["result"]["hosts"][0], "files")
}

fn number(of: &Value, name: &str) -> Outcome<u64> {
    of[name].as_u64().ok_or_else(|| format!("a point of wall has no {name}"))
}

fn points(kept: &Value) -> Outcome<&Vec<Value>> {
    kept.as_array().ok_or_else(|| "the kept points of wall are no list".into())
}

/// The value of a row; `None` if it was not run.
fn value(point: &Value, name: &str, way: &str) -> Option<f64> {
    let rows = point["result"]["rows"].as_array()?;
    rows.iter().find(|row| row["name"] == name)?[way].as_f64()
}

fn operations(point: &Value) -> Outcome<Vec<String>> {
    let names = list(&point["result"], "operations")?;
    Ok(names.iter().filter_map(|name| name.as_str().map(str::to_owned)).collect())
}

/// Thousand operations per second, in both modes where they differ.
pub fn rates(kept: &Value) -> Outcome<String> {
    let points = points(kept)?;
    let first = points.first().ok_or("no point of wall is kept")?;
    let operations = operations(first)?;
    let mut rows = Vec::new();
    for point in points {
        let hosts = &point["result"]["hosts"][0];
        let (tasks, files) = (number(hosts, "tasks")?, number(hosts, "files")?);
        for (device, shown) in DEVICES {
            let mut row = match device {
                "sata" => {
                    vec![format!("{} ({})", thousands(tasks), thousands(number(hosts, "hosts")?)), thousands(files)]
                }
                _ => vec![String::new(), String::new()],
            };
            row.push(shown.to_owned());
            row.extend(operations.iter().map(|one| both(point, &format!("{one}-{tasks}-{device}"), 1)));
            row.push(if device == "ssd" { both(point, &format!("open-shared-{tasks}"), 1) } else { String::new() });
            rows.push(row);
        }
    }
    let limits = list(&first["result"], "thread_limit")?.iter();
    let limits = limits.map(|limit| limit.as_f64().map_or(String::new(), |limit| format!("{limit:.1}")));
    let blank = ["the MDS's thread, if it never waited", "", ""].map(str::to_owned);
    rows.push(blank.into_iter().chain(limits).chain([String::new()]).collect());
    let mut heads = vec!["tasks (hosts)", "files", "MDT on"];
    heads.extend(operations.iter().map(String::as_str));
    heads.push("open of one file by all, ms");
    Ok(format!("{}\n\n{}", commands(points)?, table(&heads, &rows)))
}

/// The commands that were run, with their commits.
fn commands(points: &[Value]) -> Outcome<String> {
    let mut said: Vec<(String, Vec<String>)> = Vec::new();
    for point in points {
        let hosts = &point["result"]["hosts"][0];
        let tasks = number(hosts, "tasks")?.to_string();
        let command = text(point, "command")?.replace(&format!("--tasks {tasks} "), "--tasks N ");
        let line = format!("`{command}` at {}", text(point, "commit")?);
        match said.iter_mut().find(|(one, _)| *one == line) {
            Some((_, all)) => all.push(tasks),
            None => said.push((line, vec![tasks])),
        }
    }
    let lines: Vec<String> =
        said.into_iter().map(|(line, tasks)| format!("{line}, N = {}", tasks.join(", "))).collect();
    Ok(lines.join("; ") + ".")
}

/// The two SSDs, SSD against SATA, many tasks against few.
pub fn ratios(kept: &Value) -> Outcome<String> {
    let points = points(kept)?;
    let [compared] = like(points, [COMPARED_AT]).ok_or("the point at which devices are compared is not kept")?;
    let operations = operations(compared)?;
    let ratio = |of: Option<f64>, to: Option<f64>| Some(of? / to?);
    let mut rows = Vec::new();
    for (shown, [of, to], published) in [
        ("SSD / SATA", ["ssd", "sata"], ["2 to 4", "about 1"]),
        ("PCIe / Fibre Channel SSD", ["ssd", "fc"], ["about 1"; 2]),
    ] {
        for one in &operations {
            let both = WAYS.map(|way| {
                let rate = |device: &str| value(compared, &format!("{one}-{COMPARED_AT}-{device}"), way);
                ratio(rate(of), rate(to))
            });
            let what = format!("{one}, {COMPARED_AT} tasks: {shown}");
            rows.push(line(what, published[usize::from(one.ends_with("stat"))], both));
        }
    }
    if let Some([few, many]) = like(points, FEW_AND_MANY) {
        let files = thousands(files_of(few)?);
        for one in &operations {
            let both = WAYS.map(|way| {
                let [few, many] = [(few, FEW_AND_MANY[0]), (many, FEW_AND_MANY[1])]
                    .map(|(point, tasks)| value(point, &format!("{one}-{tasks}-sata"), way));
                ratio(many, few)
            });
            let published = if one.starts_with("dir-") { "below 1" } else { "about 1" };
            rows.push(line(format!("{one}, SATA, {files} files: 1,024 tasks / 64"), published, both));
        }
    }
    Ok(table(&["ratio", "published", "paper mode", "default"], &rows))
}

fn line(what: String, published: &str, both: [Option<f64>; 2]) -> Vec<String> {
    let shown = both.map(|ratio| ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.2}")));
    [what, published.to_owned()].into_iter().chain(shown).collect()
}

/// Fraction of the time that the MDT's device was busy, at the task count at which devices are compared.
pub fn busy(kept: &Value) -> Outcome<String> {
    let [compared] = like(points(kept)?, [COMPARED_AT]).ok_or("the point at which devices are compared is not kept")?;
    let operations = operations(compared)?;
    let mut rows = Vec::new();
    for run in list(&compared["result"], "device_busy")? {
        let parts = list(run, "busy")?.iter();
        let parts = parts.map(|part| part.as_f64().map_or(String::new(), |part| format!("{:.0} %", 100.0 * part)));
        rows.push([format!("{}, {}", text(run, "device")?, text(run, "way")?)].into_iter().chain(parts).collect());
    }
    let head = format!("{COMPARED_AT} tasks, device at work");
    let heads: Vec<&str> = [head.as_str()].into_iter().chain(operations.iter().map(String::as_str)).collect();
    Ok(table(&heads, &rows))
}

/// `7.4, 13.5`, or one number if both modes show the same.
fn both(point: &Value, name: &str, digits: usize) -> String {
    let shown = WAYS.map(|way| value(point, name, way).map_or("-".to_owned(), |value| format!("{value:.digits$}")));
    if shown[0] == shown[1] { shown[0].clone() } else { shown.join(", ") }
}

/// `16,384`.
fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let parts: Vec<&str> =
        digits.as_bytes().rchunks(3).rev().map(|part| std::str::from_utf8(part).expect("digits")).collect();
    parts.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(tasks: u64, stat: [f64; 2]) -> Value {
        of_files(tasks, 16_384, stat)
    }

    fn of_files(tasks: u64, files: u64, stat: [f64; 2]) -> Value {
        let row = |device: &str, paper: f64| json!({ "name": format!("stat-{tasks}-{device}"), "paper_mode": paper, "default": 50.0 });
        let rows = [row("sata", stat[0]), row("ssd", stat[1]), row("fc", stat[1])];
        json!({ "command": format!("forebay sim wall --tasks {tasks} --files 9"), "commit": "abc", "result": {
            "operations": ["stat"], "thread_limit": [99.5], "rows": rows,
            "hosts": [{ "tasks": tasks, "hosts": 6, "files": files, "entries": 4 }],
            "device_busy": [{ "device": "sata", "way": "default", "busy": [0.25] }] } })
    }

    #[test]
    fn a_point_that_is_run_again_takes_the_place_of_the_old_one() {
        let kept = [point(1024, [1.0; 2]), point(64, [1.0; 2]), point(64, [2.0; 2])].into_iter();
        let kept = kept.fold(json!([]), |kept, point| with(kept, point).expect("a point"));
        let tasks: Vec<_> = kept.as_array().expect("a list").iter().map(tasks_of).collect();
        assert_eq!(tasks, [Ok(64), Ok(1024)]);
        assert_eq!(value(&kept[0], "stat-64-ssd", "paper_mode"), Some(2.0));
    }

    #[test]
    fn only_points_with_as_many_files_are_compared() {
        let points =
            [of_files(64, 300_032, [1.0; 2]), of_files(64, 65_536, [2.0; 2]), of_files(1024, 65_536, [4.0; 2])];
        let ratios = ratios(&json!(points)).expect("a table");
        assert!(ratios.contains("| stat, SATA, 65,536 files: 1,024 tasks / 64 | about 1 | 2.00 | 1.00 |"), "{ratios}");
        let [compared] = like(&points, [64]).expect("a point");
        assert_eq!(files_of(compared), Ok(300_032));
    }

    #[test]
    fn rates_stand_once_where_both_ways_show_the_same_and_ratios_are_of_the_compared_point() {
        let kept = json!([point(64, [25.0, 50.0])]);
        let rates = rates(&kept).expect("a table");
        assert!(
            rates.contains("| 64 (6) | 16,384 | SATA | 25.0, 50.0 |") && rates.contains("| SSD | 50.0 |"),
            "{rates}"
        );
        assert!(rates.contains("`forebay sim wall --tasks N --files 9` at abc, N = 64."), "{rates}");
        let ratios = ratios(&kept).expect("a table");
        assert!(ratios.contains("| stat, 64 tasks: SSD / SATA | about 1 | 2.00 | 1.00 |"), "{ratios}");
        assert!(busy(&kept).expect("a table").contains("| sata, default | 25 % |"));
    }
}
