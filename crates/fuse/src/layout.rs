//! The layout as a virtual extended attribute, `forebay.layout`, for `forebay setstripe` and `getstripe`.
//!
//! Read, it is JSON: a file's layout, or what new files of a directory get, and how many OSTs there are. Written, it is text in the flags of
//! `setstripe`: `-c COUNT -S BYTES -i INDEX -p POOL`, any of them. It is not listed, so copies of files do not carry it.

use bytes::Bytes;
use forebay_client::{ClientError, ClientResult, LayoutSpec};
use forebay_proto::{Errno, Fid, Layout, TargetKind};

use crate::{caller::Asker, server::Server};

/// The attribute's name.
pub(crate) const NAME: &[u8] = b"forebay.layout";

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

    /// As the asker: the kernel has checked write permission only, and the layout is the owner's.
    pub async fn set_layout(&self, asker: Asker, ino: u64, text: &[u8]) -> ClientResult<()> {
        let layout = parse(text).ok_or_else(|| {
            ClientError::new(Errno::EINVAL, "forebay.layout is written as -c COUNT -S BYTES -i INDEX -p POOL")
        })?;
        let fid = self.fid(ino);
        asker.make(0, async |caller| self.client.set_layout(caller, fid, layout.clone()).await).await
    }
}

fn describe(fid: Fid, layout: &Layout, cluster_osts: usize) -> String {
    let osts: Vec<String> = layout.osts.iter().map(u32::to_string).collect();
    format!(
        r#"{{"stripe_count": {}, "stripe_size": {}, "stripe_index": {}, "generation": {}, "osts": [{}], "fid": "{fid}", "pool": "", "cluster_osts": {cluster_osts}}}"#,
        osts.len(),
        layout.stripe_bytes,
        osts.first().map_or("-1", String::as_str),
        layout.generation,
        osts.join(", "),
    )
}

fn describe_default(layout: &LayoutSpec, cluster_osts: usize) -> String {
    format!(
        r#"{{"stripe_count": {}, "stripe_size": {}, "stripe_index": {}, "pool": "{}", "cluster_osts": {cluster_osts}}}"#,
        or_minus_one(layout.stripe_count),
        layout.stripe_bytes,
        or_minus_one(layout.stripe_index),
        layout.pool.replace(['"', '\\'], ""),
    )
}

/// The largest number stands for what users write as -1.
fn or_minus_one(number: u32) -> i64 {
    if number == u32::MAX { -1 } else { number.into() }
}

fn parse(text: &[u8]) -> Option<LayoutSpec> {
    let mut words = std::str::from_utf8(text).ok()?.split_whitespace();
    let mut layout = LayoutSpec::inherit();
    while let Some(flag) = words.next() {
        let value = words.next()?;
        match flag {
            "-c" => layout.stripe_count = number(value)?,
            "-S" => layout.stripe_bytes = value.parse().ok()?,
            "-i" => layout.stripe_index = number(value)?,
            "-p" => layout.pool = value.into(),
            _ => return None,
        }
    }
    Some(layout)
}

fn number(value: &str) -> Option<u32> {
    if value == "-1" { Some(u32::MAX) } else { value.parse().ok() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_of_setstripe_are_read() {
        let layout = LayoutSpec { stripe_count: 4, stripe_bytes: 1 << 20, stripe_index: 2, pool: "fast".into() };
        assert_eq!(parse(b"-c 4 -S 1048576 -i 2 -p fast"), Some(layout));
        assert_eq!(parse(b"-c 0 -S 0 -i -1"), Some(LayoutSpec::inherit()));
        assert_eq!(parse(b"-c -1").map(|layout| layout.stripe_count), Some(u32::MAX));
        for bad in [&b"-c"[..], b"-c x", b"-S -1", b"4", b"-q 1", b"\xff"] {
            assert_eq!(parse(bad), None, "{}", String::from_utf8_lossy(bad));
        }
    }

    #[test]
    fn a_layout_is_told_as_json() {
        let layout = Layout { generation: 2, stripe_bytes: 65536, osts: vec![3, 0] };
        let expected = r#"{"stripe_count": 2, "stripe_size": 65536, "stripe_index": 3, "generation": 2, "osts": [3, 0], "fid": "[0x0:0x1]", "pool": "", "cluster_osts": 4}"#;
        assert_eq!(describe(Fid::ROOT, &layout, 4), expected);
        let expected = r#"{"stripe_count": 0, "stripe_size": 0, "stripe_index": -1, "pool": "", "cluster_osts": 4}"#;
        assert_eq!(describe_default(&LayoutSpec::inherit(), 4), expected);
    }
}
