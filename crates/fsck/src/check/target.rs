//! Checks the rows of every target: sessions, replies, fences.

use std::collections::BTreeSet;

use forebay_proto::{SessionId, Transno};

use super::Pass;
use crate::{
    finding::{Finding, Findings, Kind, Place},
    rows::target::TargetRow,
};

/// Sessions found so far. Their rows come before all rows that name them.
pub(crate) struct TargetCheck {
    sessions: BTreeSet<SessionId>,
    last_transno: Transno,
}

impl TargetCheck {
    pub(crate) fn new(last_transno: Transno) -> Self {
        Self { sessions: BTreeSet::new(), last_transno }
    }

    /// The sessions; complete once a later row has come.
    pub(crate) fn sessions(&self) -> &BTreeSet<SessionId> {
        &self.sessions
    }

    pub(crate) fn row(&mut self, pass: &Pass<'_>, key: &[u8], value: &[u8], findings: &mut Findings) {
        let place = || Place::row(key);
        let transno = match TargetRow::decode(key, value) {
            Err(error) => {
                findings.add(Finding::error(Kind::Row, place(), error.what));
                return;
            }
            Ok(TargetRow::Session { session, generation, .. }) => {
                self.sessions.insert(session);
                if generation > pass.identity.generation {
                    let finding = Finding::error(Kind::Row, place(), "a session is of a generation to come");
                    findings.add(finding.with(format!("at most {}", pass.identity.generation), generation));
                }
                return;
            }
            Ok(TargetRow::Reply { session, transno, .. }) => {
                if !self.sessions.contains(&session) {
                    findings.add(Finding::info(Kind::Reply, place(), format!("session {session} has no row")));
                }
                transno
            }
            Ok(TargetRow::Fence { transno, .. }) => transno,
        };
        if transno > self.last_transno {
            let words = "a reply or fence is ahead of the target's transnos";
            findings.add(Finding::error(Kind::Ahead, place(), words).with(self.last_transno, transno));
        }
    }
}
