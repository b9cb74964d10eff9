//! Overlapping commits: a change that arrives while a record is in flight does not wait for two commits.

use std::time::Duration;

use forebay_env::sim::{DiskModel, Sim};
use forebay_store::OpenOptions;

use crate::common::{DIR, fresh, quick, tiny};

/// Flush time of the slow journal.
const FLUSH: Duration = Duration::from_millis(10);

/// one change waits for a commit | its record is in flight | another change arrives | it waits for its own commit only
#[test]
fn change_during_a_commit_waits_for_one_commit() {
    let waits = |commits_in_flight: u32| {
        let sim = Sim::new(1);
        let node = sim.add_node("oss0");
        let env = sim.env(node);
        sim.block_on(async {
            let store = fresh(&env, &tiny(), &OpenOptions { commits_in_flight, ..quick() }).await;
            let model = DiskModel { latency_flush: FLUSH, jitter: 0.0, ..DiskModel::default() };
            sim.set_disk_model(node, &format!("{DIR}/journal"), model);
            let put = async |key: u8| {
                store.prefetch(&[vec![0x40, key]]).await.expect("it loads");
                let mut txn = store.begin();
                txn.put(vec![0x40, key], vec![key]);
                txn.apply().expect("it is applied")
            };
            put(1).await;
            let first = {
                let (store, env) = (store.clone(), env.clone());
                env.clone().spawn(async move {
                    store.sync().await.expect("it commits");
                    env.now()
                })
            };
            sim.sleep(FLUSH / 10).await;
            assert!(store.is_committing());
            let point = put(2).await;
            let begun = sim.now();
            store.sync().await.expect("it commits");
            assert!(store.is_committed(point));
            let waited = sim.now().since(begun);
            let before = first.await.expect("it ends");
            assert!(before <= sim.now(), "the first is durable when the second is");
            store.close().await.expect("it closes");
            waited
        })
    };
    let (one, two) = (waits(1), waits(2));
    assert!(two < FLUSH * 11 / 10, "two under way: {two:?}");
    assert!(one > FLUSH * 18 / 10, "the control, one after another: {one:?}");
}
