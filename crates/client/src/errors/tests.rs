use forebay_proto::ErrorReply;

use super::*;

#[test]
fn answers_for_the_library_never_reach_a_program() {
    for errno in [Errno::RECOVERING, Errno::EVICTED, Errno::STALE_EPOCH, Errno::STOPPED, Errno::EPROTO] {
        let error = ClientError::from(RpcError::Reply(ErrorReply::new(errno, "why")));
        assert_eq!(error, ClientError::new(Errno::EIO, "why"));
    }
    assert_eq!(ClientError::from(RpcError::Reply(Errno::ENOSPC.into())).errno, Errno::ENOSPC);
    assert_eq!(ClientError::from(RpcError::Evicted("silent for long".into())).errno, Errno::EIO);
}

#[test]
fn stale_epochs_and_layouts_are_told_from_failures() {
    assert!(matches!(Trouble::from(RpcError::Reply(Errno::STALE_EPOCH.into())), Trouble::Stale(_)));
    assert!(matches!(Trouble::from(RpcError::Reply(Errno::STALE_LAYOUT.into())), Trouble::Stale(_)));
    assert!(matches!(Trouble::from(RpcError::Reply(Errno::ESTALE.into())), Trouble::Failed(_)));
}

#[test]
fn every_way_in_which_a_request_fails_is_an_errno_of_linux_with_words() {
    for (error, errno) in [
        (RpcError::Reply(ErrorReply::new(Errno::ENOENT, "w")), Errno::ENOENT),
        (RpcError::Evicted("w".into()), Errno::EIO),
        (RpcError::Refused("w".into()), Errno::EACCES),
        (RpcError::Unreachable("w".into()), Errno::ETIMEDOUT),
        (RpcError::Silent("w".into()), Errno::ETIMEDOUT),
        (RpcError::Foreign("w".into()), Errno::ETIMEDOUT),
        (RpcError::Protocol("w".into()), Errno::EIO),
        (RpcError::Closed, Errno::ENXIO),
    ] {
        let told = ClientError::from(error.clone());
        assert_eq!(told.errno, errno, "{error:?}");
        assert!(!told.message.is_empty() && told.errno.0 < 1000, "{error:?}");
        assert_eq!(told.to_string(), format!("{errno}: {}", told.message));
        let failed = ClientError::from(Trouble::from(error.clone()));
        assert_eq!(failed, told, "{error:?}: as trouble it says the same");
    }
    assert_eq!(ClientError::from(Errno::ENOENT).to_string(), Errno::ENOENT.to_string());
}

#[test]
fn trouble_that_was_not_mended_is_told_as_it_came() {
    let error = ClientError::new(Errno::ENOSPC, "no room");
    for trouble in [
        Trouble::Stale(error.clone()),
        Trouble::Full(5, vec![1, 2], error.clone()),
        Trouble::Failed(error.clone()),
        Trouble::from(error.clone()),
    ] {
        assert_eq!(ClientError::from(trouble.clone()), error, "{trouble:?}");
    }
    let bare = ClientError::from(Trouble::Bare(0, 10));
    assert_eq!(bare.errno, Errno::EIO);
    assert!(bare.message.contains("report it"), "{bare}");
}
