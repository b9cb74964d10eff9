//! The cluster's certificate authority: makes itself once, and signs the names of nodes.

use std::{fmt, time::Duration};

use forebay_proto::Uuid;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    PKCS_ED25519, PublicKeyData, SanType, SerialNumber, SignatureAlgorithm,
};
use rustls::pki_types::CertificateDer;
use time::OffsetDateTime;

use crate::{KeyError, KeyResult, NodeName, PublicKey, Validity, node::SERVER_NAME};

/// An authority outlives its cluster's disks.
const AUTHORITY_LIFE: Duration = Duration::from_secs(50 * 365 * 24 * 3600);
/// Bytes of an Ed25519 public key.
pub(crate) const PUBLIC_KEY_BYTES: usize = 32;

/// The certificate authority of one cluster, with its private key.
pub struct Authority {
    cluster: Uuid,
    issuer: Issuer<'static, KeyPair>,
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "authority of cluster {}", self.cluster)
    }
}

impl Authority {
    /// A new authority with a new key.
    pub fn make(cluster: Uuid) -> KeyResult<Self> {
        Ok(Self::of(cluster, KeyPair::generate_for(&PKCS_ED25519)?))
    }

    /// The authority of `cluster` whose private key [`Authority::key_pem`] returned.
    pub fn from_key_pem(cluster: Uuid, key: &str) -> KeyResult<Self> {
        let key = KeyPair::from_pkcs8_pem_and_sign_algo(key, &PKCS_ED25519)?;
        Ok(Self::of(cluster, key))
    }

    fn of(cluster: Uuid, key: KeyPair) -> Self {
        Self { cluster, issuer: Issuer::new(params(cluster), key) }
    }

    /// Whose authority it is.
    pub fn cluster(&self) -> Uuid {
        self.cluster
    }

    /// Its private key. Whoever has it can be any node.
    pub fn key_pem(&self) -> String {
        self.issuer.key().serialize_pem()
    }

    /// The certificate by which nodes know each other, made at `now` (time since 1970).
    pub fn certificate(&self, now: Duration) -> KeyResult<CertificateDer<'static>> {
        let mut params = params(self.cluster);
        params.serial_number = Some(serial_of(self.issuer.key().der_bytes()));
        params.not_before = at(now)?;
        params.not_after = at(now + AUTHORITY_LIFE)?;
        Ok(params.self_signed(self.issuer.key())?.der().clone())
    }

    /// Its public key, as tokens have it.
    pub fn public_key(&self) -> PublicKey {
        PublicKey(self.issuer.key().der_bytes().try_into().expect("an Ed25519 key"))
    }

    /// A certificate that says that the owner of this Ed25519 key is `node`.
    /// Errors: the node is of another cluster, the key has another length, or the time is none.
    pub fn sign(&self, node: &NodeName, public_key: &[u8], validity: Validity) -> KeyResult<CertificateDer<'static>> {
        if node.cluster != self.cluster {
            let (theirs, ours) = (node.cluster, self.cluster);
            return Err(KeyError::new(format!("{node} is of cluster {theirs}; this is the authority of {ours}")));
        }
        if public_key.len() != PUBLIC_KEY_BYTES {
            return Err(KeyError::new(format!("a public key has {PUBLIC_KEY_BYTES} bytes, not {}", public_key.len())));
        }
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, node.to_string());
        params.serial_number = Some(serial_of(public_key));
        params.not_before = at(validity.from)?;
        params.not_after = at(validity.to)?;
        params.subject_alt_names.push(SanType::URI(node.to_uri().try_into()?));
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        // Servers connect to each other, so they are clients too.
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        if node.role.is_server() {
            params.subject_alt_names.push(SanType::DnsName(SERVER_NAME.try_into()?));
            params.extended_key_usages.push(ExtendedKeyUsagePurpose::ServerAuth);
        }
        params.use_authority_key_identifier_extension = true;
        Ok(params.signed_by(&PublicKeyBytes(public_key), &self.issuer)?.der().clone())
    }
}

/// What stands for the authority of `cluster` at a host that knows only its public key. It is believed for its content, as
/// any trust anchor is: nobody looks at its signature.
pub(crate) fn anchor(cluster: Uuid, key: &PublicKey) -> KeyResult<CertificateDer<'static>> {
    let signer = Issuer::new(params(cluster), KeyPair::generate_for(&PKCS_ED25519)?);
    let mut params = params(cluster);
    params.serial_number = Some(serial_of(&key.0));
    Ok(params.signed_by(&PublicKeyBytes(&key.0), &signer)?.der().clone())
}

/// As long for every key: the simulator's traces depend on the length of certificates.
fn serial_of(public_key: &[u8]) -> SerialNumber {
    let mut serial = public_key[..16].to_vec();
    serial[0] = serial[0] & 0x3f | 0x40;
    serial.into()
}

fn params(cluster: Uuid) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, format!("forebay {cluster}"));
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    params
}

fn at(since_1970: Duration) -> KeyResult<OffsetDateTime> {
    let seconds = i64::try_from(since_1970.as_secs()).unwrap_or(i64::MAX);
    OffsetDateTime::from_unix_timestamp(seconds)
        .map_err(|_| KeyError::new(format!("{seconds} s since 1970 is not a time; set the clock")))
}

/// A node's public key, as it was sent.
struct PublicKeyBytes<'a>(&'a [u8]);

impl PublicKeyData for PublicKeyBytes<'_> {
    fn der_bytes(&self) -> &[u8] {
        self.0
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        &PKCS_ED25519
    }
}
