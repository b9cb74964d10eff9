//! Drives a logged change of a file to its OSTs: a truncate, a change of layout, or a time that was set while others
//! write.
//!
//! Order: the log row is committed; then the OSTs are notified; then the row is deleted, and requests that wait for the
//! file continue.

use std::rc::Rc;

use forebay_env::{Bug, planted};
use forebay_proto::{
    Errno, ErrorReply, Fid, Layout, crc,
    message::{FenceLayout, ObjectRef, TruncateObject, WriteObject, features},
};
use forebay_target::store_error;

use crate::{
    Mds,
    halt::{corrupt, damaged},
    inode::Inode,
    keys, limits,
    ops::{Purpose, TruncateLog, extend, inline, migrate},
    tx::Tx,
};

/// Takes over the home's size where the layout stays and the truncate epoch is new. The size that writers knew is void,
/// and they get a new one from the inode. So the inode must have the size that the home has.
fn learn_size(tx: &mut Tx<'_>, fid: Fid, mut inode: Inode, size: u64) {
    if size > inode.size {
        inode.size = size;
        tx.put_inode_touched(fid, &mut inode);
    }
}

impl Mds {
    /// Drives the truncate of `fid` in its own task, which continues if the request's client disconnects. `again`: it
    /// may have been tried before.
    pub(crate) fn start_truncate(&self, fid: Fid, mut again: bool) {
        let mds = Rc::downgrade(&self.strong());
        self.env.clone().spawn(async move {
            let mut pause = limits::INSIST_PAUSE;
            loop {
                let Some(this) = mds.upgrade().filter(|this| !this.is_closed()) else { return };
                this.memory.borrow_mut().stuck.remove(&fid);
                let tried = match again {
                    true => this.shut_out(fid).await,
                    false => Ok(()),
                };
                let tried = match tried {
                    Ok(()) => this.drive_truncate(fid, again).await,
                    failed => failed,
                };
                let Err(error) = tried else {
                    this.memory.borrow_mut().truncating.remove(&fid);
                    return this.memory_changed();
                };
                this.log_failure(&format!("truncate of {fid} is tried again in {} s", pause.as_secs()), &error);
                this.memory.borrow_mut().stuck.insert(fid);
                this.memory_changed();
                let env = this.env.clone();
                drop(this);
                env.sleep(pause).await;
                (again, pause) = (true, (2 * pause).min(limits::STUCK_PAUSE));
            }
        });
    }

    /// Called before a change of layout is retried. Clients that opened or looked at the file meanwhile know its epoch.
    /// They may have written under it on OSTs that reported their size already, and would go on to read the objects from
    /// which its bytes are moved. So the request goes to all OSTs again, under a new epoch.
    async fn shut_out(&self, fid: Fid) -> Result<(), ErrorReply> {
        self.change(|tx| {
            let key = keys::truncate(fid);
            let (Some(row), Some(mut inode)) = (tx.row(key)?, tx.find_inode(fid)?) else { return Ok(()) };
            let log = TruncateLog::decode(&row).map_err(|error| corrupt(key.as_ref(), error))?;
            if matches!(log.purpose, Purpose::Extend { .. } | Purpose::Relayout { .. } | Purpose::Exchange { .. }) {
                inode.truncate_epoch += 1;
                tx.put_inode(fid, &mut inode);
                tx.log_truncate(fid, &inode, log.purpose);
            }
            Ok(())
        })
        .await
    }

    /// `moved`: bytes of the file may have other OSTs or objects since clients received its layout.
    async fn drive_truncate(&self, fid: Fid, mut moved: bool) -> Result<(), ErrorReply> {
        let mut former = None;
        loop {
            // After a restart the row may be part of a replay that is not committed yet.
            self.store.sync().await.map_err(store_error)?;
            let Some((log, layout)) = self.read_truncate(fid).await? else { break };
            match &log.purpose {
                Purpose::Cut { size } => {
                    let ends = layout.object_ends(*size).into_iter();
                    let told = self.tell_osts(fid, &log, &layout, *size, ends.collect()).await?;
                    if moved {
                        self.fence_layouts(fid, &layout, former.as_ref()).await?;
                    }
                    return self.end_cut(fid, &log, told).await;
                }
                Purpose::Outline { size } => {
                    let ends = layout.object_ends(*size).into_iter();
                    self.tell_osts(fid, &log, &layout, *size, ends.collect()).await?;
                    self.write_out(fid, &log, &layout).await?;
                    self.end_outline(fid, &log).await?;
                    // A client that receives the reply may overwrite these bytes, so they must not be written again.
                    return match planted(Bug::OutlineEndNotSynced) {
                        true => Ok(()),
                        false => self.store.sync().await.map_err(store_error),
                    };
                }
                Purpose::SetTime => {
                    let ends = layout.osts().into_iter().map(|ost| (ost, u64::MAX));
                    self.tell_osts(fid, &log, &layout, u64::MAX, ends.collect()).await?;
                    break;
                }
                _ => {
                    let ends = layout.osts().into_iter().map(|ost| (ost, u64::MAX));
                    let told = self.tell_osts(fid, &log, &layout, u64::MAX, ends.collect()).await?;
                    if !self.change_layout(fid, &log, told).await? {
                        break;
                    }
                    (moved, former) = (true, Some(layout));
                }
            }
        }
        self.change(|tx| {
            tx.delete(keys::truncate(fid));
            Ok(())
        })
        .await
    }

    /// Completes a cut; `told` is the file's size as its home replied. The size is above the new size if a client wrote while
    /// the truncate was stuck and its close, or its eviction, did not report that to the MDT.
    async fn end_cut(&self, fid: Fid, log: &TruncateLog, told: u64) -> Result<(), ErrorReply> {
        self.change(|tx| {
            tx.delete(keys::truncate(fid));
            match tx.find_inode(fid)? {
                Some(inode) if inode.truncate_epoch == log.truncate_epoch => {
                    learn_size(tx, fid, inode, told);
                    Ok(())
                }
                _ => Ok(()),
            }
        })
        .await
    }

    /// Writes the inline bytes to the file's home, whose object has its final length already. This may be repeated:
    /// until a client is notified of the new state, the bytes are the same.
    async fn write_out(&self, fid: Fid, log: &TruncateLog, layout: &Layout) -> Result<(), ErrorReply> {
        let bytes = self.change(|tx| tx.row(keys::inline(fid))).await?;
        let bytes = bytes.as_ref().map(inline::decode).transpose();
        let bytes =
            bytes.map_err(|error| damaged(keys::inline(fid).as_ref(), error))?.filter(|bytes| !bytes.is_empty());
        // The file was removed meanwhile.
        let Some(bytes) = bytes.filter(|_| !planted(Bug::OutlinedBeforeWritten)) else { return Ok(()) };
        let (objects, write_id) = (layout.objects_of(fid), self.write_id());
        let (length, sum) = (bytes.len() as u32, crc::crc64(&bytes));
        let request = WriteObject {
            object: ObjectRef {
                fid: objects,
                layout_generation: layout.generation,
                truncate_epoch: log.truncate_epoch,
            },
            offset: 0,
            length,
            write_id,
            sums: vec![crc::seal(objects, 0, write_id, sum, length.into())],
            file_bytes: bytes.len() as u64,
            attr_epoch: log.attr_epoch_at_osts(),
            granted_bytes: 0,
        };
        let ost = layout.home();
        match self.osts.insist_on_bulk(ost, &request, bytes).await {
            Some(Ok(_)) => Ok(()),
            Some(Err(error)) => Err(error),
            None => Err(unlisted(ost)),
        }
    }

    async fn end_outline(&self, fid: Fid, log: &TruncateLog) -> Result<(), ErrorReply> {
        self.change(|tx| {
            tx.delete(keys::truncate(fid));
            match tx.find_inode(fid)? {
                Some(mut inode) if inode.truncate_epoch == log.truncate_epoch && inode.inline => {
                    tx.end_inline(fid, &mut inode);
                    tx.put_inode_touched(fid, &mut inode);
                    Ok(())
                }
                _ => Ok(()),
            }
        })
        .await
    }

    /// The log row and the layout; `None` if the file was removed meanwhile.
    async fn read_truncate(&self, fid: Fid) -> Result<Option<(TruncateLog, Layout)>, ErrorReply> {
        self.change(|tx| {
            let key = keys::truncate(fid);
            let (Some(row), Some(inode)) = (tx.row(key)?, tx.find_inode(fid)?) else { return Ok(None) };
            let log = TruncateLog::decode(&row).map_err(|error| corrupt(key.as_ref(), error))?;
            Ok(inode.layout().map(|layout| (log, layout.clone())))
        })
        .await
    }

    /// Chooses the new layout and logs it. At this point nobody writes under the old layout any more, and the file's
    /// size at its home is `size`. False if the layout cannot change: then all stays as it was.
    async fn change_layout(&self, fid: Fid, log: &TruncateLog, size: u64) -> Result<bool, ErrorReply> {
        let changed = self
            .change(|tx| {
                let Some(mut inode) = tx.find_inode(fid)? else { return Ok(false) };
                let size = inode.size.max(size);
                match &log.purpose {
                    Purpose::Extend { full } => extend::replace_full_osts(tx, fid, &mut inode, size, full)?,
                    Purpose::Relayout { spec } if size == 0 => extend::relayout_empty(tx, fid, &mut inode, spec)?,
                    Purpose::Exchange { other } if migrate::exchange(tx, fid, &mut inode, *other)? => {}
                    _ => {
                        learn_size(tx, fid, inode, size);
                        return Ok(false);
                    }
                }
                Ok(true)
            })
            .await;
        match changed {
            Err(error) if matches!(error.errno, Errno::ENOSPC | Errno::EINVAL) => {
                self.log_failure(&format!("{fid} keeps its layout"), &error);
                self.change(|tx| {
                    if let Some(inode) = tx.find_inode(fid)? {
                        learn_size(tx, fid, inode, size);
                    }
                    Ok(false)
                })
                .await
            }
            changed => changed,
        }
    }

    /// Has the OSTs refuse requests under the layouts before this one: those that it names, and former ones, which have an
    /// empty object. If the file has other objects than under the layout before, these are fenced too, while that layout
    /// is known. They belong to another file now, whose layout has the same generation.
    async fn fence_layouts(&self, fid: Fid, layout: &Layout, before: Option<&Layout>) -> Result<(), ErrorReply> {
        let objects = layout.objects_of(fid);
        let left = before.filter(|before| before.objects_of(fid) != objects);
        let fence = |(ost, fid): (u32, Fid)| {
            let request = FenceLayout { fid, layout_generation: layout.generation };
            let mds = self.strong();
            self.env.spawn(async move {
                if !mds.osts.has_feature(ost, features::LAYOUT_FENCES) {
                    return Ok(());
                }
                // EOPNOTSUPP: an older release has taken the OST over since.
                let is_older = |errno| errno == Errno::EOPNOTSUPP;
                match mds.osts.insist_unless_damaged(ost, &request, is_older).await {
                    Some(Err(error)) if !is_older(error.errno) => Err(error),
                    Some(_) => Ok(()),
                    None => Err(unlisted(ost)),
                }
            })
        };
        let of_layout = layout.osts().into_iter().map(|ost| (ost, objects));
        let tasks: Vec<_> = of_layout.map(fence).collect();
        let left: Vec<_> = left
            .into_iter()
            .flat_map(|left| {
                let fid = left.objects_of(fid);
                left.osts().into_iter().map(move |ost| (ost, fid))
            })
            .map(fence)
            .collect();
        let mut set = Ok(());
        for task in tasks {
            // A task without a result: this server stops.
            set = set.and(task.await.unwrap_or(Ok(())));
        }
        // The objects that were left refuse by their truncate epoch already. The file does not wait for OSTs that it has left.
        let set_there = async {
            for task in left {
                drop(task.await);
            }
        };
        let _ = self.env.timeout(limits::LEFT_FENCES, set_there).await;
        set
    }

    /// Sends all OSTs concurrently the epoch and the end of their objects. Returns the size that the home then reports.
    async fn tell_osts(
        &self,
        fid: Fid,
        log: &TruncateLog,
        layout: &Layout,
        file_bytes: u64,
        ends: Vec<(u32, u64)>,
    ) -> Result<u64, ErrorReply> {
        let ask = |(ost, object_bytes): &(u32, u64)| {
            let request = TruncateObject {
                fid: layout.objects_of(fid),
                truncate_epoch: log.truncate_epoch,
                object_bytes: *object_bytes,
                file_bytes: if *ost == layout.home() { file_bytes } else { u64::MAX },
                attr_epoch: log.attr_epoch_at_osts(),
            };
            let (mds, ost): (Rc<Mds>, u32) = (self.strong(), *ost);
            self.env.spawn(async move { mds.osts.insist_unless_damaged(ost, &request, |_| false).await })
        };
        let tasks: Vec<_> = ends.iter().map(ask).collect();
        let (mut told, mut failed) = (0, None);
        // Await all tasks, also after an error: while a file is stuck, no request for it is in flight to an OST.
        for (task, (ost, _)) in tasks.into_iter().zip(&ends) {
            match task.await {
                Some(Some(Ok(reply))) if *ost == layout.home() => told = reply.file_bytes,
                Some(Some(Ok(_))) => {}
                Some(Some(Err(error))) => failed = Some(error),
                Some(None) | None => failed = Some(unlisted(*ost)),
            }
        }
        failed.map_or(Ok(told), Err)
    }
}

fn unlisted(ost: u32) -> ErrorReply {
    let message = format!("OST{ost:04x} of the file's layout is not in this server's list of targets");
    ErrorReply::new(Errno::ENXIO, message)
}
