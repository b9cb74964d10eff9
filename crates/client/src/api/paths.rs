//! Paths, for users of the library. Components are separated by `/`; symbolic links are followed.

use std::collections::VecDeque;

use bytes::Bytes;
use forebay_env::Boxed;
use forebay_proto::{Errno, Fid, message::LayoutSpec};

use crate::{Attr, Caller, Client, ClientError, ClientResult, OpenFile, OpenMode, Payload, limits, mode};

impl Client {
    /// Attributes of what `path` names.
    pub fn resolve<'a>(&'a self, caller: &'a Caller, path: &'a str) -> Boxed<'a, ClientResult<Attr>> {
        Box::pin(async move {
            let mut left: VecDeque<Bytes> = components(path.as_bytes());
            let mut links = 0;
            let mut dir = self.root();
            let mut found = None;
            while let Some(name) = left.pop_front() {
                let attr = self.lookup(caller, dir, &name).await.map_err(|error| name_it(error, path))?;
                if !mode::is_symlink(attr.mode) {
                    dir = attr.fid;
                    found = Some(attr);
                    continue;
                }
                links += 1;
                if links > limits::SYMLINKS {
                    return Err(name_it(Errno::ELOOP.into(), path));
                }
                let target = self.readlink(attr.fid).await?;
                if target.starts_with(b"/") {
                    (dir, found) = (self.root(), None);
                }
                components(&target).into_iter().rev().for_each(|name| left.push_front(name));
            }
            match found {
                Some(attr) => Ok(attr),
                None => self.getattr(dir, None).await,
            }
        })
    }

    /// The directory in which `path`'s last component lies (or would lie), and that component.
    pub async fn resolve_parent<'p>(&self, caller: &Caller, path: &'p str) -> ClientResult<(Fid, &'p [u8])> {
        let (dir, name) = split(path).ok_or_else(|| name_it(Errno::EINVAL.into(), path))?;
        Ok((self.resolve(caller, dir).await?.fid, name.as_bytes()))
    }

    /// Opens the file `path` names.
    pub fn open_path<'a>(
        &'a self,
        caller: &'a Caller,
        path: &'a str,
        mode: OpenMode,
    ) -> Boxed<'a, ClientResult<OpenFile>> {
        Box::pin(async move {
            let attr = self.resolve(caller, path).await?;
            self.open(caller, attr.fid, mode).await.map_err(|error| name_it(error, path))
        })
    }

    /// Makes the file `path` if it does not exist (rw-r--r--), and opens it.
    pub fn create_path<'a>(
        &'a self,
        caller: &'a Caller,
        path: &'a str,
        open: OpenMode,
    ) -> Boxed<'a, ClientResult<OpenFile>> {
        Box::pin(async move {
            let (dir, name) = self.resolve_parent(caller, path).await?;
            let created = self.create(caller, dir, name, 0o644, open, LayoutSpec::inherit()).await;
            Ok(created.map_err(|error| name_it(error, path))?.1)
        })
    }

    /// Makes the directory `path` and those above it; not an error if they exist.
    pub fn make_dirs<'a>(&'a self, caller: &'a Caller, path: &'a str) -> Boxed<'a, ClientResult<Fid>> {
        Box::pin(async move {
            let mut dir = self.root();
            for name in components(path.as_bytes()) {
                dir = match self.mkdir(caller, dir, &name, 0o755).await {
                    Err(error) if error.errno == Errno::EEXIST => self.lookup(caller, dir, &name).await?.fid,
                    made => made.map_err(|error| name_it(error, path))?.fid,
                };
            }
            Ok(dir)
        })
    }

    /// A whole file.
    pub fn read_file<'a>(&'a self, caller: &'a Caller, path: &'a str) -> Boxed<'a, ClientResult<Bytes>> {
        Box::pin(async move {
            let file = self.open_path(caller, path, OpenMode::READ).await?;
            let mut parts = Vec::new();
            let mut offset = 0;
            loop {
                let read = self.read_parts(&file, offset, limits::WHOLE_FILE_STEP).await?;
                if read.is_empty() {
                    break;
                }
                offset += read.iter().map(|part| part.len() as u64).sum::<u64>();
                parts.extend(read);
            }
            self.close(file).await?;
            Ok(if parts.len() == 1 { parts.remove(0) } else { parts.concat().into() })
        })
    }

    /// Replaces a whole file's content (made if it does not exist). Not durable yet: see [`Client::sync_all`].
    pub async fn write_file(&self, caller: &Caller, path: &str, data: impl Into<Payload>) -> ClientResult<()> {
        let data = data.into();
        let file = self.create_path(caller, path, OpenMode { truncate: true, ..OpenMode::WRITE }).await?;
        let length = data.len();
        let written = self.write(&file, 0, data).await?;
        self.close(file).await?;
        if written < length {
            let words = format!("{path}: only {written} of {length} bytes could be written");
            return Err(ClientError::new(Errno::ENOSPC, words));
        }
        Ok(())
    }

    /// Everything below `path`, parents before children: paths relative to it, and attributes. Links are not followed.
    pub fn walk<'a>(&'a self, caller: &'a Caller, path: &'a str) -> Boxed<'a, ClientResult<Vec<(String, Attr)>>> {
        Box::pin(async move {
            let root = self.resolve(caller, path).await?;
            let mut found = Vec::new();
            let mut dirs = VecDeque::from([(String::new(), root.fid)]);
            while let Some((prefix, dir)) = dirs.pop_front() {
                for (name, attr) in self.list(dir).await? {
                    let path = format!("{prefix}{}", String::from_utf8_lossy(&name));
                    if mode::is_dir(attr.mode) {
                        dirs.push_back((format!("{path}/"), attr.fid));
                    }
                    found.push((path, attr));
                }
            }
            Ok(found)
        })
    }

    /// Names and attributes of a directory, without `.` and `..`.
    async fn list(&self, dir: Fid) -> ClientResult<Vec<(Bytes, Attr)>> {
        let (mut found, mut cookie) = (Vec::new(), 0);
        loop {
            let page = self.readdir(dir, cookie, limits::READDIR_BYTES, true).await?;
            for entry in page.entries {
                cookie = entry.cookie;
                if let Some(attr) = entry.attr.filter(|_| !matches!(&entry.name[..], b"." | b"..")) {
                    found.push((entry.name, attr));
                }
            }
            if page.end {
                return Ok(found);
            }
        }
    }
}

fn components(path: &[u8]) -> VecDeque<Bytes> {
    let names = path.split(|byte| *byte == b'/').filter(|name| !matches!(*name, b"" | b"."));
    names.map(Bytes::copy_from_slice).collect()
}

/// Everything before the last component, and that; `None` for the root.
fn split(path: &str) -> Option<(&str, &str)> {
    let path = path.trim_end_matches('/');
    let (dir, name) = path.rsplit_once('/').unwrap_or(("", path));
    (!matches!(name, "" | "." | "..")).then_some((dir, name))
}

/// Tells which path an error is about.
fn name_it(error: ClientError, path: &str) -> ClientError {
    if error.message.is_empty() { ClientError::new(error.errno, path) } else { error }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_split_into_directory_and_name() {
        assert_eq!(split("/a/b"), Some(("/a", "b")));
        assert_eq!(split("b/"), Some(("", "b")));
        assert_eq!(split("/b"), Some(("", "b")));
        assert_eq!((split("/"), split(""), split("/a/..")), (None, None, None));
    }

    #[test]
    fn empty_components_and_dots_mean_nothing() {
        assert_eq!(components(b"//a/./b/"), [Bytes::from("a"), Bytes::from("b")]);
        assert!(components(b"/").is_empty());
    }
}
