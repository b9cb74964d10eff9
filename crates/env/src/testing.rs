//! Helpers for tests that run one body in both halves.

use std::{
    future::Future,
    sync::atomic::{AtomicU64, Ordering},
};

use bytes::Bytes;

use crate::{Env, EnvResult, Network, WriteHalf, net::WriteHalfInner, real, sim::Sim, tls};

/// Runs `body` once in the real half and once in the simulated one (on one node, as the test's own task).
pub fn on_both<F, Fut>(body: F)
where
    F: Fn(Env) -> Fut,
    Fut: Future<Output = ()>,
{
    real::run(|env| body(env.with_network(Network::InsecureLoopback)));
    let sim = Sim::new(1);
    let env = sim.env(sim.add_node("node"));
    sim.block_on(body(env));
}

/// Sends what an honest node never sends after its handshake: bytes that no key has sealed. The next honest record is
/// sealed as if they had not been there. Panics if the stream has no TLS.
pub async fn send_unsealed(half: &mut WriteHalf, bytes: &[u8]) -> EnvResult<()> {
    tls_of(half).send_unsealed(Bytes::copy_from_slice(bytes)).await
}

/// Sends one record of any kind of content (RFC 8446, 5.1), sealed. Panics if the stream has no TLS, or the content is
/// longer than a record's.
pub async fn send_record(half: &mut WriteHalf, kind: u8, content: &[u8]) -> EnvResult<()> {
    tls_of(half).send_record(kind, content).await
}

fn tls_of(half: &mut WriteHalf) -> &mut tls::TlsWriteHalf {
    match &mut half.half {
        WriteHalfInner::Tls(half) => half,
        _ => panic!("a stream without TLS"),
    }
}

/// An empty directory for one test; dereferences to its path. In the real half it is removed when dropped.
pub struct ScratchDir {
    path: String,
    real: bool,
}

/// An empty directory for one test: in the system's directory for temporary files in the real half, only a name in the
/// simulated one. The environment variable `TMPDIR` moves it.
pub fn scratch_dir(env: &Env) -> ScratchDir {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    if env.is_simulated() {
        return ScratchDir { path: "/scratch".into(), real: false };
    }
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let path = std::env::temp_dir().join(format!("forebay-test-{}-{number}", std::process::id()));
    let path = path.to_str().expect("the directory for temporary files has a UTF-8 name").to_string();
    env.create_dir(&path).expect("a scratch directory can be made");
    ScratchDir { path, real: true }
}

impl Drop for ScratchDir {
    fn drop(&mut self) {
        if self.real {
            real::remove_tree(&self.path);
        }
    }
}

impl std::ops::Deref for ScratchDir {
    type Target = str;
    fn deref(&self) -> &str {
        &self.path
    }
}

impl std::fmt::Display for ScratchDir {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.path)
    }
}
