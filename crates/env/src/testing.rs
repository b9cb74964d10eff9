//! Helpers for tests: one body, both halves.

use std::future::Future;

use crate::Env;

/// Runs `body` once in the real half and once in the simulated one.
pub fn on_both<F, Fut>(_body: F)
where
    F: Fn(Env) -> Fut,
    Fut: Future<Output = ()>,
{
    unimplemented!()
}

/// An empty directory for one test, removed when dropped.
pub struct ScratchDir {
    path: String,
}

/// An empty directory for one test: real in the real half, a name in the simulated one.
pub fn scratch_dir(_env: &Env) -> ScratchDir {
    unimplemented!()
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
