//! Files that are deleted while a store has them open: the kernel accepts writes, and keeps them until the store is
//! closed.

use crate::common::*;
use forebay_env::{real, testing::scratch_dir};
use forebay_store::{OpenOptions, Store, StoreErrorKind};

#[test]
fn a_store_whose_files_were_deleted_stops_and_says_which() {
    for name in ["data", "journal"] {
        real::run(async |env| {
            let scratch = scratch_dir(&env);
            let dir = scratch.to_string();
            Store::format(&env, &dir, &tiny()).await.expect("formatted");
            let store = Store::open(&env, &dir, &OpenOptions::default()).await.expect("opened");
            store.check_devices().expect("all is there");
            let path = format!("{dir}/{name}");
            env.remove_file(&path).expect("deleted");
            let error = store.check_devices().expect_err("it is gone");
            assert_eq!(error.kind, StoreErrorKind::Stopped);
            assert!(error.message.contains(&path) && error.message.contains("was deleted"), "{}", error.message);
            let refused = store.reserve(4096, 1).await.map(drop).expect_err("nothing is taken any more");
            assert_eq!((store.is_deleted(), refused.kind), (true, StoreErrorKind::Stopped));
        });
    }
}
