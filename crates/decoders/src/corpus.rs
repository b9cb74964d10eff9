//! What the seeds of several targets are made of: golden bodies of messages, and a cluster whose keys anybody knows.
//!
//! The keys are the same in each run, so that an input that was found once is one the next time.

use std::{cell::RefCell, collections::BTreeMap, sync::Arc, time::Duration};

use forebay_env::Network;
use forebay_keys::{Authority, Keys, NodeKey, NodeName, Role, Validity, certificate_to_pem};
use forebay_proto::Uuid;

/// Bodies of messages: a name, then rows of bytes in hexadecimal digits.
const GOLDEN: &str = include_str!("../../proto/tests/bodies/golden.txt");

/// Golden bodies with the names of their types.
pub fn golden_bodies() -> Vec<(&'static str, Vec<u8>)> {
    let mut bodies: Vec<(&str, Vec<u8>)> = Vec::new();
    for line in GOLDEN.lines().filter(|line| !line.starts_with('#')) {
        match (line.strip_prefix("    "), bodies.last_mut()) {
            (Some(row), Some((_, body))) => body.extend(bytes_of(row)),
            // A type's second value has a number behind the name.
            _ => bodies.push((line.split(' ').next().unwrap_or_default(), Vec::new())),
        }
    }
    bodies
}

fn bytes_of(row: &str) -> impl Iterator<Item = u8> {
    let digit = |digit: u8| char::from(digit).to_digit(16).expect("a hexadecimal digit") as u8;
    row.as_bytes().chunks(2).map(move |pair| digit(pair[0]) << 4 | digit(pair[1]))
}

/// The cluster.
pub const CLUSTER: Uuid = Uuid([7; 16]);

/// PEM of an Ed25519 key whose secret is 32 bytes of one number.
pub const AUTHORITY_KEY: &str = "-----BEGIN PRIVATE KEY-----\n\
    MC4CAQAwBQYDK2VwBCIEIAcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcH\n\
    -----END PRIVATE KEY-----\n";
/// The same, of a node.
pub const NODE_KEY: &str = "-----BEGIN PRIVATE KEY-----\n\
    MC4CAQAwBQYDK2VwBCIEIAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgI\n\
    -----END PRIVATE KEY-----\n";

/// The cluster's authority.
pub fn authority() -> Authority {
    Authority::from_key_pem(CLUSTER, AUTHORITY_KEY).expect("a key")
}

/// 2020 to 2040: any time that a simulated clock shows.
const VALIDITY: Validity =
    Validity { from: Duration::from_secs(1_577_836_800), to: Duration::from_secs(2_208_988_800) };

/// Certificates of the authority and of a node, as files have them.
pub fn certificates(role: Role) -> [String; 2] {
    let (authority, key) = (authority(), NodeKey::from_pem(NODE_KEY).expect("a key"));
    let name = NodeName::new(CLUSTER, role, "n1").expect("a name");
    let node = authority.sign(&name, key.public_key(), VALIDITY).expect("it is the authority's node");
    let root = authority.certificate(VALIDITY.from).expect("a certificate");
    [certificate_to_pem(&root), certificate_to_pem(&node)]
}

/// Keys of a node.
pub fn keys(role: Role) -> Keys {
    let [root, node] = certificates(role);
    Keys::from_pem(&root, &node, NODE_KEY).expect("keys")
}

/// The network of a node, encrypted or with integrity only. They are made once on each thread.
pub fn network(role: Role, integrity_only: bool) -> Network {
    thread_local! {
        static MADE: RefCell<BTreeMap<(Role, bool), Network>> = RefCell::default();
    }
    let make = || match integrity_only {
        true => Network::Keys(Arc::new(keys(role).with_integrity_only())),
        false => Network::Keys(Arc::new(keys(role))),
    };
    MADE.with_borrow_mut(|made| made.entry((role, integrity_only)).or_insert_with(make).clone())
}
