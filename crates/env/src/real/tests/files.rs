use crate::{Address, EnvErrorKind, OpenDisk, real, testing::scratch_dir};

#[test]
fn a_lock_names_its_holder_and_goes_with_the_guard() {
    real::run(|env| async move {
        let dir = scratch_dir(&env);
        let path = format!("{dir}/lock");
        let lock = env.lock_file(&path).unwrap();
        let refused = env.lock_file(&path).err().unwrap();
        assert_eq!(refused.kind, EnvErrorKind::InUse);
        assert!(refused.message.contains(&std::process::id().to_string()), "{refused}");
        drop(lock);
        env.lock_file(&path).unwrap();
    });
}

#[test]
fn errors_name_the_path_and_what_to_do() {
    real::run(|env| async move {
        let dir = scratch_dir(&env);
        let missing = env.open_disk(&format!("{dir}/none"), OpenDisk::default()).await.err().unwrap();
        assert_eq!(missing.kind, EnvErrorKind::NotFound);
        assert!(missing.message.contains("/none: No such file or directory; check the path"), "{missing}");
        let directory = env.open_disk(&dir, OpenDisk::default()).await.err().unwrap();
        assert_eq!(directory.kind, EnvErrorKind::InvalidInput);
        let full = OpenDisk { create_bytes: Some(1 << 62), ..OpenDisk::default() };
        let full = env.open_disk(&format!("{dir}/big"), full).await.err().unwrap();
        assert!(env.read_file(&format!("{dir}/big.new")).is_err(), "{full}: the half-made file was left");
        let socket = env.connect(&Address::Unix(format!("{dir}/socket"))).await.err().unwrap();
        assert_eq!(socket.kind, EnvErrorKind::NotFound);
    });
}

#[test]
fn a_shard_that_panics_errs_and_others_go_on() {
    real::run(|env| async move {
        let answer = env.spawn_shard("panics", |_| async { panic!("on purpose") });
        assert!(answer.await.is_err());
        let answer = env.spawn_shard("answers", |env| async move { env.now() });
        assert!(answer.await.unwrap() > crate::Time(0));
    });
}
