//! Leased fid sequences of clients that do not come back: scanned, then given up.
//!
//! An evicted client may return with a new session, so it keeps its sequences for [`limits::SEQUENCE_GRACE`]. (A mount
//! returns as a new client instance, and leases other sequences.) After that the client is fenced on all OSTs, and its
//! objects without an inode are collected.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    rc::{Rc, Weak},
};

use forebay_env::Time;
use forebay_proto::{ClientId, ErrorReply, FidSequence};

use crate::{Mds, keys, limits};

/// Runs until the server ends.
pub async fn run(mds: Weak<Mds>) {
    let mut absent: BTreeMap<ClientId, Time> = BTreeMap::new();
    loop {
        let Some(this) = mds.upgrade().filter(|this| !this.is_closed()) else { return };
        for client in this.gone_for_long(&mut absent) {
            if let Err(error) = this.collect_client(client).await {
                this.log_failure(&format!("sequences of client {client} wait for the next start"), &error);
            }
        }
        let env = this.env.clone();
        drop(this);
        env.sleep(limits::SEQUENCE_CHECK_INTERVAL).await;
    }
}

impl Mds {
    /// Clients with leased sequences that have been without a session for [`limits::SEQUENCE_GRACE`].
    fn gone_for_long(self: &Rc<Self>, absent: &mut BTreeMap<ClientId, Time>) -> Vec<ClientId> {
        let Ok(target) = self.target() else { return Vec::new() };
        let here: BTreeSet<ClientId> = target.sessions().iter().map(|session| session.client).collect();
        let holders: BTreeSet<ClientId> = self.memory.borrow().sequences.values().copied().collect();
        let now = self.env.now();
        absent.retain(|client, _| holders.contains(client) && !here.contains(client));
        for client in holders.difference(&here) {
            absent.entry(*client).or_insert(now);
        }
        absent
            .iter()
            .filter(|(_, since)| now.since(**since) >= limits::SEQUENCE_GRACE)
            .map(|(client, _)| *client)
            .collect()
    }

    async fn collect_client(&self, client: ClientId) -> Result<(), ErrorReply> {
        let sequences = self.sequences_of(client);
        self.fence(client, &self.osts.indices(), &RefCell::default()).await;
        self.collect(&sequences).await?;
        self.evicted.borrow_mut().remove(&client);
        self.give_up(&sequences).await
    }

    pub(crate) fn sequences_of(&self, client: ClientId) -> Vec<FidSequence> {
        let memory = self.memory.borrow();
        memory.sequences.iter().filter(|(_, of)| **of == client).map(|(sequence, _)| *sequence).collect()
    }

    pub(crate) async fn give_up(&self, sequences: &[FidSequence]) -> Result<(), ErrorReply> {
        if sequences.is_empty() {
            return Ok(());
        }
        self.change(|tx| {
            sequences.iter().for_each(|sequence| tx.delete(keys::lease(*sequence)));
            Ok(())
        })
        .await?;
        self.memory.borrow_mut().sequences.retain(|sequence, _| !sequences.contains(sequence));
        Ok(())
    }
}
