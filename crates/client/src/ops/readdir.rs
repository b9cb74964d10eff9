//! Entries of a directory.

use crate::{Client, ClientResult, DirEntry, delayed::queue::Scope};
use forebay_env::Boxed;
use forebay_proto::{Fid, message::ReadDir};

/// A page of a directory.
#[derive(Clone, Debug)]
pub struct DirPage {
    /// In the order of cookies; `.` and `..` come first.
    pub entries: Vec<DirEntry>,
    /// Nothing follows.
    pub end: bool,
}

impl Client {
    /// Entries after `cookie` (0 = from the beginning), up to about `max_bytes` of names and attributes.
    ///
    /// With `attributes`, size and times of a file that somebody has open for writing come from the OSTs.
    pub fn readdir(&self, fid: Fid, cookie: u64, max_bytes: u32, attributes: bool) -> Boxed<'_, ClientResult<DirPage>> {
        Box::pin(async move {
            let request = ReadDir { fid, cookie, max_bytes, with_attributes: attributes };
            let reply = self.mdt(fid, &request).await?;
            let mut entries = reply.entries;
            if !attributes {
                self.inner.cache.listings.listed(fid, cookie == 0, entries.len(), self.env().now());
            }
            for entry in &mut entries {
                let is_told = entry.attr.is_some() && self.inner.delayed.has(Scope::Entries(entry.fid));
                if is_told || entry.attr.as_ref().is_some_and(crate::ops::getattr::size_is_on_osts) {
                    // The file may be gone by now; then the name comes without attributes.
                    entry.attr = self.getattr(entry.fid, None).await.ok();
                }
            }
            Ok(DirPage { entries, end: reply.end })
        })
    }
}
