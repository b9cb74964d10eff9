//! Certificates, private keys, capabilities, bans.

use forebay_keys::{Authority, CapabilityKey, Keys, Membership, NodeKey, NodeName, PublicKey, Role};
use forebay_proto::{
    Decode, Encode, Fid, Reader,
    message::{Ban, Bans, Capability, NumberedKey, rights},
};

use crate::{
    corpus::{AUTHORITY_KEY, CLUSTER, NODE_KEY, authority, certificates as certificates_of, keys},
    messages::is_again,
};

/// Certificates and private keys, of a peer and of this host's files.
///
/// Input: what it is; its bytes.
pub fn certificates(data: &[u8]) -> bool {
    let Some((what, bytes)) = data.split_first() else { return false };
    let text = String::from_utf8_lossy(bytes);
    match what % 5 {
        0 => keys_of_peer(bytes),
        1 => {
            let [_, node] = certificates_of(Role::Mds);
            Keys::from_pem(&text, &node, NODE_KEY).is_ok_and(|keys| is_node(keys.name()))
        }
        2 => {
            let [root, _] = certificates_of(Role::Mds);
            Keys::from_pem(&root, &text, NODE_KEY).is_ok_and(|keys| is_node(keys.name()))
        }
        3 => NodeKey::from_pem(&text).is_ok_and(|key| {
            let again = NodeKey::from_pem(&key.pem()).expect("it was written a moment ago");
            assert_eq!(again.public_key(), key.public_key());
            true
        }),
        _ => Authority::from_key_pem(CLUSTER, &text).is_ok_and(|made| {
            let again = Authority::from_key_pem(CLUSTER, &made.key_pem()).expect("it was written a moment ago");
            assert_eq!(again.public_key(), made.public_key());
            true
        }),
    }
}

fn keys_of_peer(der: &[u8]) -> bool {
    thread_local! {
        static OURS: Keys = keys(Role::Mds);
    }
    let peer = OURS.with(|ours| ours.peer(Some(&[der.to_vec().into()])));
    peer.is_ok_and(|peer| peer.name.cluster == CLUSTER && is_node(&peer.name))
}

fn is_node(name: &NodeName) -> bool {
    assert_eq!(NodeName::from_uri(&name.to_uri()).as_ref(), Ok(name));
    true
}

pub fn certificate_seeds() -> Vec<Vec<u8>> {
    let [root, node] = certificates_of(Role::Mds);
    let [_, client] = certificates_of(Role::Client);
    let name = NodeName::new(CLUSTER, Role::Ost, "a.b-c").expect("a name");
    let der =
        authority().sign(&name, &[9; 32], forebay_keys::Validity::of_a_node(std::time::Duration::from_secs(1 << 30)));
    let der = der.expect("it is the authority's node");
    let texts = [(1, &root), (2, &node), (2, &client), (2, &root)];
    let mut seeds: Vec<Vec<u8>> = texts.into_iter().map(|(what, text)| seed(what, text.as_bytes())).collect();
    seeds.extend([seed(0, &der), seed(0, &der), seed(3, NODE_KEY.as_bytes()), seed(4, AUTHORITY_KEY.as_bytes())]);
    seeds
}

fn seed(what: u8, bytes: &[u8]) -> Vec<u8> {
    [&[what], bytes].concat()
}

const NODE: PublicKey = PublicKey([5; 32]);
const OBJECT: Fid = Fid { high: 6, low: 7 };

/// A capability that is checked for a node and an object. Only the one that was signed is taken.
///
/// Input: the node's key, the object, the key's number, rights, tag; a key as servers send it.
pub fn capabilities(data: &[u8]) -> bool {
    let mut reader = Reader::new(data);
    let mut read = || {
        let (node, object) = (PublicKey(reader.array()?), Fid { high: reader.u64()?, low: reader.u64()? });
        let capability = Capability { key: reader.u32()?, rights: reader.u8()?, tag: reader.array()? };
        Ok::<_, forebay_proto::DecodeError>((node, object, capability))
    };
    let Ok((node, object, capability)) = read() else { return false };
    let key = key();
    let taken = key.has_signed(&capability, &node, object);
    let signed = key.sign(&NODE, OBJECT, rights::READ);
    assert_eq!(taken, (node, object, capability) == (NODE, OBJECT, signed), "a capability that nobody has signed");
    let rest = reader.take(reader.remaining()).unwrap_or_default();
    if let Ok(message) = NumberedKey::from_bytes(rest)
        && let Some(key) = CapabilityKey::from_message(&message)
    {
        assert_eq!(key.to_message(), message);
    }
    taken
}

fn key() -> CapabilityKey {
    CapabilityKey::new(3, [4; 32])
}

pub fn capability_seeds() -> Vec<Vec<u8>> {
    let signed = key().sign(&NODE, OBJECT, rights::READ);
    let object = [OBJECT.high.to_le_bytes(), OBJECT.low.to_le_bytes()].concat();
    let capability = [&signed.key.to_le_bytes()[..], &[signed.rights], &signed.tag].concat();
    vec![[&NODE.0[..], &object, &capability, &key().to_message().to_bytes()].concat()]
}

/// Bans that a node hears one after another. The epoch never goes back, and the bans are those of the latest.
pub fn bans(data: &[u8]) -> bool {
    let (membership, mut reader) = (Membership::default(), Reader::new(data));
    let ours = NodeName::new(CLUSTER, Role::Client, "n1").expect("a name");
    let mut heard = 0;
    while let Ok(bans) = Bans::decode(&mut reader) {
        let before = membership.epoch();
        is_again::<Bans>(&bans.to_bytes());
        membership.adopt(&bans);
        assert_eq!(membership.epoch(), before.max(bans.epoch));
        if bans.epoch >= before {
            assert_eq!(membership.bans()[..], bans.bans);
            let names = |ban: &Ban| ban.key.is_empty() && ban.role == "client" && ban.name == "n1";
            let banned = bans.bans.iter().any(|ban| names(ban) || ban.key[..] == NODE.0);
            assert_eq!(membership.is_banned(&ours, &NODE), banned);
        }
        heard += 1;
    }
    heard > 0
}

pub fn ban_seeds() -> Vec<Vec<u8>> {
    let ban = |name: &str, key: &[u8]| Ban { role: "client".into(), name: name.into(), key: key.to_vec().into() };
    let some = [ban("n1", &[]), ban("n2", &NODE.0), ban("n3", &[1; 32])];
    let bans = |epoch: u32, count: usize| Bans { epoch, bans: some[..count].to_vec() }.to_bytes();
    vec![[bans(1, 1), bans(3, 3), bans(2, 0)].concat(), [bans(9, 2), bans(9, 0)].concat(), bans(0, 3)]
}
