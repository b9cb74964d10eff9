//! Layouts: read, set, passed on with extended attributes, exchanged by migration.
//!
//! `user.forebay.layout` is the layout as text, in the flags of `setstripe`, without the OSTs: an attribute that tools copy
//! and that any file system keeps. It is listed where the layout is not what every file has. Set on a new file or a directory
//! it gives the layout; where that cannot be (the file has data, the pool is not known here) it is as if it had not been set,
//! so that copies do not fail. It cannot be removed.

use std::fmt::Write;

use bytes::Bytes;
use forebay_env::Boxed;
use forebay_proto::{
    Component, Errno, FOR_EVER, Fid, Layout, limits,
    message::{ComponentSpec, GetAttr, GetContentVersion, LayoutSpec, Migrate, Outline, SetLayout},
    parse_size,
};

use crate::{Caller, Client, ClientError, ClientResult, tasks::detached};

/// The name of the attribute that tools copy.
pub const LAYOUT_XATTR: &[u8] = b"user.forebay.layout";

/// Reads `-c COUNT -S SIZE -i INDEX -p POOL`, or `-E END` and any of those for each component. `None` for what no layout can
/// be anywhere.
pub fn parse_layout(text: &[u8]) -> Option<LayoutSpec> {
    let mut words = std::str::from_utf8(text).ok()?.split_whitespace().peekable();
    words.peek()?;
    let mut layout = LayoutSpec::inherit();
    while let Some(flag) = words.next() {
        let value = words.next()?;
        if flag == "-E" {
            let end = if value == "-1" { FOR_EVER } else { parse_size(value)? };
            let LayoutSpec { stripe_count, stripe_bytes, stripe_index, pool, .. } = LayoutSpec::inherit();
            layout.components.push(ComponentSpec { end, stripe_count, stripe_bytes, stripe_index, pool });
            continue;
        }
        let (count, bytes, index, pool) = match layout.components.last_mut() {
            Some(part) => (&mut part.stripe_count, &mut part.stripe_bytes, &mut part.stripe_index, &mut part.pool),
            None => (&mut layout.stripe_count, &mut layout.stripe_bytes, &mut layout.stripe_index, &mut layout.pool),
        };
        match flag {
            "-c" => *count = number(value)?,
            "-S" => *bytes = stripe_size(value)?,
            "-i" => *index = number(value)?,
            "-p" => *pool = value.into(),
            _ => return None,
        }
    }
    Some(layout)
}

fn stripe_size(value: &str) -> Option<u32> {
    parse_size(value)?.try_into().ok().filter(|bytes: &u32| bytes.is_multiple_of(limits::STRIPE_BYTES_MIN))
}

fn number(value: &str) -> Option<u32> {
    if value == "-1" { Some(u32::MAX) } else { value.parse().ok() }
}

/// A file's layout as text: what a copy of it is to have. Components that only came about because an OST was full are one.
fn text_of(layout: &Layout) -> String {
    let mut parts: Vec<&Component> = Vec::new();
    for part in &layout.components {
        let same = |last: &&Component| last.stripe_bytes == part.stripe_bytes && last.pool == part.pool;
        let odd = |last: &&Component| !last.end.is_multiple_of(limits::STRIPE_BYTES_MIN.into());
        match parts.last_mut() {
            Some(last) if same(last) && odd(last) => *last = part,
            _ => parts.push(part),
        }
    }
    let plain = parts.len() == 1;
    let words = parts.iter().map(|part| {
        let end = if plain { None } else { Some(part.end) };
        words(end, part.stripe_count, part.stripe_bytes, &part.pool)
    });
    words.collect::<Vec<_>>().join(" ")
}

fn text_of_default(spec: &LayoutSpec) -> String {
    if spec.components.is_empty() {
        return words(None, spec.stripe_count, spec.stripe_bytes, &spec.pool);
    }
    let parts = spec.components.iter();
    parts
        .map(|part| words(Some(part.end), part.stripe_count, part.stripe_bytes, &part.pool))
        .collect::<Vec<_>>()
        .join(" ")
}

fn words(end: Option<u64>, count: u32, bytes: u32, pool: &str) -> String {
    let mut text = match end {
        None => String::new(),
        Some(FOR_EVER) => "-E -1 ".into(),
        Some(end) => format!("-E {end} "),
    };
    let count = if count == u32::MAX { -1 } else { i64::from(count) };
    let _ = write!(text, "-c {count} -S {bytes}");
    if !pool.is_empty() {
        let _ = write!(text, " -p {pool}");
    }
    text
}

/// The same without what only its own cluster knows.
fn anywhere(mut spec: LayoutSpec) -> LayoutSpec {
    (spec.stripe_index, spec.pool) = (u32::MAX, String::new());
    for part in &mut spec.components {
        (part.stripe_index, part.pool) = (u32::MAX, String::new());
    }
    spec
}

impl Client {
    /// A directory's default layout, or the layout of a file without data. EEXIST for one with data.
    pub fn set_layout<'a>(&'a self, caller: &'a Caller, fid: Fid, layout: LayoutSpec) -> Boxed<'a, ClientResult<()>> {
        let request = SetLayout { caller: caller.clone(), fid, layout };
        Box::pin(async move { detached(self.env(), self.clone().send_set_layout(request)).await })
    }

    async fn send_set_layout(self, request: SetLayout) -> ClientResult<()> {
        let fid = request.fid;
        let _outside = self.flush_writes_of(fid).await?;
        let before = self.mdt(fid, &GetAttr { fid }).await?;
        self.change(fid, &request).await?;
        let Some(before) = before.layout else { return Ok(()) };
        // If the file was opened for writing before, the OSTs have replied whether it has data.
        if self.adopt_layout(fid).await?.is_some_and(|layout| layout.generation > before.generation) {
            return Ok(());
        }
        let words = format!("{fid} has data, so its layout is fixed; `forebay migrate` moves it to another");
        Err(ClientError::new(Errno::EEXIST, words))
    }

    /// Fetches a file's layout; its handles use it from now on.
    async fn adopt_layout(&self, fid: Fid) -> ClientResult<Option<Layout>> {
        let asked = self.inner.mdt.leases.ticket();
        let entry = self.mdt(fid, &GetAttr { fid }).await?;
        if let Some(file) = self.inner.file(fid) {
            file.adopt(asked, &entry.attr, entry.layout.as_ref());
        }
        Ok(entry.layout)
    }

    /// A regular file's layout, and a directory's default where it has one of its own.
    pub fn get_layout(&self, fid: Fid) -> Boxed<'_, ClientResult<(Option<Layout>, Option<LayoutSpec>)>> {
        Box::pin(async move {
            let entry = self.mdt(fid, &GetAttr { fid }).await?;
            Ok((entry.layout, entry.default_layout))
        })
    }

    /// The value of [`LAYOUT_XATTR`]. ENODATA of what has no layout.
    pub(crate) async fn layout_xattr(&self, fid: Fid) -> ClientResult<Bytes> {
        match self.get_layout(fid).await? {
            (Some(layout), _) => Ok(text_of(&layout).into()),
            (None, Some(spec)) => Ok(text_of_default(&spec).into()),
            (None, None) => Err(Errno::ENODATA.into()),
        }
    }

    /// Sets it as far as possible: a copy is not to fail because of it. Anybody who may write the file may call this;
    /// it takes effect for the owner only.
    /// Errors: EINVAL for what is no layout.
    pub(crate) async fn set_layout_xattr(&self, caller: &Caller, fid: Fid, text: &[u8]) -> ClientResult<()> {
        let words =
            "user.forebay.layout is -c COUNT -S SIZE (whole 64 KiB) -p POOL, for components with -E END before each";
        let spec = parse_layout(text).ok_or_else(|| ClientError::new(Errno::EINVAL, words))?;
        let failed = match self.set_layout(caller, fid, spec.clone()).await {
            Err(error) if error.errno == Errno::EINVAL => self.set_layout(caller, fid, anywhere(spec)).await,
            done => done,
        };
        match failed {
            Err(error) if matches!(error.errno, Errno::EINVAL | Errno::EEXIST | Errno::ENOSPC | Errno::EPERM) => Ok(()),
            done => done,
        }
    }

    /// What the content of a file is called until it changes, for [`Client::migrate`]. EBUSY while it is in use.
    pub fn migrate_start(&self, fid: Fid) -> Boxed<'_, ClientResult<u64>> {
        let client = self.clone();
        let start = async move {
            let _outside = client.flush_writes_of(fid).await?;
            let asked = client.inner.mdt.leases.ticket();
            let entry = client.change(fid, &Outline { fid }).await?;
            if let Some(file) = client.inner.file(fid) {
                file.adopt(asked, &entry.attr, entry.layout.as_ref());
            }
            Ok(client.mdt(fid, &GetContentVersion { fid }).await?.version)
        };
        Box::pin(async move { detached(self.env(), start).await })
    }

    /// `fid` takes over the objects of `other`, into which its content was copied when it was called `version`.
    ///
    /// EAGAIN if it changed since, EBUSY while it is in use or the copy is still being written.
    pub fn migrate<'a>(
        &'a self,
        caller: &'a Caller,
        fid: Fid,
        other: Fid,
        version: u64,
    ) -> Boxed<'a, ClientResult<()>> {
        let request = Migrate { caller: caller.clone(), fid, other, version };
        Box::pin(async move { detached(self.env(), self.clone().send_migrate(request)).await })
    }

    async fn send_migrate(self, request: Migrate) -> ClientResult<()> {
        let (fid, other) = (request.fid, request.other);
        let _outside = (self.flush_writes_of(fid).await?, self.flush_writes_of(other).await?);
        let expected = self.get_layout(other).await?.0.map(|layout| layout.objects_of(other));
        self.change(fid, &request).await?;
        self.inner.mdt.leases.touch(other);
        let now = self.adopt_layout(fid).await?.map(|layout| layout.objects_of(fid));
        self.adopt_layout(other).await?;
        if now == expected { Ok(()) } else { Err(ClientError::new(Errno::EAGAIN, "the file came into use meanwhile")) }
    }
}

#[cfg(test)]
mod tests;
