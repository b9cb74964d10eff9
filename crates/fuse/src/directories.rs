//! Reading directories.
//!
//! The kernel asks for a few KiB at a time. The rest of a page stays with the open directory for the next request. So
//! entries added or removed since opendir(3) or rewinddir(3) may or may not appear, as POSIX allows.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
};

use forebay_client::{ClientResult, DirEntry};
use forebay_proto::{Errno, Fid};
use fuser::{FileAttr, FileHandle};

use crate::{convert, limits, server::Server};

/// An open directory.
pub(crate) struct Directory {
    pub fid: Fid,
    /// Attributes at the last look. If the directory is removed it keeps them, except the link count.
    pub attr: Cell<FileAttr>,
    page: RefCell<Page>,
}

/// Entries that follow the one with cookie `after`.
#[derive(Default)]
struct Page {
    after: u64,
    entries: VecDeque<DirEntry>,
    /// The directory ends after these entries.
    end: bool,
}

impl Directory {
    pub fn new(fid: Fid, attr: FileAttr) -> Self {
        Self { fid, attr: Cell::new(attr), page: RefCell::default() }
    }

    /// The rest of the last page, if the kernel continues where it stopped. A listing from the beginning reads anew.
    fn resume(&self, after: u64) -> Page {
        let page = self.page.take();
        if page.after == after && after != 0 { page } else { Page { after, ..Page::default() } }
    }
}

impl Page {
    /// Passes entries to `add` until it reports that its buffer is full.
    fn give(&mut self, add: &mut impl FnMut(&DirEntry) -> bool) -> Given {
        let mut any = false;
        while let Some(entry) = self.entries.front() {
            if add(entry) {
                return Given::Full;
            }
            self.after = entry.cookie;
            self.entries.pop_front();
            any = true;
        }
        if any { Given::Some } else { Given::Nothing }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Given {
    Full,
    Some,
    Nothing,
}

impl Server {
    pub async fn opendir(&self, ino: u64) -> ClientResult<FileHandle> {
        let attr = match self.current(ino, None).await {
            // The directory was opened by its handle or through /proc. It is removed but open elsewhere, so it has no
            // entries.
            Err(error) if error.errno == Errno::ESTALE => self.directory_at_last(self.fid(ino)).ok_or(error)?,
            found => found?.attr,
        };
        Ok(self.add_directory(Directory::new(self.fid(ino), attr)))
    }

    /// Passes entries after cookie `after` to `add` until it reports that its buffer is full. If no entry is passed,
    /// the directory ends. A removed directory has no entries.
    pub async fn readdir(
        &self,
        handle: FileHandle,
        after: u64,
        mut add: impl FnMut(&DirEntry) -> bool,
    ) -> ClientResult<()> {
        let directory = self.directory(handle)?;
        if after == 0 {
            let [accessed_ns, modified_ns, changed_ns] = convert::times_ns(&directory.attr.get());
            self.client.listed(directory.fid, accessed_ns, modified_ns.max(changed_ns));
        }
        let mut page = directory.resume(after);
        while page.give(&mut add) == Given::Nothing && !page.end {
            let next = self.client.readdir(directory.fid, page.after, limits::DIRECTORY_BYTES, false).await;
            let next = next.map_err(|error| match error.errno {
                // The directory was removed, and the MDT knows of no session that still has it open.
                Errno::ESTALE => Errno::ENOENT.into(),
                _ => error,
            })?;
            // An empty page that is not the end would be requested forever.
            let end = next.end || next.entries.is_empty();
            page = Page { entries: next.entries.into(), end, ..page };
        }
        directory.page.replace(page);
        Ok(())
    }

    pub async fn fsyncdir(&self, ino: u64) -> ClientResult<()> {
        self.client.fsync_dir(self.fid(ino)).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(cookie: u64) -> DirEntry {
        DirEntry { name: format!("n{cookie}").into(), fid: Fid { high: 0, low: cookie }, mode: 0, cookie, attr: None }
    }

    #[test]
    fn an_entry_that_found_no_room_comes_first_next_time() {
        let directory = Directory::new(Fid::ROOT, crate::testing::attr(forebay_client::mode::S_IFDIR));
        directory.page.replace(Page { after: 0, entries: [5, 9, 11].map(entry).into(), end: true });
        let mut page = directory.page.take();
        let mut room = 2;
        let mut add = |_: &DirEntry| {
            room -= 1;
            room < 0
        };
        assert_eq!(page.give(&mut add), Given::Full);
        assert_eq!((page.after, page.entries.len()), (9, 1));
        directory.page.replace(page);
        let resumed = directory.resume(9);
        assert_eq!((resumed.entries[0].cookie, resumed.end), (11, true));
    }

    #[test]
    fn a_seek_and_a_rewind_read_anew() {
        let directory = Directory::new(Fid::ROOT, crate::testing::attr(forebay_client::mode::S_IFDIR));
        directory.page.replace(Page { after: 9, entries: [11].map(entry).into(), end: true });
        let sought = directory.resume(5);
        assert_eq!((sought.after, sought.entries.len(), sought.end), (5, 0, false));
        directory.page.replace(Page { after: 0, entries: [11].map(entry).into(), end: true });
        assert!(directory.resume(0).entries.is_empty());
    }
}
