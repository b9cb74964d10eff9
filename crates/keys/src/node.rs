//! A node's own key and certificate, how it talks TLS with them, and who the peer of a finished handshake is.

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::{
        Arc, PoisonError, RwLock,
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

use crate::{KeyError, KeyResult, Membership, NodeName, Role, Validity, authority};

/// Bytes of the description of an Ed25519 public key (RFC 8410).
const ED25519_SPKI_BYTES: usize = 44;

/// What a connection with encryption is called where both sides agree on one (ALPN).
const ALPN_ENCRYPTED: &[u8] = b"forebay/1";
/// The same of one with integrity only: the data is clear, and nobody on the way can change it.
pub const ALPN_INTEGRITY_ONLY: &[u8] = b"forebay-integrity/1";

/// The DNS name in every server's certificate. Which server it is says its URI.
pub(crate) const SERVER_NAME: &str = "server.forebay";

/// A node's Ed25519 public key: by it a node is known whatever it is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PublicKey(pub [u8; 32]);

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
    /// The public key; `None`: this host is about to join, and its key is not signed yet.
    key: Option<PublicKey>,
    clock: Arc<Clock>,
    /// Replaced when the certificate is renewed: connections that live keep what they began with.
    configs: RwLock<Configs>,
    integrity_only: bool,
    /// The file that holds the certificate, if one does.
    place: Option<PathBuf>,
    /// What another certificate of this key needs. `None`: this host is about to join.
    renewable: Option<Renewable>,
    membership: Arc<Membership>,
}

/// How this node's connections begin.
#[derive(Clone)]
struct Configs {
    client: Arc<ClientConfig>,
    /// The same, with encryption always.
    encrypted: Arc<ClientConfig>,
    /// For listeners. `None`: this host is about to join, and has no certificate.
    server: Option<Servers>,
    /// When the certificate is valid.
    validity: Option<Validity>,
}

struct Renewable {
    authority: CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
}

/// How a server meets those that connect.
#[derive(Clone)]
struct Servers {
    /// With a certificate.
    nodes: Arc<ServerConfig>,
    /// With a certificate or none: a host that joins has none yet.
    anybody: Arc<ServerConfig>,
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
        let (name, public_key) = read(&certificate)?;
        let clock = Arc::new(Clock::default());
        let renewable = Renewable { authority: authority.clone(), key: key.der() };
        Ok(Self {
            name,
            key: Some(public_key),
            configs: RwLock::new(Configs::new(&renewable, certificate, &clock)?),
            clock,
            integrity_only: false,
            place: None,
            renewable: Some(renewable),
            membership: Arc::default(),
        })
    }

    /// Shows another certificate (DER) of the same key from now on. Connections that live go on.
    /// Errors: it is of another key or name, or not of this authority; or it is not valid `now` (time since 1970), or would have to be
    /// renewed at once, so a clock is wrong.
    pub fn renew(&self, certificate: &[u8], now: Duration) -> KeyResult<()> {
        let certificate = CertificateDer::from(certificate.to_vec());
        let (name, key) = read(&certificate)?;
        let renewable = self.renewable.as_ref().filter(|_| name == self.name && Some(key) == self.key);
        let renewable =
            renewable.ok_or_else(|| KeyError::new(format!("a certificate of {name}, not of {}", self.name)))?;
        let mut configs = Configs::new(renewable, certificate, &self.clock)?;
        if configs.validity.is_none_or(|validity| now < validity.from || validity.renewed_at() <= now) {
            let words = "the new certificate does not hold at the time that this host's clock shows: set this host's clock, or                          that of the MGS";
            return Err(KeyError::new(words));
        }
        if self.integrity_only {
            configs.allow_integrity_only();
        }
        *self.configs.write().unwrap_or_else(PoisonError::into_inner) = configs;
        Ok(())
    }

    /// The same keys, whose certificate is in this file.
    pub fn kept_in(self, place: PathBuf) -> Self {
        Self { place: Some(place), ..self }
    }

    /// The file that holds the certificate, if one does.
    pub fn place(&self) -> Option<&Path> {
        self.place.as_deref()
    }

    /// When this node's certificate is valid. `None`: it has none yet.
    pub fn validity(&self) -> Option<Validity> {
        self.configs().validity
    }

    fn configs(&self) -> Configs {
        self.configs.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// For a host that is about to join a cluster: it knows the public key of the cluster's authority, from a token, and
    /// shows no certificate.
    pub fn to_join(cluster: Uuid, authority: &PublicKey) -> KeyResult<Self> {
        let name = NodeName::new(cluster, Role::Client, "joining")?;
        let (provider, clock) = (Arc::new(provider()), Arc::new(Clock::default()));
        let mut roots = RootCertStore::empty();
        roots.add(authority::anchor(cluster, authority)?)?;
        let servers = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.clone());
        let servers = servers.build().map_err(|error| KeyError::new(format!("the token's key: {error}")))?;
        let mut client = ClientConfig::builder_with_details(provider, clock.clone())
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_webpki_verifier(servers)
            .with_no_client_auth();
        client.enable_secret_extraction = true;
        client.alpn_protocols = vec![ALPN_ENCRYPTED.to_vec()];
        let client = Arc::new(client);
        let configs = Configs { encrypted: client.clone(), client, server: None, validity: None };
        Ok(Self {
            name,
            key: None,
            clock,
            configs: RwLock::new(configs),
            integrity_only: false,
            place: None,
            renewable: None,
            membership: Arc::default(),
        })
    }

    /// The same keys, for networks on which nobody listens: the data of connections is not encrypted where the other side
    /// allows that too. A host that joins never does.
    pub fn with_integrity_only(mut self) -> Self {
        self.integrity_only = true;
        self.configs.get_mut().unwrap_or_else(PoisonError::into_inner).allow_integrity_only();
        self
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

    /// The public key, if the authority has signed it.
    pub fn public_key(&self) -> Option<&PublicKey> {
        self.key.as_ref()
    }

    /// Whose nodes these keys believe.
    pub fn cluster(&self) -> Uuid {
        self.name.cluster
    }

    /// For a connection that this node opens at `now` (time since 1970).
    pub fn to_connect(&self, now: Duration) -> (Arc<ClientConfig>, ServerName<'static>) {
        self.clock.0.store(now.as_secs(), Ordering::Relaxed);
        (self.configs().client, ServerName::try_from(SERVER_NAME).expect("it is a DNS name"))
    }

    /// The same, for a connection that carries secrets: it is encrypted also with integrity only.
    pub fn to_connect_encrypted(&self, now: Duration) -> (Arc<ClientConfig>, ServerName<'static>) {
        let (_, name) = self.to_connect(now);
        (self.configs().encrypted, name)
    }

    /// False for a host that is about to join: it has no certificate to show.
    pub fn can_accept(&self) -> bool {
        self.configs().server.is_some()
    }

    /// For a connection that this node accepts at `now` (time since 1970) from another node. Panics if it cannot accept.
    pub fn to_accept(&self, now: Duration) -> Arc<ServerConfig> {
        self.servers(now).nodes
    }

    /// The same, from another node or from somebody who shows no certificate.
    pub fn to_accept_anybody(&self, now: Duration) -> Arc<ServerConfig> {
        self.servers(now).anybody
    }

    fn servers(&self, now: Duration) -> Servers {
        self.clock.0.store(now.as_secs(), Ordering::Relaxed);
        self.configs().server.expect("a host that is about to join accepts nothing")
    }

    /// What is known of the cluster's membership.
    pub fn membership(&self) -> &Membership {
        &self.membership
    }

    /// Who the peer is that has proven to own this certificate. The handshake has verified that the authority signed
    /// it.
    pub fn peer(&self, certificates: Option<&[CertificateDer<'_>]>) -> KeyResult<Peer> {
        let certificate = certificates.and_then(<[_]>::first);
        let certificate = certificate.ok_or_else(|| KeyError::new("the peer has shown no certificate"))?;
        let (name, key) = read(certificate)?;
        // A handshake that resumes a session looks at no certificate.
        if Validity::of(certificate)?.to.as_secs() < self.clock.0.load(Ordering::Relaxed) {
            return Err(KeyError::new(format!("the certificate of {name} has expired: it needs new keys")));
        }
        if name.cluster != self.name.cluster {
            return Err(KeyError::new(format!("{name} is of cluster {}, not of {}", name.cluster, self.name.cluster)));
        }
        Ok(Peer { name, key })
    }
}

impl Configs {
    fn new(of: &Renewable, certificate: CertificateDer<'static>, clock: &Arc<Clock>) -> KeyResult<Self> {
        let (provider, validity) = (Arc::new(provider()), Validity::of(&certificate)?);
        let mut roots = RootCertStore::empty();
        roots.add(of.authority.clone())?;
        let roots = Arc::new(roots);
        let wrong = |error: &dyn fmt::Display| KeyError::new(format!("the authority's certificate: {error}"));
        let servers = WebPkiServerVerifier::builder_with_provider(roots.clone(), provider.clone());
        let servers = servers.build().map_err(|error| wrong(&error))?;
        let clients = WebPkiClientVerifier::builder_with_provider(roots, provider.clone());
        let anybody = clients.clone().allow_unauthenticated().build().map_err(|error| wrong(&error))?;
        let clients = clients.build().map_err(|error| wrong(&error))?;
        let chain = vec![certificate];
        let mut client = ClientConfig::builder_with_details(provider.clone(), clock.clone())
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_webpki_verifier(servers)
            .with_client_auth_cert(chain.clone(), of.key.clone_key())?;
        // `env` makes the records itself.
        client.enable_secret_extraction = true;
        client.alpn_protocols = vec![ALPN_ENCRYPTED.to_vec()];
        let server = |verifier| {
            let builder = ServerConfig::builder_with_details(provider.clone(), clock.clone());
            let builder = builder.with_protocol_versions(&[&rustls::version::TLS13])?;
            let builder = builder.with_client_cert_verifier(verifier);
            let mut config = builder.with_single_cert(chain.clone(), of.key.clone_key())?;
            config.enable_secret_extraction = true;
            config.alpn_protocols = vec![ALPN_ENCRYPTED.to_vec()];
            Ok::<_, KeyError>(Arc::new(config))
        };
        let server = Some(Servers { nodes: server(clients)?, anybody: server(anybody)? });
        let client = Arc::new(client);
        Ok(Self { encrypted: client.clone(), client, server, validity: Some(validity) })
    }

    fn allow_integrity_only(&mut self) {
        let both = vec![ALPN_INTEGRITY_ONLY.to_vec(), ALPN_ENCRYPTED.to_vec()];
        Arc::make_mut(&mut self.client).alpn_protocols.clone_from(&both);
        if let Some(servers) = &mut self.server {
            Arc::make_mut(&mut servers.nodes).alpn_protocols.clone_from(&both);
            Arc::make_mut(&mut servers.anybody).alpn_protocols = both;
        }
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
    /// Its public key.
    pub key: PublicKey,
}

/// AES-GCM first, and one key exchange whose messages have one length whatever the key.
fn provider() -> CryptoProvider {
    CryptoProvider { kx_groups: vec![aws_lc_rs::kx_group::X25519], ..aws_lc_rs::default_provider() }
}

/// The one node's name that a certificate holds, and its public key.
fn read(certificate: &CertificateDer<'_>) -> KeyResult<(NodeName, PublicKey)> {
    let parsed = webpki::EndEntityCert::try_from(certificate)
        .map_err(|error| KeyError::new(format!("the certificate cannot be read: {error}")))?;
    let mut names = parsed.valid_uri_names();
    let name = match (names.next(), names.next()) {
        (Some(uri), None) => NodeName::from_uri(uri)?,
        _ => return Err(KeyError::new("the certificate does not hold one node's name")),
    };
    let key = parsed.subject_public_key_info();
    // The key is the end of it.
    let key = key.last_chunk().filter(|_| key.len() == ED25519_SPKI_BYTES);
    let key = key.ok_or_else(|| KeyError::new("the certificate is not of an Ed25519 key"))?;
    Ok((name, PublicKey(*key)))
}
