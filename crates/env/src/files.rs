//! Locks on small files.

/// Held until dropped.
pub struct FileLock {
    pub(crate) _keep: Box<dyn std::any::Any>,
}
