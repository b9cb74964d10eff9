//! Texts that people and files bring: tokens, names, addresses, layouts, the description of a cluster.

use std::{fmt::Display, path::Path, str::FromStr};

use forebay_client::parse_layout;
use forebay_command::cluster::{Cluster, FILE, parse_recovery_window};
use forebay_env::Address;
use forebay_keys::{NodeName, PublicKey, Role, SECRET_BYTES, Token};
use forebay_proto::{Encode, TargetId, Uuid, message::LayoutSpec, parse_size};

use crate::{corpus::CLUSTER, messages::is_again};

/// A text of one line.
///
/// Input: what it is; the text.
pub fn texts(data: &[u8]) -> bool {
    let Some((what, bytes)) = data.split_first() else { return false };
    let text = String::from_utf8_lossy(bytes);
    match what % 9 {
        0 => text.parse::<Token>().is_ok_and(|token| {
            assert_eq!(token.to_text().parse().as_ref(), Ok(&token));
            true
        }),
        1 => NodeName::from_uri(&text).is_ok_and(|name| {
            assert_eq!(NodeName::from_uri(&name.to_uri()).as_ref(), Ok(&name));
            true
        }),
        2 => is_shown_again::<Uuid>(&text),
        3 => is_shown_again::<TargetId>(&text),
        4 => is_shown_again::<Address>(&text),
        5 => is_shown_again::<Role>(&text),
        6 => parse_size(&text).is_some(),
        7 => parse_recovery_window(&text).is_ok(),
        _ => parse_layout(bytes).is_some_and(|layout| {
            assert!(is_again::<LayoutSpec>(&layout.to_bytes()), "it cannot be sent");
            true
        }),
    }
}

/// True if it is a value, which is then the same after it was shown and parsed again.
fn is_shown_again<T: FromStr + Display + PartialEq>(text: &str) -> bool {
    let Ok(value) = text.parse::<T>() else { return false };
    let shown = value.to_string();
    assert!(shown.parse::<T>().is_ok_and(|again| again == value), "{text:?} is shown as {shown:?}");
    true
}

pub fn text_seeds() -> Vec<Vec<u8>> {
    let token = Token { cluster: CLUSTER, authority: PublicKey([8; 32]), secret: [9; SECRET_BYTES] }.to_text();
    let uri = NodeName::new(CLUSTER, Role::Client, "node-17.rack2").expect("a name").to_uri();
    let uuid = CLUSTER.to_string();
    let texts: [(u8, &str); 15] = [
        (0, &token),
        (1, &uri),
        (2, &uuid),
        (3, "OST0003"),
        (3, "MDTffff"),
        (4, "tcp:[::1]:7000"),
        (4, "unix:/run/forebay.sock"),
        (4, "host:7000"),
        (5, "admin"),
        (6, "64MiB"),
        (6, "18446744073709551615"),
        (7, "3600s"),
        (8, "-c 4 -S 1MiB -i 2 -p fast"),
        (8, "-E 64MiB -c 1 -S 64k -E 1GiB -c 4 -E -1 -c -1 -S 4M -p slow"),
        (8, "-c -1"),
    ];
    texts.into_iter().map(|(what, text)| [&[what], text.as_bytes()].concat()).collect()
}

/// The description of a cluster. What was read can be used and written.
pub fn description(data: &[u8]) -> bool {
    let (text, dir) = (String::from_utf8_lossy(data), Path::new("/cluster"));
    let Ok(cluster) = Cluster::parse(&text, &dir.join(FILE), dir.into()) else { return false };
    let targets = cluster.targets();
    assert!(targets.iter().is_sorted_by(|a, b| a.id < b.id) && cluster.ost_count() <= targets.len());
    let (map, window) = (cluster.map(), cluster.recovery_window());
    assert!(map.cluster == cluster.uuid() && map.targets.len() == targets.len());
    assert!(is_again::<forebay_proto::message::ClusterMap>(&map.to_bytes()));
    assert!(cluster.is_joined() || cluster.mgs() == targets[0].addresses);
    let written = toml::to_string_pretty(&cluster.description).expect("it becomes TOML");
    let again = Cluster::parse(&written, &dir.join(FILE), dir.into()).expect("it was written a moment ago");
    assert_eq!((&again.description, again.recovery_window()), (&cluster.description, window));
    true
}

pub fn description_seeds() -> Vec<Vec<u8>> {
    let head = format!("cluster = \"{CLUSTER}\"\n");
    let whole = r#"separate = true
mount = "/mnt/x"
commit = "data"
metrics = "127.0.0.1:9870"
metrics_public = true
recovery_window = "5s"
keys = "../keys"
insecure_loopback = true
"#;
    let target =
        |name: &str, listen: &str| format!("[[target]]\nname = \"{name}\"\ndir = \"{name}\"\nlisten = [{listen}]\n");
    let (mdt, ost) = (target("MDT0000", r#""unix:run/m""#), target("OST0001", r#""tcp:127.0.0.1:7000", "unix:run/o""#));
    let mgs = "mgs = [\"tcp:10.0.0.1:7000\", \"host:7001\"]\n";
    let texts = [
        [&head, whole, &mdt, &ost].concat(),
        [head.as_str(), &ost, &mdt].concat(),
        [&head, mgs, &ost].concat(),
        [&head, whole, mgs, &ost].concat(),
    ];
    texts.into_iter().map(String::into_bytes).collect()
}
