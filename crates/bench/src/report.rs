//! The output of a benchmark: a table for people, or JSON in the documented form for programs.
//!
//! Invariant: every row carries n, minimum, quartiles, maximum and mean of its repetitions.

use forebay_command::{summary::Summary, table::align};
use serde_json::{Map, Value, json};

/// One measured repetition of a row.
#[derive(Clone, Debug)]
pub struct Sample {
    /// In the row's unit.
    pub value: f64,
    /// The other measured values, in the order of the table's columns.
    pub details: Vec<(&'static str, f64)>,
}

/// One row: a phase, perhaps of one target, with its repetitions.
#[derive(Clone, Debug)]
pub struct Row {
    /// `write`, `read`, ...
    pub phase: String,
    /// Labels that distinguish this row from others of the same phase (`target`, ...).
    pub labels: Vec<(&'static str, Value)>,
    /// Unit of the values.
    pub unit: &'static str,
    /// In the order they were run.
    pub samples: Vec<Sample>,
}

/// A benchmark's result.
#[derive(Debug)]
pub struct Report {
    /// Its name.
    pub bench: &'static str,
    /// The run in one sentence.
    pub headline: String,
    /// The parameters, for programs.
    pub parameters: Value,
    /// The rows.
    pub rows: Vec<Row>,
}

impl Report {
    /// Prints it to stdout.
    pub fn print(&self, as_json: bool) {
        if as_json { println!("{}", self.json()) } else { print!("{}", self.table()) }
    }

    fn json(&self) -> Value {
        let rows: Vec<Value> = self.rows.iter().filter_map(Row::json).collect();
        json!({ "bench": self.bench, "headline": self.headline, "parameters": self.parameters, "rows": rows })
    }

    fn table(&self) -> String {
        let mut lines = vec![self.headline.clone(), String::new()];
        let details = details(&self.rows);
        let mut each = vec![detail_heads(&self.rows, &details)];
        let mut all = vec![SUMMARY_HEADS.map(str::to_owned).to_vec()];
        for row in &self.rows {
            each.extend(row.sample_cells(&details));
            all.extend(row.summary_cells());
        }
        lines.extend(align(&each));
        lines.push(String::new());
        lines.extend(align(&all));
        lines.join("\n") + "\n"
    }
}

const SUMMARY_HEADS: [&str; 9] = ["phase", "n", "min", "q1", "median", "q3", "max", "mean", ""];

/// The measured details of all rows: a column each.
fn details(rows: &[Row]) -> Vec<&'static str> {
    let mut names = Vec::new();
    for (name, _) in rows.iter().flat_map(|row| &row.samples).flat_map(|sample| &sample.details) {
        if !names.contains(name) {
            names.push(name);
        }
    }
    names
}

fn detail_heads(rows: &[Row], details: &[&str]) -> Vec<String> {
    // Rows of other units show their unit in the summary below.
    let unit = rows.first().map_or("", |row| row.unit);
    let named = details.iter().map(|name| name.replace('_', " "));
    ["phase".into(), "rep".into(), unit.to_owned()].into_iter().chain(named).collect()
}

impl Row {
    fn summary(&self) -> Option<Summary> {
        Summary::of(&self.samples.iter().map(|s| s.value).collect::<Vec<_>>())
    }

    fn json(&self) -> Option<Value> {
        let summary = self.summary()?;
        let mut row: Map<String, Value> = match serde_json::to_value(summary).expect("numbers become JSON") {
            Value::Object(map) => map,
            other => unreachable!("a structure became {other}"),
        };
        row.insert("phase".into(), self.phase.clone().into());
        row.insert("value".into(), summary.median.into());
        row.insert("unit".into(), self.unit.into());
        row.extend(self.labels.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
        row.insert("repetitions".into(), self.samples.iter().map(Sample::json).collect());
        Some(Value::Object(row))
    }

    fn name(&self) -> String {
        let labels = self.labels.iter().map(|(_, value)| value.as_str().map_or(value.to_string(), str::to_owned));
        [self.phase.clone()].into_iter().chain(labels).collect::<Vec<_>>().join(" ")
    }

    fn sample_cells(&self, details: &[&str]) -> Vec<Vec<String>> {
        let cells = |(i, sample): (usize, &Sample)| {
            let detail = |name: &&str| {
                let found = sample.details.iter().find(|(one, _)| one == name);
                found.map_or(String::new(), |(_, value)| show(*value))
            };
            let details = details.iter().map(detail);
            [self.name(), (i + 1).to_string(), format!("{:.1}", sample.value)].into_iter().chain(details).collect()
        };
        self.samples.iter().enumerate().map(cells).collect()
    }

    fn summary_cells(&self) -> Option<Vec<String>> {
        let s = self.summary()?;
        let numbers = [s.min, s.q1, s.median, s.q3, s.max, s.mean].map(|value| format!("{value:.1}"));
        let head = [self.name(), s.n.to_string()];
        Some(head.into_iter().chain(numbers).chain([self.unit.to_owned()]).collect())
    }
}

impl Sample {
    fn json(&self) -> Value {
        let details = self.details.iter().map(|(name, value)| ((*name).to_owned(), json!(value)));
        Value::Object(details.chain([("value".to_owned(), json!(self.value))]).collect())
    }
}

fn show(value: f64) -> String {
    if value == 0.0 {
        "0".into()
    } else if value.fract() == 0.0 || value >= 1000.0 {
        format!("{value:.0}")
    } else {
        format!("{value:.3}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        let sample = |value| Sample { value, details: vec![("seconds", 2.5), ("bytes", 1024.0)] };
        let labels = vec![("target", json!("/dev/x"))];
        let samples = vec![sample(10.0), sample(30.0)];
        let rows = vec![Row { phase: "write".into(), labels, unit: "MiB/s", samples }];
        Report { bench: "xdd", headline: "one".into(), parameters: json!({"depth": 4}), rows }
    }

    #[test]
    fn json_has_the_contracts_keys_and_the_summary() {
        let json = report().json();
        let row = &json["rows"][0];
        assert_eq!((&json["bench"], &row["phase"], &row["unit"]), (&json!("xdd"), &json!("write"), &json!("MiB/s")));
        assert_eq!((&row["value"], &row["n"], &row["q1"]), (&json!(20.0), &json!(2), &json!(15.0)));
        assert_eq!((&row["target"], &row["repetitions"][1]["value"]), (&json!("/dev/x"), &json!(30.0)));
    }

    #[test]
    fn table_shows_each_repetition_and_the_summary() {
        let table = report().table();
        assert!(table.contains("write /dev/x    2   30.0    2.500   1024"), "{table}");
        assert!(table.contains("write /dev/x  2  10.0  15.0    20.0  25.0  30.0  20.0  MiB/s"), "{table}");
    }

    #[test]
    fn each_detail_stands_under_its_own_head_whichever_rows_have_it() {
        let mut report = report();
        let samples = vec![Sample { value: 1.0, details: vec![("cleaned_MiB", 9.0), ("seconds", 4.5)] }];
        report.rows.push(Row { phase: "rest".into(), labels: Vec::new(), unit: "s", samples });
        let table = report.table();
        let column = |line: &str, head: &str| {
            let end = table.lines().nth(2).and_then(|heads| heads.find(head)).expect(head) + head.len();
            line.get(..end).and_then(|cells| cells.rsplit(' ').next()).unwrap_or_default().to_owned()
        };
        let line = |name: &str| table.lines().find(|line| line.starts_with(name)).expect(name);
        let (write, rest) = (line("write"), line("rest"));
        assert_eq!((column(write, "seconds"), column(write, "bytes")), ("2.500".into(), "1024".into()), "{table}");
        assert_eq!((column(rest, "seconds"), column(rest, "cleaned MiB")), ("4.500".into(), "9".into()), "{table}");
        assert_eq!(column(rest, "bytes"), "", "{table}");
    }

    #[test]
    fn a_row_without_repetitions_is_left_out() {
        let mut report = report();
        report.rows[0].samples.clear();
        assert_eq!(report.json()["rows"], json!([]));
    }
}
