use std::time::Duration;

use forebay_proto::{
    Uuid,
    message::{Ban, Bans},
};
use rustls::pki_types::CertificateDer;

use crate::{Authority, Keys, NodeKey, NodeName, Role, Validity};

const OURS: Uuid = Uuid([1; 16]);
const NOW: Duration = Duration::from_secs(1_800_000_000);
const VALID: Validity = Validity { from: NOW, to: Duration::from_secs(1_900_000_000) };

fn name(cluster: Uuid, role: Role) -> NodeName {
    NodeName::new(cluster, role, "n1").unwrap()
}

fn signed(authority: &Authority, node: &NodeName) -> (NodeKey, CertificateDer<'static>) {
    let key = NodeKey::make().unwrap();
    let certificate = authority.sign(node, key.public_key(), VALID).unwrap();
    (key, certificate)
}

#[test]
fn keys_have_the_name_that_was_signed_also_after_both_private_keys_were_stored() {
    let made = Authority::make(OURS).unwrap();
    let authority = Authority::from_key_pem(OURS, &made.key_pem()).unwrap();
    for role in Role::ALL {
        let node = name(OURS, role);
        let (key, certificate) = signed(&authority, &node);
        let key = NodeKey::from_pem(&key.pem()).unwrap();
        let keys = Keys::new(&made.certificate(NOW).unwrap(), certificate.clone(), &key).unwrap();
        assert_eq!((keys.name(), keys.cluster()), (&node, OURS));
        assert_eq!(keys.peer(Some(&[certificate])).unwrap().name, node);
    }
}

#[test]
fn the_authority_signs_only_nodes_of_its_cluster_and_keys_of_the_right_length() {
    let authority = Authority::make(OURS).unwrap();
    let key = NodeKey::make().unwrap();
    let other = name(Uuid([2; 16]), Role::Ost);
    let refused = authority.sign(&other, key.public_key(), VALID).unwrap_err();
    assert!(refused.to_string().contains("this is the authority of"), "{refused}");
    for length in [0, 31, 33, 64] {
        assert!(authority.sign(&name(OURS, Role::Ost), &vec![7; length], VALID).is_err(), "{length}");
    }
}

#[test]
fn a_certificate_of_another_key_and_one_without_a_nodes_name_are_refused() {
    let authority = Authority::make(OURS).unwrap();
    let root = authority.certificate(NOW).unwrap();
    let (key, certificate) = signed(&authority, &name(OURS, Role::Client));
    assert!(Keys::new(&root, certificate.clone(), &NodeKey::make().unwrap()).is_err());
    assert!(Keys::new(&root, root.clone(), &key).is_err());
    let keys = Keys::new(&root, certificate, &key).unwrap();
    assert!(keys.peer(None).is_err() && keys.peer(Some(&[])).is_err());
    assert!(keys.peer(Some(&[root, CertificateDer::from(vec![0x30, 1])])).is_err());
    let (_, foreign) = signed(&Authority::make(Uuid([2; 16])).unwrap(), &name(Uuid([2; 16]), Role::Client));
    let refused = keys.peer(Some(&[foreign])).unwrap_err();
    assert!(refused.to_string().contains("is of cluster"), "{refused}");
}

#[test]
fn no_text_that_people_see_holds_a_private_key() {
    let authority = Authority::make(OURS).unwrap();
    let (key, certificate) = signed(&authority, &name(OURS, Role::Client));
    let keys = Keys::new(&authority.certificate(NOW).unwrap(), certificate, &key).unwrap();
    assert_eq!(format!("{keys:?}"), "keys of client n1");
}

#[test]
fn a_peer_is_known_by_its_key_and_a_ban_meets_that_key_or_every_node_of_a_name() {
    let authority = Authority::make(OURS).unwrap();
    let (key, certificate) = signed(&authority, &name(OURS, Role::Client));
    let keys = Keys::new(&authority.certificate(NOW).unwrap(), certificate.clone(), &key).unwrap();
    let peer = keys.peer(Some(&[certificate])).unwrap();
    assert_eq!(peer.key.0, key.public_key());
    let membership = keys.membership();
    assert!(!membership.is_banned(&peer.name, &peer.key));
    let ban = |name: &str, key: &[u8]| Ban { role: "client".into(), name: name.into(), key: key.to_vec().into() };
    for (epoch, bans, banned) in [
        (1, vec![ban("other", key.public_key())], true),
        (2, vec![ban("n1", &[7; 32])], false),
        (3, vec![ban("n1", &[])], true),
        (4, vec![ban("other", &[])], false),
    ] {
        membership.adopt(&Bans { epoch, bans });
        assert_eq!((membership.epoch(), membership.is_banned(&peer.name, &peer.key)), (epoch, banned));
    }
    membership.adopt(&Bans { epoch: 3, bans: vec![ban("n1", &[])] });
    assert!(!membership.is_banned(&peer.name, &peer.key), "an older map says nothing");
    membership.hear(9);
    assert!(membership.is_outdated());
    membership.forget_rumours();
    assert!(!membership.is_outdated());
}

#[test]
fn a_renewed_certificate_is_shown_by_the_same_keys_and_no_other_nodes_is_taken() {
    let authority = Authority::make(OURS).unwrap();
    let node = name(OURS, Role::Ost);
    let (key, certificate) = signed(&authority, &node);
    let keys = Keys::new(&authority.certificate(NOW).unwrap(), certificate, &key).unwrap().with_integrity_only();
    assert_eq!(keys.validity(), Some(VALID));
    let later = Validity { from: VALID.from, to: VALID.to + Duration::from_secs(77) };
    let next = authority.sign(&node, key.public_key(), later).unwrap();
    keys.renew(&next, NOW).unwrap();
    assert_eq!(keys.validity(), Some(later));
    let offered = &keys.to_connect(NOW).0.alpn_protocols;
    assert!(offered.iter().any(|name| name == crate::ALPN_INTEGRITY_ONLY), "the choice of the host stays");
    let (_, of_another_key) = signed(&authority, &node);
    let of_another_name = authority.sign(&name(OURS, Role::Admin), key.public_key(), later).unwrap();
    assert!([of_another_key, of_another_name].into_iter().all(|wrong| keys.renew(&wrong, NOW).is_err()));
    // Clocks that differ: one that holds later only, and one that would have to be renewed at once.
    for (from, to) in [(NOW + Duration::from_secs(1), later.to), (VALID.from, NOW)] {
        let wrong = authority.sign(&node, key.public_key(), Validity { from, to }).unwrap();
        assert!(keys.renew(&wrong, NOW).unwrap_err().to_string().contains("clock"));
    }
    assert_eq!(keys.validity(), Some(later));
    assert_eq!(Keys::to_join(OURS, &authority.public_key()).unwrap().validity(), None);
}
