//! Acknowledged changes that are lost and belong to no open file: which calls report them.
//!
//! Each is reported by the first call that asks, and by every call that overlaps that one. Otherwise the other call would
//! say that everything is durable, while what its caller had written is gone.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
};

use forebay_env::{Bug, planted};
use forebay_proto::Fid;

use crate::{ClientError, limits};

/// Acknowledged changes that are lost.
#[derive(Default)]
pub(crate) struct Losses {
    /// Requests, of any file.
    requests: Cell<u64>,
    /// How many of these a `sync_all` has reported.
    reported: Cell<u64>,
    /// Of directories, and of files that nobody has open.
    unopened: RefCell<BTreeMap<Fid, Unopened>>,
    /// Reports so far.
    reports: Cell<u64>,
}

struct Unopened {
    loss: ClientError,
    /// The number of its first report.
    report: Option<u64>,
}

/// When a call began that may report losses.
#[derive(Clone, Copy)]
pub(crate) struct Began {
    reported: u64,
    reports: u64,
}

impl Losses {
    /// Called at the start of a call that may report losses.
    pub fn begin(&self) -> Began {
        Began { reported: self.reported.get(), reports: self.reports.get() }
    }

    /// These requests are lost.
    pub fn lose(&self, requests: u64) {
        self.requests.set(self.requests.get() + requests);
    }

    /// The requests that a `sync_all` that `began` then has to report.
    pub fn report(&self, began: Began) -> u64 {
        let (lost, told) = (self.requests.get(), self.reported.replace(self.requests.get()));
        lost - if planted(Bug::LossReportedToOne) { told } else { began.reported }
    }

    /// Nobody has `fid` open: an fsync reports the loss.
    pub fn remember(&self, fid: Fid, loss: ClientError) {
        let mut unopened = self.unopened.borrow_mut();
        if unopened.len() >= limits::UNREPORTED_LOSSES {
            unopened.retain(|_, unopened| unopened.report.is_none());
        }
        if unopened.len() < limits::UNREPORTED_LOSSES || unopened.contains_key(&fid) {
            unopened.insert(fid, Unopened { loss, report: None });
        }
    }

    /// A file is opened: from now on its handles report what was lost before.
    pub fn take(&self, fid: Fid) -> Option<ClientError> {
        self.unopened.borrow_mut().remove(&fid).map(|unopened| unopened.loss)
    }

    /// The loss that an fsync of a directory that `began` then has to report.
    pub fn report_of(&self, dir: Fid, began: Began) -> Option<ClientError> {
        let mut unopened = self.unopened.borrow_mut();
        let one = unopened.get_mut(&dir)?;
        let overlaps = !planted(Bug::LossReportedToOne) && one.report.is_none_or(|number| number > began.reports);
        if one.report.is_some() && !overlaps {
            unopened.remove(&dir);
            return None;
        }
        if one.report.is_none() {
            self.reports.set(self.reports.get() + 1);
            one.report = Some(self.reports.get());
        }
        Some(one.loss.clone())
    }
}

#[cfg(test)]
mod tests {
    use forebay_proto::Errno;

    use super::*;

    const DIR: Fid = Fid { high: 0, low: 1 };

    fn loss(words: &str) -> ClientError {
        ClientError::new(Errno::EIO, words)
    }

    fn words(losses: &Losses, began: Began) -> Option<String> {
        losses.report_of(DIR, began).map(|loss| loss.message)
    }

    #[test]
    fn a_lost_request_is_reported_by_every_sync_that_overlaps_the_first_report_and_by_none_after_it() {
        let losses = Losses::default();
        let (first, second) = (losses.begin(), losses.begin());
        losses.lose(3);
        let third = losses.begin();
        assert_eq!([first, second, third].map(|began| losses.report(began)), [3, 3, 3]);
        let later = losses.begin();
        assert_eq!(losses.report(later), 0);
        losses.lose(1);
        assert_eq!(losses.report(later), 1);
    }

    #[test]
    fn a_loss_of_a_directory_is_reported_by_every_fsync_that_overlaps_the_first_report_and_by_none_after_it() {
        let losses = Losses::default();
        let (first, second) = (losses.begin(), losses.begin());
        assert_eq!(words(&losses, first), None);
        losses.remember(DIR, loss("lost"));
        assert_eq!(words(&losses, first).as_deref(), Some("lost"));
        assert_eq!(words(&losses, second).as_deref(), Some("lost"));
        let later = losses.begin();
        assert_eq!(words(&losses, later), None);
        losses.remember(DIR, loss("lost again"));
        assert_eq!(words(&losses, later).as_deref(), Some("lost again"));
    }

    #[test]
    fn a_loss_that_was_reported_gives_way_when_too_many_are_remembered() {
        let losses = Losses::default();
        let fid = |low| Fid { low, ..DIR };
        for number in 1..=limits::UNREPORTED_LOSSES as u64 {
            losses.remember(fid(number), loss("lost"));
        }
        losses.remember(fid(0), loss("too many"));
        assert!(losses.take(fid(0)).is_none());
        assert!(losses.report_of(DIR, losses.begin()).is_some());
        losses.remember(fid(0), loss("instead"));
        assert!(losses.take(fid(0)).is_some() && losses.take(DIR).is_none());
    }
}
