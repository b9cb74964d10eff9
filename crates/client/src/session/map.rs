//! Holes: where they are (SEEK_DATA, SEEK_HOLE), and what a file with holes takes.
//!
//! A byte of a component lies in one object, and bytes that follow in an object follow in the file: so the next byte
//! (or hole) of a component is the first of those that its objects report. Components are queried one after another.

use forebay_env::Boxed;
use forebay_proto::{
    Component, Errno, FOR_EVER,
    message::{GetAttr, MapObject, ObjectRef, attr_flags, map_what},
};
use forebay_rpc::Call;

use crate::{Attr, Client, ClientError, ClientResult, OpenFile, errors::Trouble, limits, tasks::try_all};

impl Client {
    /// The first byte at or after `offset` that is there. ENXIO if none follows.
    pub fn seek_data<'a>(&'a self, file: &'a OpenFile, offset: u64) -> Boxed<'a, ClientResult<u64>> {
        Box::pin(async move {
            let (size, found) = self.seek(file, offset, map_what::DATA).await?;
            if found < size { Ok(found) } else { Err(Errno::ENXIO.into()) }
        })
    }

    /// The first hole at or after `offset`; the end of the file is one. ENXIO beyond it.
    pub fn seek_hole<'a>(&'a self, file: &'a OpenFile, offset: u64) -> Boxed<'a, ClientResult<u64>> {
        Box::pin(async move {
            let (size, found) = self.seek(file, offset, map_what::HOLE).await?;
            Ok(found.min(size))
        })
    }

    /// The file's size, and where in the file something is.
    async fn seek(&self, file: &OpenFile, offset: u64, what: u32) -> ClientResult<(u64, u64)> {
        file.check()?;
        let _outside = self.see_all(file.state()).await?;
        let attr = self.getattr(file.fid(), Some(file)).await?;
        let size = attr.size;
        if offset >= size {
            return Err(Errno::ENXIO.into());
        }
        if attr.flags & attr_flags::INLINE != 0 {
            // No OST knows of it, and all of it is there.
            return Ok((size, if what == map_what::DATA { offset } else { u64::MAX }));
        }
        let state = file.state();
        let found = self.fresh(state, async || {
            let at = state.snapshot();
            let at = self.with_osts(state, at, offset, size - offset).await?;
            // Bytes of a component follow those of the one before.
            for (_, component) in at.layout.touched(offset, size - offset) {
                let found = match component.has_osts() {
                    true => self.seek_in(component, &at.object, offset, what).await?,
                    false => (what == map_what::HOLE).then_some(offset.max(component.start)),
                };
                if found.is_some() {
                    return Ok(found);
                }
            }
            Ok(None)
        });
        Ok((size, found.await?.unwrap_or(u64::MAX)))
    }

    /// Where in a component something is.
    async fn seek_in(
        &self,
        component: &Component,
        object: &ObjectRef,
        offset: u64,
        what: u32,
    ) -> Result<Option<u64>, Trouble> {
        let stripes = component.osts.iter().enumerate();
        let ranges: Vec<_> =
            stripes.map(|(stripe, ost)| (*ost, component.object_range(stripe, offset, FOR_EVER))).collect();
        let found = self.ask_maps(object, ranges.iter().map(|(ost, range)| (*ost, range.start)), what).await?;
        // What an object holds behind is another component's.
        let here = found.into_iter().zip(&ranges).enumerate().filter(|(_, (bytes, (_, range)))| range.contains(bytes));
        Ok(here.map(|(stripe, (bytes, _))| component.file_offset(stripe, bytes)).min())
    }

    /// Bytes that a regular file takes: if it may have holes, the OSTs report them.
    pub fn used_bytes<'a>(&'a self, attr: &'a Attr) -> Boxed<'a, ClientResult<u64>> {
        Box::pin(async move {
            let open = self.inner.file(attr.fid);
            if attr.flags & attr_flags::INLINE != 0 {
                return Ok(attr.size);
            }
            let may_have_holes =
                attr.flags & attr_flags::SPARSE != 0 || open.is_some_and(|file| file.activity.sparse.get());
            if !may_have_holes || !crate::mode::is_file(attr.mode) {
                return Ok(attr.size);
            }
            for _ in 0..limits::STALE_ATTEMPTS {
                let entry = self.mdt(attr.fid, &GetAttr { fid: attr.fid }).await?;
                let Some(layout) = entry.layout else { return Ok(attr.size) };
                let (layout_generation, truncate_epoch) = (layout.generation, entry.attr.truncate_epoch);
                let object = ObjectRef { fid: layout.objects_of(attr.fid), layout_generation, truncate_epoch };
                let objects = layout.osts().into_iter().map(|ost| (ost, 0));
                match self.ask_maps(&object, objects, map_what::USED).await {
                    Err(Trouble::Stale(_)) => {}
                    used => return Ok(used?.into_iter().sum()),
                }
            }
            let words = format!("{} is truncated or moved again and again; try later", attr.fid);
            Err(ClientError::new(Errno::EIO, words))
        })
    }

    /// Asks the objects on these OSTs, each from an offset in it on.
    async fn ask_maps(
        &self,
        object: &ObjectRef,
        objects: impl Iterator<Item = (u32, u64)>,
        what: u32,
    ) -> Result<Vec<u64>, Trouble> {
        let asks = objects.map(|(ost, offset)| {
            let (client, request) = (self.clone(), MapObject { object: object.clone(), offset, what });
            async move { client.ost(ost, &request, Call::default()).await.map(|called| called.reply.bytes) }
        });
        try_all(self.env(), asks).await
    }
}
