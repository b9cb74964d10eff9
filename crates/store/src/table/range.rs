//! Rows in key order.

use super::key::Key;
use super::page::{MissingPage, PageId};
use super::tree::{Path, Table};

/// A row: its key, and its value within the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row<'a> {
    /// The key.
    pub key: Key,
    /// The value.
    pub value: &'a [u8],
}

/// Rows of a range, ascending. A page that is not in memory ends it with an error that names the page.
pub struct Range<'a> {
    table: &'a Table,
    /// Position of the next row: its leaf and its index there. None when the range is over.
    next: Option<(Path, usize)>,
    to: Option<Key>,
    failed: Option<MissingPage>,
}

impl Table {
    /// The first row at or above `key`.
    pub fn next_at_or_after(&self, key: &[u8]) -> Result<Option<Row<'_>>, MissingPage> {
        self.rows_from(key, None).next().transpose()
    }

    /// The last row below `key`.
    pub fn last_before(&self, key: &[u8]) -> Result<Option<Row<'_>>, MissingPage> {
        let mut path = self.descend(key)?;
        let rows = self.frames.leaf(path.leaf)?;
        let mut end = rows.locate(key).unwrap_or_else(|index| index);
        while end == 0 {
            let Some(before) = self.path_before(&path)? else {
                return Ok(None);
            };
            path = before;
            end = self.frames.leaf(path.leaf)?.len();
        }
        let rows = self.frames.leaf(path.leaf)?;
        Ok(Some(Row { key: rows.key(end - 1), value: rows.value(end - 1) }))
    }

    /// The rows of `[from, to)`.
    pub fn range(&self, from: &[u8], to: &[u8]) -> Range<'_> {
        if from >= to {
            return Range { table: self, next: None, to: None, failed: None };
        }
        self.rows_from(from, Some(Key::new(to)))
    }

    fn rows_from(&self, from: &[u8], to: Option<Key>) -> Range<'_> {
        let start = self.descend(from).and_then(|path| {
            let index = self.frames.leaf(path.leaf)?.locate(from).unwrap_or_else(|index| index);
            Ok((path, index))
        });
        Range { table: self, next: start.ok(), to, failed: start.err() }
    }

    /// The leaves whose ranges meet `[from, to)`, in key order; after a missing inner page, nothing.
    pub(super) fn leaves_of(&self, from: &[u8], to: &[u8]) -> impl Iterator<Item = Result<PageId, MissingPage>> {
        let to = Key::new(to);
        let mut next = (from < &*to).then(|| self.descend(from));
        std::iter::from_fn(move || {
            let path = match next.take()? {
                Ok(path) => path,
                Err(missing) => return Some(Err(missing)),
            };
            next = self.path_after(&path, Some(&to)).transpose();
            Some(Ok(path.leaf))
        })
    }

    /// The next leaf, if there is one and it may hold keys below `to`.
    fn path_after(&self, path: &Path, to: Option<&Key>) -> Result<Option<Path>, MissingPage> {
        let inner = self.frames.inner(path.inner)?;
        let within = path.inner_position + 1 < inner.len();
        if !within && path.root_position + 1 == self.root.len() {
            return Ok(None);
        }
        let begins = match within {
            true => inner.separators().key(path.inner_position),
            false => self.root.separators().key(path.root_position),
        };
        if to.is_some_and(|to| begins >= *to) {
            return Ok(None);
        }
        match within {
            true => self.path_at(path.root_position, path.inner_position + 1).map(Some),
            false => self.path_at(path.root_position + 1, 0).map(Some),
        }
    }

    fn path_before(&self, path: &Path) -> Result<Option<Path>, MissingPage> {
        if path.inner_position > 0 {
            return self.path_at(path.root_position, path.inner_position - 1).map(Some);
        }
        let Some(root_position) = path.root_position.checked_sub(1) else {
            return Ok(None);
        };
        let last = self.frames.inner(self.root.child(root_position))?.len() - 1;
        self.path_at(root_position, last).map(Some)
    }

    fn path_at(&self, root_position: usize, inner_position: usize) -> Result<Path, MissingPage> {
        let inner = self.root.child(root_position);
        let leaf = self.frames.inner(inner)?.child(inner_position);
        Ok(Path { root_position, inner, inner_position, leaf })
    }
}

impl<'a> Range<'a> {
    fn advance(&mut self) -> Result<Option<Row<'a>>, MissingPage> {
        while let Some((path, index)) = self.next.take() {
            let rows = self.table.frames.leaf(path.leaf)?;
            if index < rows.len() {
                let key = rows.key(index);
                if self.to.is_some_and(|to| key >= to) {
                    return Ok(None);
                }
                self.next = Some((path, index + 1));
                return Ok(Some(Row { key, value: rows.value(index) }));
            }
            self.next = self.table.path_after(&path, self.to.as_ref())?.map(|path| (path, 0));
        }
        Ok(None)
    }
}

impl<'a> Iterator for Range<'a> {
    type Item = Result<Row<'a>, MissingPage>;

    fn next(&mut self) -> Option<Self::Item> {
        match self.failed.take() {
            Some(missing) => Some(Err(missing)),
            None => self.advance().transpose(),
        }
    }
}
