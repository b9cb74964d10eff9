//! The verdict of recovery: what is redone, where the journal is cut, and whether anything durable is missing.
//!
//! Pure: an anchor and a [`Scan`] in, a [`Verdict`] or a refusal out.
//!
//! Why records beyond a cut cannot mislead. A record of incarnation `i` that lies beyond the position where `i + 1` was
//! opened is dead. It names only what was durable when it was built. The recovery that opened `i + 1` found all of that
//! intact, so the lsn that it names is below that cut, and below ours. Such records are skipped all the same.

use forebay_proto::Incarnation;

use super::{
    Anchor, Checkpoint, JournalError, JournalErrorKind, JournalResult, Lsn,
    geometry::Geometry,
    record::{RecordHeader, RecordType},
    scan::Scan,
};

/// What recovery found.
#[derive(Debug)]
pub(super) struct Verdict {
    /// Transaction records to redo, in order; whole transactions only.
    pub redo: Vec<RecordHeader>,
    /// All records that are accepted, in order.
    pub chain: Vec<RecordHeader>,
    /// Where the journal continues.
    pub cut: Checkpoint,
    /// The highest durable lsn that anything named; at most the cut.
    pub highest_durable: Lsn,
    /// A write had begun beyond the cut; it is dropped.
    pub torn_tail: bool,
    /// The last record is that of a clean stop.
    pub clean: bool,
}

/// Judges the ring from `anchor`, the newest that could be read. `named_durable`: the highest durable lsn that anchors
/// and run headers name.
pub(super) fn judge(anchor: &Anchor, geometry: Geometry, scan: &Scan, named_durable: Lsn) -> JournalResult<Verdict> {
    if let Some(version) = scan.newer {
        let words = format!("journal: a record of version {version} was written by a newer forebay; start that one");
        return Err(JournalError::new(JournalErrorKind::Unsupported, words));
    }
    refuse_lost_anchor(anchor, scan)?;
    let chain = Chain::walk(anchor.checkpoint, geometry, scan);
    let highest_durable = highest_durable(scan, chain.at.incarnation, named_durable);
    if highest_durable > chain.cut.lsn {
        return Err(corrupt(&chain, geometry, scan, highest_durable));
    }
    let torn_tail = chain.cut != chain.at || has_later(scan, chain.at);
    let clean = !torn_tail && chain.last == Some(RecordType::Attest { clean: true });
    Ok(Verdict { redo: chain.redo, chain: chain.accepted, cut: chain.cut, highest_durable, torn_tail, clean })
}

/// The records that follow one another from the checkpoint.
struct Chain {
    /// Whole transactions.
    redo: Vec<RecordHeader>,
    /// All records up to `cut`.
    accepted: Vec<RecordHeader>,
    /// After the last whole transaction, attest or opening.
    cut: Checkpoint,
    /// Where the walk ended; beyond `cut` if the last transaction lacks its end.
    at: Checkpoint,
    last: Option<RecordType>,
    /// Why the walk ended.
    end: ChainEnd,
}

/// Why a chain ends. An ordinary end looks the same.
enum ChainEnd {
    NothingThere,
    FullLap,
    Other { what: &'static str, expected: u64, got: u64 },
}

impl Chain {
    fn walk(from: Checkpoint, geometry: Geometry, scan: &Scan) -> Self {
        let mut chain = Self {
            redo: Vec::new(),
            accepted: Vec::new(),
            cut: from,
            at: from,
            last: None,
            end: ChainEnd::NothingThere,
        };
        let mut whole = (0, 0);
        let end = loop {
            match chain.next(from, geometry, scan) {
                Ok(header) => chain.take(header, &mut whole),
                Err(end) => break end,
            }
        };
        chain.redo.truncate(whole.0);
        chain.accepted.truncate(whole.1);
        chain.end = end;
        chain
    }

    /// The record that continues from `self.at`.
    fn next(&self, from: Checkpoint, geometry: Geometry, scan: &Scan) -> Result<RecordHeader, ChainEnd> {
        let at = self.at;
        let other = |what, expected, got| Err(ChainEnd::Other { what, expected, got });
        let header = scan.intact.get(&geometry.ring_offset(at.lsn)).ok_or(ChainEnd::NothingThere)?;
        if at.lsn.0 - from.lsn.0 + u64::from(header.record_bytes) > geometry.ring_bytes() {
            return Err(ChainEnd::FullLap);
        }
        if header.lsn != at.lsn {
            return other("lsn", at.lsn.0, header.lsn.0);
        }
        if header.prev_sum != at.prev_sum {
            return other("sum of the record before", at.prev_sum, header.prev_sum);
        }
        let opens = header.record_type == RecordType::OpenIncarnation;
        if (opens && header.incarnation <= at.incarnation) || (!opens && header.incarnation != at.incarnation) {
            return other("incarnation", u64::from(at.incarnation.0), u64::from(header.incarnation.0));
        }
        if self.in_transaction() && !matches!(header.record_type, RecordType::Transaction { .. }) {
            return other("record type within a transaction", 1, 2);
        }
        Ok(*header)
    }

    fn take(&mut self, header: RecordHeader, whole: &mut (usize, usize)) {
        self.at = header.after();
        self.last = Some(header.record_type);
        self.accepted.push(header);
        if matches!(header.record_type, RecordType::Transaction { .. }) {
            self.redo.push(header);
        }
        if !self.in_transaction() {
            self.cut = self.at;
            *whole = (self.redo.len(), self.accepted.len());
        }
    }

    fn in_transaction(&self) -> bool {
        self.last == Some(RecordType::Transaction { last: false })
    }
}

/// A record that knew a newer anchor than ours proves that it was durable and is lost. What ours needs may be lost,
/// too.
fn refuse_lost_anchor(anchor: &Anchor, scan: &Scan) -> JournalResult<()> {
    let Some(header) = scan.intact.values().max_by_key(|header| header.anchor_seq) else { return Ok(()) };
    if header.anchor_seq <= anchor.seq {
        return Ok(());
    }
    let words = format!(
        "journal: anchor {} is damaged or lost: the record at lsn {} knew it durable, the newest that can be read is \
         {}; not served, `forebay fsck` tells more: bring back a copy of it",
        header.anchor_seq, header.lsn, anchor.seq
    );
    Err(JournalError::new(JournalErrorKind::Corrupt, words))
}

/// The highest durable lsn that anything names. `incarnation` is that of the chain's end. Beyond it, records of older
/// incarnations are dead. Records of newer ones prove that the opening of their incarnation, beyond the chain's end,
/// was durable.
fn highest_durable(scan: &Scan, incarnation: Incarnation, named_durable: Lsn) -> Lsn {
    let alive = scan.intact.values().filter(|header| header.incarnation >= incarnation);
    alive.map(|header| header.durable).max().unwrap_or_default().max(named_durable)
}

/// True if a record of the last incarnation lies beyond the chain's end, whole or not. For the report only.
fn has_later(scan: &Scan, at: Checkpoint) -> bool {
    let later = |lsn: Lsn, incarnation: Incarnation| lsn >= at.lsn && incarnation >= at.incarnation;
    scan.intact.values().any(|header| later(header.lsn, header.incarnation))
        || scan.broken.values().any(|broken| later(broken.lsn, broken.incarnation))
}

fn corrupt(chain: &Chain, geometry: Geometry, scan: &Scan, highest_durable: Lsn) -> JournalError {
    let at = chain.at.lsn;
    let ring_offset = geometry.ring_offset(at);
    let found = match (&chain.end, scan.broken.get(&ring_offset)) {
        (ChainEnd::NothingThere, Some(broken)) if broken.lsn == at => {
            format!("the record there is damaged: {}", broken.what)
        }
        (ChainEnd::NothingThere, _) if scan.unreadable.contains(&ring_offset) => "the device cannot read it".into(),
        (ChainEnd::NothingThere, _) => "no intact record begins there".into(),
        (ChainEnd::FullLap, _) => "the ring has been walked once around".into(),
        (ChainEnd::Other { what, expected, got }, _) => format!("{what}: expected {expected:#x}, got {got:#x}"),
    };
    let words = format!(
        "journal: the record at lsn {at} (device offset {}, incarnation {}) is bad, although everything before lsn \
         {highest_durable} was durable: {found}; not served, `forebay fsck` tells more: bring back a copy of it",
        geometry.device_offset(at),
        chain.at.incarnation
    );
    JournalError::new(JournalErrorKind::Corrupt, words)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::{super::limits::SECTOR, *};

    const START: Checkpoint = Checkpoint { lsn: Lsn(SECTOR), incarnation: Incarnation(5), prev_sum: 100 };

    /// One-sector records from `START`, each continuing from the one before; sums are 101, 102, ...
    fn chain(types: &[RecordType]) -> Vec<RecordHeader> {
        let mut at = START;
        let mut headers = Vec::new();
        for record_type in types {
            if *record_type == RecordType::OpenIncarnation {
                at.incarnation.0 += 1;
            }
            let header = RecordHeader {
                record_type: *record_type,
                incarnation: at.incarnation,
                lsn: at.lsn,
                record_bytes: SECTOR as u32,
                payload_bytes: 0,
                prev_sum: at.prev_sum,
                durable: START.lsn,
                anchor_seq: 1,
                sum: at.prev_sum + 1,
            };
            headers.push(header);
            at = header.after();
        }
        headers
    }

    fn judged(headers: &[RecordHeader], named_durable: Lsn) -> JournalResult<Verdict> {
        let geometry = Geometry::new(16 * SECTOR).unwrap();
        let place = |header: &RecordHeader| (geometry.ring_offset(header.lsn), *header);
        let scan = Scan { intact: headers.iter().map(place).collect(), ..Scan::default() };
        let (incarnation, durable, extra) = (START.incarnation, START.lsn, Bytes::new());
        judge(
            &Anchor { seq: 1, incarnation, checkpoint: START, durable, root: None, extra },
            geometry,
            &scan,
            named_durable,
        )
    }

    /// How many records are redone, and how many sectors the cut lies beyond the start.
    fn redone(headers: &[RecordHeader]) -> (usize, u64) {
        let verdict = judged(headers, Lsn(0)).unwrap();
        (verdict.redo.len(), (verdict.cut.lsn.0 - START.lsn.0) / SECTOR)
    }

    const PART: RecordType = RecordType::Transaction { last: false };
    const LAST: RecordType = RecordType::Transaction { last: true };
    const ATTEST: RecordType = RecordType::Attest { clean: false };
    const OPEN: RecordType = RecordType::OpenIncarnation;

    #[test]
    fn a_chain_is_followed_through_all_types() {
        assert_eq!(redone(&[]), (0, 0));
        assert_eq!(redone(&chain(&[LAST, ATTEST, OPEN, PART, LAST, OPEN, ATTEST])), (3, 7));
    }

    #[test]
    fn each_mark_of_a_record_alone_can_end_the_chain() {
        let spoilt = |spoil: &dyn Fn(&mut RecordHeader)| {
            let mut headers = chain(&[LAST, LAST, LAST]);
            spoil(&mut headers[1]);
            redone(&headers)
        };
        assert_eq!(spoilt(&|_| {}), (3, 3));
        assert_eq!(spoilt(&|header| header.prev_sum += 1), (1, 1));
        assert_eq!(spoilt(&|header| header.lsn.0 += 16 * SECTOR), (1, 1));
        assert_eq!(spoilt(&|header| header.incarnation.0 -= 1), (1, 1));
        assert_eq!(spoilt(&|header| header.incarnation.0 += 1), (1, 1));
    }

    #[test]
    fn only_an_opening_raises_the_incarnation() {
        let mut headers = chain(&[LAST, OPEN]);
        headers[1].incarnation = START.incarnation;
        assert_eq!(redone(&headers), (1, 1));
    }

    #[test]
    fn nothing_else_lies_within_a_transaction() {
        assert_eq!(redone(&chain(&[LAST, PART, ATTEST, LAST])), (1, 1));
        assert_eq!(redone(&chain(&[LAST, PART, OPEN, LAST])), (1, 1));
    }

    #[test]
    fn a_chain_ends_after_one_lap() {
        let mut headers = chain(&[LAST; 16]);
        headers[15].record_bytes *= 2;
        assert_eq!(redone(&headers), (15, 15));
        assert_eq!(redone(&chain(&[LAST; 16])), (16, 16));
    }

    #[test]
    fn durable_beyond_the_cut_is_corruption_even_within_the_chain() {
        let headers = chain(&[LAST, PART, PART]);
        let durable = |sectors| judged(&headers, Lsn(START.lsn.0 + sectors * SECTOR)).map(|verdict| verdict.cut.lsn);
        assert!(durable(1).is_ok());
        assert_eq!(durable(2).unwrap_err().kind, JournalErrorKind::Corrupt);
        assert_eq!(durable(4).unwrap_err().kind, JournalErrorKind::Corrupt);
    }

    #[test]
    fn dead_records_attest_nothing_newer_incarnations_do() {
        let mut headers = chain(&[LAST, OPEN, LAST, LAST, LAST]);
        headers.remove(2);
        headers[3].durable = headers[3].lsn;
        assert_eq!(judged(&headers, Lsn(0)).unwrap_err().kind, JournalErrorKind::Corrupt);
        headers[3].incarnation.0 += 1;
        assert_eq!(judged(&headers, Lsn(0)).unwrap_err().kind, JournalErrorKind::Corrupt);
        headers[3].incarnation = START.incarnation;
        assert_eq!(judged(&headers, Lsn(0)).unwrap().cut.lsn, headers[1].after().lsn);
    }

    #[test]
    fn a_record_of_a_newer_program_is_refused() {
        let scan = Scan { newer: Some(2), ..Scan::default() };
        let (incarnation, durable, extra) = (START.incarnation, START.lsn, Bytes::new());
        let anchor = Anchor { seq: 1, incarnation, checkpoint: START, durable, root: None, extra };
        let error = judge(&anchor, Geometry::new(16 * SECTOR).unwrap(), &scan, Lsn(0)).unwrap_err();
        assert_eq!(error.kind, JournalErrorKind::Unsupported);
    }
}
