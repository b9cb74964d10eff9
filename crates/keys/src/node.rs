//! A node's own key and certificate, how it talks TLS with them, and who the peer of a finished handshake is.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use forebay_proto::Uuid;
use rcgen::{KeyPair, PKCS_ED25519, PublicKeyData};
use rustls::{
    ClientConfig, RootCertStore, ServerConfig,
    client::WebPkiServerVerifier,
    crypto::{CryptoProvider, aws_lc_rs},
    pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, UnixTime, pem::PemObject},
    server::WebPkiClientVerifier,
    time_provider::TimeProvider,
};

use crate::{KeyError, KeyResult, NodeName};

/// The DNS name in every server's certificate. Which server it is says its URI.
pub(crate) const SERVER_NAME: &str = "server.forebay";

/// A node's private key, before or after the authority has signed it.
pub struct NodeKey(KeyPair);

impl NodeKey {
    /// A new one.
    pub fn make() -> KeyResult<Self> {
        Ok(Self(KeyPair::generate_for(&PKCS_ED25519)?))
    }

    /// The key that [`NodeKey::pem`] returned.
    pub fn from_pem(pem: &str) -> KeyResult<Self> {
        Ok(Self(KeyPair::from_pkcs8_pem_and_sign_algo(pem, &PKCS_ED25519)?))
    }

    /// The private key. It belongs into a file that only its owner can read.
    pub fn pem(&self) -> String {
        self.0.serialize_pem()
    }

    /// What the authority signs.
    pub fn public_key(&self) -> &[u8] {
        self.0.der_bytes()
    }

    fn der(&self) -> PrivateKeyDer<'static> {
        PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(self.0.serialize_der()))
    }
}

/// The time by which certificates are judged, set by the shard before each handshake: only the shard's environment
/// knows it.
#[derive(Debug, Default)]
struct Clock(AtomicU64);

impl TimeProvider for Clock {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(Duration::from_secs(self.0.load(Ordering::Relaxed))))
    }
}

/// What a node needs for TLS: its name, key and certificate, and the authority that it believes.
pub struct Keys {
    name: NodeName,
    clock: Arc<Clock>,
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "keys of {}", self.name)
    }
}

impl Keys {
    /// Errors: the certificate is not of this key, not of this authority, or holds no node's name.
    pub fn new(
        authority: &CertificateDer<'static>,
        certificate: CertificateDer<'static>,
        key: &NodeKey,
    ) -> KeyResult<Self> {
        let name = name_in(&certificate)?;
        let (provider, clock) = (Arc::new(provider()), Arc::new(Clock::default()));
        let mut roots = RootCertStore::empty();
        roots.add(authority.clone())?;
        let roots = Arc::new(roots);
        let wrong = |error: &dyn fmt::Display| KeyError::new(format!("the authority's certificate: {error}"));
        let servers = WebPkiServerVerifier::builder_with_provider(roots.clone(), provider.clone());
        let servers = servers.build().map_err(|error| wrong(&error))?;
        let clients = WebPkiClientVerifier::builder_with_provider(roots, provider.clone());
        let clients = clients.build().map_err(|error| wrong(&error))?;
        let chain = vec![certificate];
        let client = ClientConfig::builder_with_details(provider.clone(), clock.clone())
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_webpki_verifier(servers)
            .with_client_auth_cert(chain.clone(), key.der())?;
        let server = ServerConfig::builder_with_details(provider, clock.clone())
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_client_cert_verifier(clients)
            .with_single_cert(chain, key.der())?;
        Ok(Self { name, clock, client: Arc::new(client), server: Arc::new(server) })
    }

    /// The same, of what files hold.
    pub fn from_pem(authority: &str, certificate: &str, key: &str) -> KeyResult<Self> {
        let certificate_of = |what: &str, text: &str| {
            CertificateDer::from_pem_slice(text.as_bytes())
                .map_err(|error| KeyError::new(format!("the {what} cannot be read: {error}")))
        };
        let (authority, certificate) =
            (certificate_of("authority's certificate", authority)?, certificate_of("certificate", certificate)?);
        Self::new(&authority, certificate, &NodeKey::from_pem(key)?)
    }

    /// Whose keys these are.
    pub fn name(&self) -> &NodeName {
        &self.name
    }

    /// Whose nodes these keys believe.
    pub fn cluster(&self) -> Uuid {
        self.name.cluster
    }

    /// For a connection that this node opens at `now` (time since 1970).
    pub fn to_connect(&self, now: Duration) -> (Arc<ClientConfig>, ServerName<'static>) {
        self.clock.0.store(now.as_secs(), Ordering::Relaxed);
        (self.client.clone(), ServerName::try_from(SERVER_NAME).expect("it is a DNS name"))
    }

    /// For a connection that this node accepts at `now` (time since 1970).
    pub fn to_accept(&self, now: Duration) -> Arc<ServerConfig> {
        self.clock.0.store(now.as_secs(), Ordering::Relaxed);
        self.server.clone()
    }

    /// Who the peer is that has proven to own this certificate. The handshake has verified that the authority signed
    /// it.
    pub fn peer(&self, certificates: Option<&[CertificateDer<'_>]>) -> KeyResult<Peer> {
        let certificate = certificates.and_then(<[_]>::first);
        let name = name_in(certificate.ok_or_else(|| KeyError::new("the peer has shown no certificate"))?)?;
        if name.cluster != self.name.cluster {
            return Err(KeyError::new(format!("{name} is of cluster {}, not of {}", name.cluster, self.name.cluster)));
        }
        Ok(Peer { name })
    }
}

/// A certificate as files hold it.
pub fn certificate_to_pem(certificate: &CertificateDer<'_>) -> String {
    pem::encode(&pem::Pem::new("CERTIFICATE", certificate.to_vec()))
}

/// A node that a handshake has authenticated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Who it is.
    pub name: NodeName,
}

/// AES-GCM first, and one key exchange whose messages have one length whatever the key.
fn provider() -> CryptoProvider {
    CryptoProvider { kx_groups: vec![aws_lc_rs::kx_group::X25519], ..aws_lc_rs::default_provider() }
}

/// The one node's name that a certificate holds.
fn name_in(certificate: &CertificateDer<'_>) -> KeyResult<NodeName> {
    let parsed = webpki::EndEntityCert::try_from(certificate)
        .map_err(|error| KeyError::new(format!("the certificate cannot be read: {error}")))?;
    let mut names = parsed.valid_uri_names();
    match (names.next(), names.next()) {
        (Some(uri), None) => NodeName::from_uri(uri),
        _ => Err(KeyError::new("the certificate does not hold one node's name")),
    }
}
