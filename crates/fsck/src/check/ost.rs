//! Checks the rows of an OST: objects, against their extents.

use std::cmp::Ordering;

use forebay_proto::{Fid, Transno};

use crate::{
    examined::{Fix, KeyedFix},
    finding::{Finding, Findings, Kind, Place},
    rows::{fid_key, ost::ObjectRow, space},
};

/// The objects, in ascending order.
#[derive(Default)]
pub(crate) struct OstCheck {
    objects: Vec<(Fid, u64)>,
}

/// Where an object's extents end.
pub(crate) struct ObjectEnd {
    pub(crate) fid: Fid,
    pub(crate) end: u64,
    /// Bytes of all its extents.
    pub(crate) bytes: u64,
}

impl OstCheck {
    pub(crate) fn row(&mut self, key: &[u8], value: &[u8], last_transno: Transno, findings: &mut Findings) {
        let place = || Place::row(key);
        let Some(fid) = fid_key(key) else {
            findings.add(Finding::error(Kind::Row, place(), "its key has a wrong length"));
            return;
        };
        match ObjectRow::decode(value) {
            Err(error) => findings.add(Finding::error(Kind::Row, place(), error.what)),
            Ok(row) => {
                if row.transno > last_transno {
                    let words = "an object is ahead of the target's transnos";
                    findings.add(Finding::error(Kind::Ahead, place(), words).with(last_transno, row.transno));
                }
                let room: u64 = row.aside.iter().map(|range| range.end - range.start).sum();
                if row.aside_bytes > room {
                    let words = "more bytes are set aside than the ranges have for them";
                    findings.add(
                        Finding::error(Kind::Row, place(), words).with(format!("at most {room}"), row.aside_bytes),
                    );
                }
                self.objects.push((fid, row.object_bytes));
            }
        }
    }

    /// Number of objects.
    pub(crate) fn count(&self) -> u64 {
        self.objects.len() as u64
    }

    /// Compares the objects with the ends of their extents; both ascend by fid.
    pub(crate) fn finish(
        self,
        ends: &[ObjectEnd],
        incomplete: bool,
        findings: &mut Findings,
    ) -> (Vec<Fid>, Vec<KeyedFix>) {
        let mut fixes = Vec::new();
        let mut objects = self.objects.iter().peekable();
        for ObjectEnd { fid, end, .. } in ends {
            while objects.next_if(|(object, _)| object < fid).is_some() {}
            let place = || Place::Row([&[space::OBJECT][..], &fid.to_key()].concat());
            match objects.peek().map(|(object, bytes)| (object.cmp(fid), *bytes)) {
                Some((Ordering::Equal, bytes)) if bytes < *end => {
                    let words = "the object ends before its extents do";
                    findings
                        .add(Finding::error(Kind::ObjectSize, place(), words).with(format!("at least {end}"), bytes));
                }
                Some((Ordering::Equal, _)) => {}
                _ if incomplete => {}
                _ => {
                    let words = format!("extents up to {end} belong to no object: their space is lost");
                    findings.add(Finding::error(Kind::ObjectMissing, place(), words));
                    fixes.push(([&[1][..], &fid.to_key()].concat(), Fix::Delete, Kind::ObjectMissing));
                }
            }
        }
        (self.objects.into_iter().map(|(fid, _)| fid).collect(), fixes)
    }
}
