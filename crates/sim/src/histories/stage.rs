//! The objects of one round: fresh names and files, so that histories stay short.

use forebay_client::{Client, ClientResult, LayoutSpec, OpenMode};
use forebay_history::{Kind, STRIPE_BYTES};
use forebay_proto::{FOR_EVER, Fid, message::ComponentSpec};

use crate::workload::caller;

/// The objects of a round.
pub struct Stage {
    /// The kind of each object.
    pub kinds: Vec<Kind>,
    /// By object: the directory that holds the names, or the file.
    pub fids: Vec<Fid>,
}

impl Stage {
    /// Makes the objects of round `number`.
    pub async fn make(client: &Client, number: u64, kinds: Vec<Kind>) -> ClientResult<Self> {
        let root = client.mkdir(&caller(), Fid::ROOT, format!("round{number}").as_bytes(), 0o755).await?.fid;
        let mut fids = Vec::new();
        for (object, kind) in kinds.iter().enumerate() {
            let name = format!("{object}");
            let fid = match kind {
                Kind::Names { .. } => client.mkdir(&caller(), root, name.as_bytes(), 0o755).await?.fid,
                _ => make_file(client, root, name.as_bytes(), *kind).await?,
            };
            fids.push(fid);
        }
        Ok(Self { kinds, fids })
    }
}

async fn make_file(client: &Client, root: Fid, name: &[u8], kind: Kind) -> ClientResult<Fid> {
    let stripes = if matches!(kind, Kind::Striped | Kind::Shared | Kind::Log) { 2 } else { 1 };
    let part = |end, stripe_count| {
        let (stripe_bytes, stripe_index, pool) = (STRIPE_BYTES, u32::MAX, String::new());
        ComponentSpec { end, stripe_count, stripe_bytes, stripe_index, pool }
    };
    // Either striped from the start, or once the file has grown past its first component.
    let layout = match stripes {
        2 if name.last().is_some_and(|last| last % 2 == 1) => {
            let components = vec![part(STRIPE_BYTES.into(), 1), part(FOR_EVER, 2)];
            LayoutSpec { components, ..LayoutSpec::inherit() }
        }
        _ => LayoutSpec { stripe_count: stripes, stripe_bytes: STRIPE_BYTES, ..LayoutSpec::inherit() },
    };
    let (attr, file) = client.create(&caller(), root, name, 0o644, OpenMode::READ_WRITE, layout).await?;
    client.close(file).await?;
    Ok(attr.fid)
}
