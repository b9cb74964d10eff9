//! Holes: where they are (SEEK_DATA, SEEK_HOLE), and what a file with holes takes.
//!
//! A byte of the file lies in one object, and bytes that follow in an object follow in the file: so the next byte (or hole)
//! of the file is the first of what its objects tell.

use forebay_proto::{
    Errno, Layout,
    message::{GetAttr, MapObject, ObjectRef, attr_flags, map_what},
};
use forebay_rpc::Call;

use crate::{Attr, Client, ClientError, ClientResult, OpenFile, errors::Trouble, limits, tasks::try_all};

impl Client {
    /// The first byte at or after `offset` that is there. ENXIO if none follows.
    pub async fn seek_data(&self, file: &OpenFile, offset: u64) -> ClientResult<u64> {
        let (size, found) = self.seek(file, offset, map_what::DATA).await?;
        if found < size { Ok(found) } else { Err(Errno::ENXIO.into()) }
    }

    /// The first hole at or after `offset`; the end of the file is one. ENXIO beyond it.
    pub async fn seek_hole(&self, file: &OpenFile, offset: u64) -> ClientResult<u64> {
        let (size, found) = self.seek(file, offset, map_what::HOLE).await?;
        Ok(found.min(size))
    }

    /// The file's size, and where in the file something is.
    async fn seek(&self, file: &OpenFile, offset: u64, what: u32) -> ClientResult<(u64, u64)> {
        file.check()?;
        let size = self.getattr(file.fid(), Some(file)).await?.size;
        if offset >= size {
            return Err(Errno::ENXIO.into());
        }
        let state = file.state();
        let found = self.fresh(state, async || {
            let at = state.snapshot();
            let found = self.ask_maps(&at.layout, &at.object, offset, what).await?;
            let in_file = found.into_iter().enumerate().filter(|(_, bytes)| *bytes != u64::MAX);
            Ok(in_file.map(|(stripe, bytes)| at.layout.file_offset(stripe, bytes)).min())
        });
        Ok((size, found.await?.unwrap_or(u64::MAX)))
    }

    /// Bytes that a regular file takes: of one that may have holes the OSTs are asked.
    pub async fn used_bytes(&self, attr: &Attr) -> ClientResult<u64> {
        let open = self.inner.file(attr.fid);
        let may_have_holes = attr.flags & attr_flags::SPARSE != 0 || open.is_some_and(|file| file.is_sparse());
        if !may_have_holes || !crate::mode::is_file(attr.mode) {
            return Ok(attr.size);
        }
        for _ in 0..limits::STALE_ATTEMPTS {
            let entry = self.mdt(attr.fid, &GetAttr { fid: attr.fid }).await?;
            let Some(layout) = entry.layout else { return Ok(attr.size) };
            let (fid, layout_generation, truncate_epoch) = (attr.fid, layout.generation, entry.attr.truncate_epoch);
            let object = ObjectRef { fid, layout_generation, truncate_epoch };
            match self.ask_maps(&layout, &object, 0, map_what::USED).await {
                Err(Trouble::Stale(_)) => {}
                used => return Ok(used?.into_iter().sum()),
            }
        }
        let words = format!("{} is truncated again and again; try later", attr.fid);
        Err(ClientError::new(Errno::EIO, words))
    }

    /// Asks every object, from where its part of the file at and after `offset` begins.
    async fn ask_maps(&self, layout: &Layout, object: &ObjectRef, offset: u64, what: u32) -> Result<Vec<u64>, Trouble> {
        let asks = layout.osts.iter().enumerate().map(|(stripe, ost)| {
            let (client, ost) = (self.clone(), *ost);
            let request = MapObject { object: object.clone(), offset: layout.object_bytes(stripe, offset), what };
            async move { client.ost(ost, &request, Call::default()).await.map(|called| called.reply.bytes) }
        });
        try_all(self.env(), asks).await
    }
}
