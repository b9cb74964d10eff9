//! Ends the leases of silent clients, which frees their share of the memory. Evicts clients that send requests but do
//! not release recalled leases.

use std::rc::Weak;

use forebay_proto::limits::LEASE_TERM;

use crate::Mds;

/// Runs until the server ends.
pub async fn run(mds: Weak<Mds>) {
    loop {
        let Some(this) = mds.upgrade().filter(|this| !this.is_closed()) else { return };
        let env = this.env.clone();
        if this.is_in_trouble() {
            this.memory.borrow_mut().leases.trouble(env.now());
        }
        if this.memory.borrow_mut().leases.expire(env.now()) {
            this.memory_changed();
        }
        this.evict_overdue();
        drop(this);
        env.sleep(LEASE_TERM).await;
    }
}
