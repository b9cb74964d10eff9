//! A cluster's counters, as `status` shows them and as Prometheus scrapes them.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)] // plays the user

mod common;

use std::{
    collections::BTreeMap,
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    time::Duration,
};

use common::{
    Scratch, forebay,
    site::Site,
    words,
    writer::{root, with_client},
};
use forebay_client::OpenMode;
use serde_json::Value;

/// An address that was free a moment ago.
fn free() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("an address").to_string()
}

/// The reply to `request`, head and body.
fn ask(address: &str, request: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(Duration::from_secs(10))).expect("a timeout");
    stream.write_all(request.as_bytes()).expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer in UTF-8");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    (head.to_owned(), body.to_owned())
}

fn scrape(address: &str) -> Page {
    let (head, body) = ask(address, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 200 OK") && head.contains("openmetrics-text"), "{head}");
    assert!(head.contains(&format!("Content-Length: {}", body.len())), "{head}");
    Page::parse(&body)
}

/// Samples by name and labels (sorted), parsed by the rules of the format.
struct Page(BTreeMap<(String, BTreeMap<String, String>), f64>);

impl Page {
    fn parse(text: &str) -> Self {
        let (mut samples, mut families) = (BTreeMap::new(), BTreeMap::new());
        let mut family = (String::new(), String::new());
        let lines: Vec<&str> = text.lines().collect();
        assert!(text.ends_with("# EOF\n"), "the end is marked");
        for line in &lines[..lines.len() - 1] {
            if let Some(comment) = line.strip_prefix("# ") {
                let (kind, rest) = comment.split_once(' ').expect("a kind of comment");
                let (name, rest) = rest.split_once(' ').expect("a name");
                match kind {
                    "HELP" => assert!(!rest.is_empty(), "{line}"),
                    "TYPE" => {
                        family = (name.to_owned(), rest.to_owned());
                        assert!(families.insert(name.to_owned(), rest.to_owned()).is_none(), "{name} comes twice");
                    }
                    "UNIT" => assert!(name == family.0 && name.ends_with(&format!("_{rest}")), "{line}"),
                    other => panic!("{other}"),
                }
                continue;
            }
            let (name, rest) = line.split_once('{').expect("labels");
            let (labels, value) = rest.rsplit_once("} ").expect("a value");
            let suffix = name.strip_prefix(&family.0).unwrap_or_else(|| panic!("{name} is not of {}", family.0));
            let allowed: &[&str] = match family.1.as_str() {
                "counter" => &["_total"],
                "gauge" => &[""],
                "histogram" => &["_bucket", "_sum", "_count"],
                other => panic!("{other}"),
            };
            assert!(name.starts_with("forebay_") && allowed.contains(&suffix), "{line}");
            let pair = |pair: &str| {
                let (key, value) = pair.split_once('=').expect("a label");
                let value = value.strip_prefix('"').and_then(|v| v.strip_suffix('"')).expect("quotes");
                (key.to_owned(), value.to_owned())
            };
            let labels: BTreeMap<String, String> = labels.split(',').map(pair).collect();
            let value: f64 = value.parse().expect("a number");
            assert!(value >= 0.0 && labels.contains_key("target"), "{line}");
            assert!(samples.insert((name.to_owned(), labels), value).is_none(), "{line} comes twice");
        }
        let page = Self(samples);
        page.check_histograms(&families);
        page
    }

    /// Buckets never decrease, and the last one counts everything.
    fn check_histograms(&self, families: &BTreeMap<String, String>) {
        for name in families.iter().filter(|(_, kind)| *kind == "histogram").map(|(name, _)| name) {
            for ((_, labels), count) in self.0.iter().filter(|((sample, _), _)| *sample == format!("{name}_count")) {
                let of_le = |((sample, all), value): (&(String, BTreeMap<String, String>), &f64)| {
                    let mut rest = all.clone();
                    let le: f64 = rest.remove("le")?.replace("+Inf", "inf").parse().expect("a bound");
                    (*sample == format!("{name}_bucket") && rest == *labels).then_some((le, *value))
                };
                let mut buckets: Vec<(f64, f64)> = self.0.iter().filter_map(of_le).collect();
                buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
                assert!(buckets.windows(2).all(|pair| pair[0].1 <= pair[1].1), "{name} {labels:?}: {buckets:?}");
                assert_eq!(buckets.last(), Some(&(f64::INFINITY, *count)), "{name} {labels:?}");
            }
        }
    }

    /// The sum of all samples of this name whose labels include these.
    fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let has =
            |all: &BTreeMap<String, String>| labels.iter().all(|(k, v)| all.get(*k).is_some_and(|value| value == v));
        let samples = self.0.iter().filter(|((sample, all), _)| sample == name && has(all));
        let values: Vec<f64> = samples.map(|(_, value)| *value).collect();
        assert!(!values.is_empty(), "no {name} with {labels:?}");
        values.iter().sum()
    }
}

fn targets(status: &Value) -> impl Iterator<Item = &Value> {
    status["targets"].as_array().expect("targets").iter()
}

#[test]
fn scraped_metrics_and_status_add_up_to_the_bytes_written() {
    let (site, address) = (Site::new("metrics"), free());
    let up =
        forebay().args(["up", site.scratch.path(), "--no-mount", "--metrics", &address]).output().expect("it runs");
    assert!(up.status.success(), "{}", words(&up));
    let said = String::from_utf8_lossy(&up.stdout).into_owned();
    assert!(said.contains(&format!("metrics at http://{address}/metrics")), "{said}");
    let lengths = [4096usize, 4096, 65_536, 1 << 20, 100];
    let total: usize = lengths.iter().sum();
    with_client(&site.mgs(), Duration::from_secs(60), |client, _| async move {
        // Without O_SYNC small writes are coalesced.
        let mode = OpenMode { sync: true, ..OpenMode::READ_WRITE };
        let file = client.create_path(&root(), "/file", mode).await.expect("created");
        let mut at = 0;
        for length in lengths {
            at += client.write(&file, at, vec![7; length]).await.expect("written") as u64;
        }
        client.fsync(&file, false).await.expect("synced");
        client.read_parts(&file, 0, 4096).await.expect("read");
        client.close(file).await.expect("closed");
    })
    .expect("in time");

    let page = scrape(&address);
    let write = ("direction", "write");
    let written = page.sum("forebay_client_request_bytes_sum", &[write]);
    assert_eq!(written, total as f64, "bytes asked for are bytes written");
    // Requests end at stripe boundaries of 1 MiB.
    let requests = page.sum("forebay_client_request_bytes_count", &[write]);
    assert!((5.0..=6.0).contains(&requests), "{requests}");
    assert_eq!(page.sum("forebay_client_request_bytes_bucket", &[write, ("le", "4096.0")]), 3.0);
    assert_eq!(page.sum("forebay_placed_bytes_total", &[]), total as f64, "and bytes placed");
    assert!(page.sum("forebay_client_request_bytes_sum", &[("direction", "read")]) >= 4096.0);
    let device = |name: &str| page.sum("forebay_device_request_bytes_sum", &[("device", name), write]);
    assert!(device("data") >= total as f64 && device("journal") > 0.0);
    let commits = page.sum("forebay_commits_total", &[]);
    assert!(commits > 0.0 && commits == page.sum("forebay_commit_seconds_count", &[]));
    assert!(page.sum("forebay_commits_total", &[("reason", "demand")]) > 0.0, "fsync waited for one");
    assert_eq!(page.sum("forebay_target_state", &[("state", "serving")]), 3.0);
    let journal = |kind: &str| page.sum(&format!("forebay_journal_{kind}_bytes"), &[("target", "MDT0000")]);
    assert!(journal("used") > 0.0 && journal("used") + journal("free") <= journal("ring"));

    let (status, table, code) = site.status();
    assert_eq!((code, &status["metrics"][0]), (Some(0), &format!("http://{address}/metrics").into()));
    let osts = || targets(&status).filter(|target| target["kind"] == "ost");
    let shown = |key: &str| osts().map(|ost| ost["asked"]["writes"][key].as_u64().expect("a number")).sum::<u64>();
    assert_eq!((shown("bytes"), shown("count")), (total as u64, requests as u64));
    for target in targets(&status) {
        let commits = &target["commits"];
        let by = |why: &str| commits["closed_by"][why].as_u64().expect("a number");
        assert_eq!(by("time") + by("size") + by("demand"), commits["count"].as_u64().expect("a number"), "{target}");
        let us = |which: &str| commits["latency_us"][which].as_u64().expect("a number");
        assert!(us("p50") <= us("p99") && us("p99") <= us("max"), "{target}");
        for device in target["devices"].as_array().expect("devices") {
            let sizes = device["writes"]["sizes"].as_array().expect("sizes").iter();
            let counts: u64 = sizes.map(|size| size["count"].as_u64().expect("a number")).sum();
            assert_eq!(counts, device["writes"]["count"], "{device}");
        }
    }
    for words in ["on demand", "p99", "all OSTs asked to write", "all OSTs data written", "all MDTs journal written"] {
        assert!(table.contains(words), "{words} in {table}");
    }

    let (head, _) = ask(&address, "GET / HTTP/1.1\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 404"), "{head}");
    let (head, body) = ask(&address, "HEAD /metrics HTTP/1.1\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 200") && body.is_empty(), "{head}");
    let (head, _) = ask(&address, "POST /metrics HTTP/1.1\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 405"), "{head}");
    let (head, _) = ask(&address, &format!("GET /metrics HTTP/1.1\r\nx: {}\r\n\r\n", "y".repeat(8 << 10)));
    assert!(head.starts_with("HTTP/1.1 400"), "{head}");

    let other = free();
    let again =
        forebay().args(["up", site.scratch.path(), "--no-mount", "--metrics", &other]).output().expect("it runs");
    assert!(!again.status.success() && words(&again).contains("forebay down"), "{}", words(&again));
    site.down();
    site.comes_up();
    scrape(&address);
    site.down();
    let off = forebay().args(["up", site.scratch.path(), "--no-mount", "--metrics", "off"]).output().expect("it runs");
    assert!(off.status.success() && TcpStream::connect(&address).is_err(), "{}", words(&off));
}

#[test]
fn a_port_that_is_taken_or_none_is_refused_with_words() {
    let site = Site::new("metrics-port");
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address").to_string();
    let up = |metrics: &str| {
        let flags = ["up", site.scratch.path(), "--no-mount", "--metrics", metrics];
        forebay().args(flags).output().expect("it runs")
    };
    let output = up(&address);
    let said = words(&output);
    assert!(output.status.code() == Some(1) && said.contains(&address) && said.contains("another --metrics"), "{said}");
    assert!(!site.path("run/servers.pid").exists(), "a process is left");
    for (wrong, expected) in [
        ("127.0.0.1:70000", "65535"),
        ("9870", "HOST:PORT"),
        ("127.0.0.1:0", "give a port"),
        ("0.0.0.0:9870", "--metrics-public"),
    ] {
        let output = up(wrong);
        assert!(output.status.code() == Some(2) && words(&output).contains(expected), "{wrong}: {}", words(&output));
    }
    drop(taken);
    let output = up(&address);
    assert!(output.status.success(), "{}", words(&output));
    scrape(&address);
}

#[test]
fn a_process_for_each_target_has_a_port_for_each() {
    let scratch = Scratch::new("metrics-separate");
    let port: u16 = free().rsplit_once(':').and_then(|(_, port)| port.parse().ok()).expect("a port");
    let port = port.min(65_000);
    let up = forebay()
        .args(["up", scratch.path(), "--no-mount", "--separate", "--osts", "1", "--ost-size", "128MiB"])
        .args(["--mdt-size", "128MiB", "--metrics", &format!("127.0.0.1:{port}")])
        .output()
        .expect("it runs");
    let result = up.status.success().then(|| {
        let page = |behind: u16| scrape(&format!("127.0.0.1:{}", port + behind));
        let has = |page: &Page, target: &str| page.0.keys().all(|(_, labels)| labels["target"] == target);
        has(&page(0), "MDT0000") && has(&page(1), "OST0000")
    });
    let down = forebay().args(["down", scratch.path(), "--force"]).output().expect("it runs");
    assert!(result == Some(true) && down.status.success(), "{} {}", words(&up), words(&down));
}
