//! The layout as a virtual extended attribute, `forebay.layout`, for `forebay setstripe` and `getstripe`.
//!
//! Reads return JSON: a file's layout, or the default layout of a directory, and the number of OSTs. Writes take text
//! in the flags of `setstripe`. The attribute is not listed: copies of files carry `user.forebay.layout`, which the
//! library handles.

use bytes::Bytes;
use forebay_client::{ClientError, ClientResult, LayoutSpec, parse_layout};
use forebay_proto::{Component, Errno, FOR_EVER, Fid, Layout, TargetKind, message::Pool};

use crate::{caller::Asker, server::Server};

/// The attribute's name.
pub(crate) const NAME: &[u8] = b"forebay.layout";
/// Migration. Reads return the version of a file's content. Writes take `INODE VERSION` of the copy whose objects it
/// takes over.
pub(crate) const MIGRATE: &[u8] = b"forebay.migrate";
/// The pools and OSTs that layouts can name, as JSON; read-only.
pub(crate) const POOLS: &[u8] = b"forebay.pools";

impl Server {
    pub async fn get_layout(&self, ino: u64) -> ClientResult<Bytes> {
        let fid = self.fid(ino);
        let (layout, default) = self.client.get_layout(fid).await?;
        let osts = self.client.map().targets.iter().filter(|target| target.id.kind == TargetKind::Ost).count();
        let text = match layout {
            Some(layout) => describe(fid, &layout, osts),
            None => describe_default(&default.unwrap_or_else(LayoutSpec::inherit), osts),
        };
        Ok(text.into())
    }

    /// The OSTs and pools that a layout can name.
    pub async fn get_pools(&self) -> ClientResult<Bytes> {
        let told = self.client.pools().await?;
        let pool = |pool: &Pool| format!(r#""{}": [{}]"#, quoted(&pool.name), list(&pool.osts));
        let pools: Vec<String> = told.pools.iter().map(pool).collect();
        Ok(format!(r#"{{"osts": [{}], "pools": {{{}}}}}"#, list(&told.osts), pools.join(", ")).into())
    }

    /// The version of a file's content, which stays the same until the content changes.
    pub async fn migrate_start(&self, ino: u64) -> ClientResult<Bytes> {
        Ok(self.client.migrate_start(self.fid(ino)).await?.to_string().into())
    }

    /// `text` is `INODE VERSION`: the copy whose objects the file takes over, and the version of the file's content
    /// before it was copied.
    pub async fn migrate(&self, asker: Asker, ino: u64, text: &[u8]) -> ClientResult<()> {
        let mut numbers = std::str::from_utf8(text).unwrap_or_default().split_whitespace().map(str::parse::<u64>);
        let (Some(Ok(copy)), Some(Ok(version)), None) = (numbers.next(), numbers.next(), numbers.next()) else {
            return Err(ClientError::new(Errno::EINVAL, "forebay.migrate is written as INODE VERSION"));
        };
        let (fid, copy) = (self.fid(ino), self.fid(copy));
        asker.make(0, async |caller| self.client.migrate(caller, fid, copy, version).await).await
    }

    /// Sent as the asker: the kernel has checked write permission only, and only the owner may set a layout.
    pub async fn set_layout(&self, asker: Asker, ino: u64, text: &[u8]) -> ClientResult<()> {
        let layout = parse_layout(text).ok_or_else(|| {
            ClientError::new(Errno::EINVAL, "forebay.layout is written as -c COUNT -S BYTES -i INDEX -p POOL")
        })?;
        let fid = self.fid(ino);
        asker.make(0, async |caller| self.client.set_layout(caller, fid, layout.clone()).await).await
    }
}

fn describe(fid: Fid, layout: &Layout, cluster_osts: usize) -> String {
    let first = &layout.components[0];
    let parts: Vec<String> = layout.components.iter().map(describe_component).collect();
    format!(
        r#"{{"stripe_count": {}, "stripe_size": {}, "stripe_index": {}, "generation": {}, "osts": [{}], "fid": "{}", "pool": "{}", "components": [{}], "cluster_osts": {cluster_osts}}}"#,
        first.osts.len(),
        first.stripe_bytes,
        layout.home(),
        layout.generation,
        list(&first.osts),
        layout.objects_of(fid),
        quoted(&first.pool),
        parts.join(", "),
    )
}

fn describe_component(part: &Component) -> String {
    format!(
        r#"{{"start": {}, "end": {}, "stripe_count": {}, "stripe_size": {}, "stripe_index": {}, "pool": "{}", "osts": [{}]}}"#,
        part.start,
        end(part.end),
        or_minus_one(part.stripe_count),
        part.stripe_bytes,
        part.osts.first().map_or_else(|| or_minus_one(part.stripe_index), |ost| i64::from(*ost)),
        quoted(&part.pool),
        list(&part.osts),
    )
}

fn describe_default(layout: &LayoutSpec, cluster_osts: usize) -> String {
    let mut start = 0;
    let parts = layout.components.iter().map(|part| {
        let words = format!(
            r#"{{"start": {start}, "end": {}, "stripe_count": {}, "stripe_size": {}, "stripe_index": {}, "pool": "{}"}}"#,
            end(part.end),
            or_minus_one(part.stripe_count),
            part.stripe_bytes,
            or_minus_one(part.stripe_index),
            quoted(&part.pool),
        );
        start = part.end;
        words
    });
    let parts: Vec<String> = parts.collect();
    format!(
        r#"{{"stripe_count": {}, "stripe_size": {}, "stripe_index": {}, "pool": "{}", "components": [{}], "cluster_osts": {cluster_osts}}}"#,
        or_minus_one(layout.stripe_count),
        layout.stripe_bytes,
        or_minus_one(layout.stripe_index),
        quoted(&layout.pool),
        parts.join(", "),
    )
}

fn list(osts: &[u32]) -> String {
    osts.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")
}

fn quoted(pool: &str) -> String {
    pool.replace(['"', '\\'], "")
}

/// The end of a component; -1 if it has no end.
fn end(end: u64) -> String {
    if end == FOR_EVER { "-1".into() } else { end.to_string() }
}

/// The largest number stands for -1 in the users' syntax.
fn or_minus_one(number: u32) -> i64 {
    if number == u32::MAX { -1 } else { number.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layout_is_told_as_json() {
        let layout = Layout::plain(2, 65536, vec![3, 0]);
        let expected = r#"{"stripe_count": 2, "stripe_size": 65536, "stripe_index": 3, "generation": 2, "osts": [3, 0], "fid": "[0x0:0x1]", "pool": "", "components": [{"start": 0, "end": -1, "stripe_count": 2, "stripe_size": 65536, "stripe_index": 3, "pool": "", "osts": [3, 0]}], "cluster_osts": 4}"#;
        assert_eq!(describe(Fid::ROOT, &layout, 4), expected);
        let expected = r#"{"stripe_count": 0, "stripe_size": 0, "stripe_index": -1, "pool": "", "components": [], "cluster_osts": 4}"#;
        assert_eq!(describe_default(&LayoutSpec::inherit(), 4), expected);
    }
}
