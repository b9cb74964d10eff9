//! Operations on the bytes of files.

use forebay_client::{Allocate, OpenFile, PendingFile, SetAttributes};

use super::{FILE_BYTES, Outcome, Pending, Runner, caller};
use crate::model::{FileModel, NodeId, WriteTag, fill};

impl Runner {
    pub(super) async fn write(&mut self) -> Outcome {
        let Some((file, id, is_ours)) = self.open_some().await? else { return Ok(()) };
        let offset = self.dice.below(FILE_BYTES);
        let offset = if self.dice.below(3) == 0 { offset & !0xffff } else { offset };
        self.write_at(&file, id, offset).await?;
        self.done_with(file, is_ours).await
    }

    pub(super) async fn write_at(&mut self, file: &OpenFile, id: NodeId, offset: u64) -> Outcome {
        let longest = [300, 5_000, 70_000, 260_000][self.dice.below(4) as usize];
        let length = 1 + self.dice.below(longest);
        let tag = self.dice.roll() | 1;
        self.say(&format!("write {tag:#x} to {} at {offset} + {length}, over {:?}", file.fid(), file.layout().osts()));
        {
            let mut me = self.me.borrow_mut();
            me.pending = Some(Pending::Write { file: id, offset, length, tag });
            me.version += 1;
        }
        let written = self.client.write(file, offset, fill(tag, offset, length as usize)).await;
        let written = self.allow(written)?;
        let written = written.unwrap_or(0) as u64;
        {
            let mut me = self.me.borrow_mut();
            me.version += 1;
            if written > 0 {
                me.file(id).write(offset, written, tag);
            }
            if written < length {
                me.file(id).maybe_write(offset + written, length - written, tag);
                me.file(id).refuse(tag);
            }
        }
        if written == length {
            return Ok(());
        }
        // Refused or cut short: the write may be there in full, in part or not at all. Read the file and continue from
        // what is there.
        self.look(file, id, tag).await
    }

    /// Writes the first bytes of a file whose create is pending, if the client accepts them.
    pub(super) fn write_early(&mut self, coming: &PendingFile, id: NodeId) {
        let length = 1 + self.dice.below(6_000);
        let tag = self.dice.roll() | 1;
        if coming.write(0, &fill(tag, 0, length as usize).into()) {
            self.say(&format!("wrote {tag:#x} at 0 + {length}, early"));
            let mut me = self.me.borrow_mut();
            me.version += 1;
            me.file(id).write(0, length, tag);
        }
    }

    /// Reads a whole file after write `tag` was refused. What it reads becomes current, if the history allows it.
    async fn look(&mut self, file: &OpenFile, id: NodeId, tag: WriteTag) -> Outcome {
        let attr = self.client.getattr(file.fid(), Some(file)).await;
        let Some(attr) = self.allow(attr)? else { return Ok(()) };
        let bytes = self.client.read(file, 0, attr.size as usize).await;
        let Some(bytes) = self.allow_read(bytes, file, 0..attr.size)? else { return Ok(()) };
        let mut me = self.me.borrow_mut();
        me.version += 1;
        // A client that may have got EIO may have lost earlier bytes.
        let loose = self.excuses.eio || self.excuses.evicted;
        Ok(me.file(id).look(attr.size, &bytes, tag, loose)?)
    }

    pub(super) async fn append(&mut self) -> Outcome {
        let Some((file, id, is_ours)) = self.open_some().await? else { return Ok(()) };
        let expected = self.me.borrow_mut().file(id).size();
        if expected < FILE_BYTES {
            let length = 1 + self.dice.below(20_000);
            let tag = self.dice.roll() | 1;
            self.say(&format!("append {tag:#x} to {} at {expected} + {length}", file.fid()));
            {
                let mut me = self.me.borrow_mut();
                me.pending = Some(Pending::Write { file: id, offset: expected, length, tag });
                me.version += 1;
            }
            let at = self.client.append(&file, fill(tag, expected, length as usize)).await;
            match self.allow(at)? {
                Some(at) if at == expected => {
                    let mut me = self.me.borrow_mut();
                    me.version += 1;
                    me.file(id).write(at, length, tag);
                }
                Some(at) => return Err(format!("an append went to {at}, the file ended at {expected}").into()),
                None => {
                    self.me.borrow_mut().file(id).maybe_write(expected, length, tag);
                    self.me.borrow_mut().file(id).refuse(tag);
                    self.look(&file, id, tag).await?;
                }
            }
        }
        self.done_with(file, is_ours).await
    }

    pub(super) async fn truncate(&mut self) -> Outcome {
        let Some((file, id, is_ours)) = self.open_some().await? else { return Ok(()) };
        let size = self.dice.below(FILE_BYTES);
        self.say(&format!("truncate {} to {size}", file.fid()));
        {
            let mut me = self.me.borrow_mut();
            me.pending = Some(Pending::Truncate { file: id, size });
            me.version += 1;
        }
        let changes = SetAttributes { size: Some(size), ..SetAttributes::default() };
        let cut = self.client.setattr(&caller(), file.fid(), changes, Some(&file)).await;
        if let Some(attr) = self.allow(cut)? {
            let mut me = self.me.borrow_mut();
            me.version += 1;
            me.file(id).truncate(size);
            if attr.size != size {
                return Err(format!("truncate to {size} answered with size {}", attr.size).into());
            }
        }
        self.done_with(file, is_ours).await
    }

    pub(super) async fn punch(&mut self) -> Outcome {
        let Some((file, id, is_ours)) = self.open_some().await? else { return Ok(()) };
        let (offset, length) = (self.dice.below(FILE_BYTES), 1 + self.dice.below(100_000));
        self.say(&format!("punch {} at {offset} + {length}", file.fid()));
        {
            let mut me = self.me.borrow_mut();
            me.pending = Some(Pending::Punch { file: id, offset, length });
            me.version += 1;
        }
        let punched = self.client.fallocate(&file, offset, length, Allocate::Punch).await;
        if self.allow(punched)?.is_some() {
            let mut me = self.me.borrow_mut();
            me.version += 1;
            me.file(id).punch(offset, length);
        }
        if offset.is_multiple_of(2) {
            // Reserve space again: the bytes stay the same.
            let keep = Allocate::Reserve { keep_size: true };
            self.allow(self.client.fallocate(&file, offset, length, keep).await)?;
        }
        self.done_with(file, is_ours).await
    }

    pub(super) async fn read(&mut self) -> Outcome {
        let Some((file, id, is_ours)) = self.open_some().await? else { return Ok(()) };
        let size = self.me.borrow_mut().file(id).size();
        let offset = self.dice.below(size + 1000);
        let length = 1 + self.dice.below(200_000);
        let bytes = self.client.read(&file, offset, length as usize).await;
        if let Some(bytes) = self.allow_read(bytes, &file, offset..offset + length)? {
            let expected = size.saturating_sub(offset).min(length);
            if bytes.len() as u64 != expected {
                return Err(
                    format!("read of {length} at {offset} gave {} bytes of a file of {size}", bytes.len()).into()
                );
            }
            self.me.borrow_mut().file(id).check(offset, &bytes, false)?;
        }
        self.done_with(file, is_ours).await
    }

    pub(super) async fn fsync(&mut self) -> Outcome {
        let Some((file, id, is_ours)) = self.open_some().await? else { return Ok(()) };
        self.say(&format!("fsync {}", file.fid()));
        let synced = self.client.fsync(&file, false).await;
        if self.allow(synced)?.is_some() {
            let mut me = self.me.borrow_mut();
            me.file(id).sync();
            me.names.sync_file(id);
        }
        self.done_with(file, is_ours).await
    }

    pub(super) async fn sync_all(&mut self) -> Outcome {
        self.say("sync_all");
        let synced = self.client.sync_all().await;
        if self.allow(synced)?.is_some() {
            let mut me = self.me.borrow_mut();
            me.names.sync();
            me.files.values_mut().for_each(FileModel::sync);
        }
        Ok(())
    }
}
