//! The collection: destroys objects of dead clients that have no inode.
//!
//! A client writes objects after the reply to its create, or even before it. If the client and the MDT then die
//! together, objects remain that belong to no inode. Their fids come from sequences leased to that client. The client
//! is gone and fenced on every OST, so no create of such a fid can arrive any more, and an object without an inode is
//! garbage. (Living clients replay their creates; their sequences are scanned when they end.)

use forebay_proto::{ErrorReply, Fid, FidSequence, message::ListObjects};

use crate::{Mds, keys, limits};

impl Mds {
    /// Scans `sequences` on all OSTs, in steps, and logs the destroy of objects without an inode.
    pub(crate) async fn collect(&self, sequences: &[FidSequence]) -> Result<(), ErrorReply> {
        self.collecting.set(self.collecting.get() + sequences.len());
        let mut result = Ok(());
        for (from, to) in ranges(sequences) {
            for ost in self.osts.indices() {
                result = result.and(self.collect_range(ost, from, to).await);
            }
        }
        self.collecting.set(self.collecting.get() - sequences.len());
        result
    }

    async fn collect_range(&self, ost: u32, from: FidSequence, to: FidSequence) -> Result<(), ErrorReply> {
        let mut after = Fid::default();
        loop {
            let request = ListObjects { from, to, after, limit: limits::COLLECT_BATCH };
            let Some(reply) = self.osts.insist(ost, &request).await else { return Ok(()) };
            self.judge(ost, &reply.fids).await?;
            match reply.fids.last() {
                Some(last) if !reply.end => after = *last,
                _ => return Ok(()),
            }
            self.env.sleep(limits::COLLECT_PAUSE).await;
        }
    }

    /// Logs the destroy of those of `fids` that have no inode.
    async fn judge(&self, ost: u32, fids: &[Fid]) -> Result<(), ErrorReply> {
        self.change(|tx| {
            for fid in fids.iter().filter(|fid| fid.high == u64::from(tx.memory.mdt_index)) {
                if tx.row(keys::inode(*fid))?.is_none() && tx.row(keys::objects(*fid))?.is_none() {
                    tx.put(keys::destroy(ost, *fid), &[1]);
                    tx.effects.destroys = true;
                }
            }
            Ok(())
        })
        .await
    }
}

/// Merges neighbouring sequences into ranges; ends are exclusive.
fn ranges(sequences: &[FidSequence]) -> Vec<(FidSequence, FidSequence)> {
    let mut ranges: Vec<(FidSequence, FidSequence)> = Vec::new();
    for sequence in sequences {
        let end = FidSequence(sequence.0 + 1);
        match ranges.last_mut() {
            Some(last) if last.1 == *sequence => last.1 = end,
            _ => ranges.push((*sequence, end)),
        }
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbouring_sequences_are_listed_together() {
        let sequences = [1, 2, 3, 7, 9, 10].map(FidSequence);
        let expected = [(1, 4), (7, 8), (9, 11)].map(|(from, to)| (FidSequence(from), FidSequence(to)));
        assert_eq!(ranges(&sequences), expected);
    }
}
