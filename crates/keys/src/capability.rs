//! How capabilities are signed and checked: a keyed hash (HMAC-SHA-256, cut to 16 bytes) of the node's public key, the
//! object and the rights. MDT and OSTs share the keys; no client has one.

use std::fmt;

use aws_lc_rs::{constant_time, hmac, rand};
use forebay_proto::{
    Fid,
    message::{Capability, NumberedKey},
};

use crate::PublicKey;

/// Bytes of a key.
pub const CAPABILITY_KEY_BYTES: usize = 32;
/// What the hashes of this version begin with: a hash for another purpose is never a capability.
const SIGNED: &[u8] = b"forebay capability 1";
const DERIVED: &[u8] = b"forebay capability key 1";

/// A key with which capabilities are signed.
#[derive(Clone)]
pub struct CapabilityKey {
    number: u32,
    secret: [u8; CAPABILITY_KEY_BYTES],
    ready: hmac::Key,
}

impl fmt::Debug for CapabilityKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "capability key {}", self.number)
    }
}

impl PartialEq for CapabilityKey {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number && constant_time::verify_slices_are_equal(&self.secret, &other.secret).is_ok()
    }
}

impl CapabilityKey {
    /// A key with its number.
    pub fn new(number: u32, secret: [u8; CAPABILITY_KEY_BYTES]) -> Self {
        Self { number, secret, ready: hmac::Key::new(hmac::HMAC_SHA256, &secret) }
    }

    /// A new master key, which nobody can guess, whatever chance the environment plays with.
    pub fn random_master() -> [u8; CAPABILITY_KEY_BYTES] {
        let mut master = [0; CAPABILITY_KEY_BYTES];
        rand::fill(&mut master).expect("the operating system gives random bytes");
        master
    }

    /// The key of this number; only the MDT has the master key.
    pub fn derive(master: &[u8; CAPABILITY_KEY_BYTES], number: u32) -> Self {
        let mut context = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, master));
        context.update(DERIVED);
        context.update(&number.to_le_bytes());
        let secret = context.sign().as_ref().try_into().expect("SHA-256 has 32 bytes");
        Self::new(number, secret)
    }

    /// Its number.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// As servers tell it to each other.
    pub fn to_message(&self) -> NumberedKey {
        NumberedKey { number: self.number, secret: self.secret.to_vec().into() }
    }

    /// The same, back. `None` if it has another length.
    pub fn from_message(message: &NumberedKey) -> Option<Self> {
        Some(Self::new(message.number, message.secret[..].try_into().ok()?))
    }

    /// Says that the node may do `rights` with the objects of this fid.
    pub fn sign(&self, node: &PublicKey, object: Fid, rights: u8) -> Capability {
        let hash = self.hash(node, object, rights);
        let tag = hash.as_ref().first_chunk().expect("SHA-256 has more than 16 bytes");
        Capability { key: self.number, rights, tag: *tag }
    }

    /// True if this key has signed the capability for this node and object.
    pub fn has_signed(&self, capability: &Capability, node: &PublicKey, object: Fid) -> bool {
        let signed = self.sign(node, object, capability.rights);
        signed.key == capability.key && constant_time::verify_slices_are_equal(&signed.tag, &capability.tag).is_ok()
    }

    fn hash(&self, node: &PublicKey, object: Fid, rights: u8) -> hmac::Tag {
        let mut context = hmac::Context::with_key(&self.ready);
        context.update(SIGNED);
        context.update(&self.number.to_le_bytes());
        context.update(&node.0);
        context.update(&object.to_key());
        context.update(&[rights]);
        context.sign()
    }
}

#[cfg(test)]
mod tests {
    use forebay_proto::message::rights;

    use super::*;

    #[test]
    fn a_capability_is_for_one_node_one_object_its_rights_and_its_key() {
        let master = [3; CAPABILITY_KEY_BYTES];
        let key = CapabilityKey::derive(&master, 5);
        let (node, object) = (PublicKey([1; 32]), Fid { high: 1, low: 2 });
        let signed = key.sign(&node, object, rights::READ);
        assert!(key.has_signed(&signed, &node, object));
        assert!(!key.has_signed(&signed, &PublicKey([2; 32]), object), "another node");
        assert!(!key.has_signed(&signed, &node, Fid { high: 1, low: 3 }), "another object");
        assert!(!key.has_signed(&Capability { rights: rights::ALL, ..signed }, &node, object), "more rights");
        assert!(!CapabilityKey::derive(&master, 6).has_signed(&signed, &node, object), "another key");
        assert!(!CapabilityKey::derive(&master, 6).has_signed(&Capability { key: 6, ..signed }, &node, object));
        for bit in 0..128 {
            let mut forged = signed;
            forged.tag[bit / 8] ^= 1 << (bit % 8);
            assert!(!key.has_signed(&forged, &node, object), "bit {bit}");
        }
        assert_eq!(CapabilityKey::from_message(&key.to_message()), Some(key));
    }
}
