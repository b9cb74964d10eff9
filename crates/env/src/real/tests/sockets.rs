use bytes::Bytes;

use crate::{Address, EnvErrorKind, Network, PeerIdentity, real, testing::scratch_dir};

#[test]
fn a_stale_socket_file_is_replaced_and_a_living_one_is_not() {
    real::run(|env| async move {
        let dir = scratch_dir(&env);
        let path = format!("{dir}/socket");
        let address = Address::Unix(path.clone());
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        let listener = env.listen(&address).await.unwrap();
        assert_eq!(env.listen(&address).await.err().unwrap().kind, EnvErrorKind::InUse);
        drop(listener);
        assert!(!std::path::Path::new(&path).exists(), "a closed listener leaves no file");
    });
}

#[test]
fn large_messages_of_many_odd_parts_cross_every_transport() {
    real::run(|env| async move {
        let env = env.with_network(Network::InsecureLoopback);
        let dir = scratch_dir(&env);
        for text in ["tcp:127.0.0.1:0", &format!("unix:{dir}/socket"), "mem:large-messages"] {
            let mut listener = env.listen(&text.parse().unwrap()).await.unwrap();
            let address = listener.address();
            // The writer is a separate shard: in-process streams cross threads too.
            let writer = env.spawn_shard("writer", |env| async move {
                let (_read, mut write) = env.connect(&address).await.unwrap().split();
                for round in 0..20u8 {
                    let parts: Vec<Bytes> = (0..200).map(|i| vec![round; i * 37].into()).collect();
                    write.write_all(&parts).await.unwrap();
                }
            });
            let (stream, _) = listener.accept().await.unwrap().handshake(&env).await.unwrap();
            let (mut read, _write) = stream.split();
            let total: usize = (0..200).map(|i| i * 37).sum();
            for round in 0..20u8 {
                // A small read, then a large one, like a frame's header and its bulk.
                let mut head = [0; 100];
                read.read_exact(&mut head).await.unwrap();
                let rest = read.read_aligned(total - head.len()).await.unwrap();
                assert!(head.iter().chain(rest.iter()).all(|byte| *byte == round), "{text} round {round}");
            }
            writer.await.unwrap();
        }
    });
}

#[test]
fn a_unix_socket_tells_which_user_and_process_connects_and_tcp_tells_nothing() {
    real::run(|env| async move {
        let dir = scratch_dir(&env);
        let mut listener = env.listen(&format!("unix:{dir}/socket").parse().unwrap()).await.unwrap();
        let _client = env.connect(&listener.address()).await.unwrap();
        let accepted = listener.accept().await.unwrap();
        let own = i32::try_from(std::process::id()).unwrap();
        // SAFETY: it only returns numbers.
        let (uid, gid) = unsafe { (libc::geteuid(), libc::getegid()) };
        assert_eq!(*accepted.peer(), PeerIdentity::Process { uid, gid, pid: Some(own) });
        let env = env.with_network(Network::InsecureLoopback);
        let mut listener = env.listen(&"tcp:127.0.0.1:0".parse().unwrap()).await.unwrap();
        let _client = env.connect(&listener.address()).await.unwrap();
        assert!(matches!(listener.accept().await.unwrap().peer(), PeerIdentity::Unknown(_)));
    });
}

/// A reset socket must give an error, not a signal, even where the process would die of SIGPIPE.
#[test]
fn writing_to_a_closed_connection_is_disconnected() {
    real::run(|env| async move {
        let env = env.with_network(Network::InsecureLoopback);
        let mut listener = env.listen(&"tcp:127.0.0.1:0".parse().unwrap()).await.unwrap();
        let mut client = env.connect(&listener.address()).await.unwrap();
        drop(listener.accept().await.unwrap());
        let mut answer = Ok(());
        while answer.is_ok() {
            answer = client.write.write_all(&[vec![0; 1 << 20].into()]).await;
        }
        assert_eq!(answer.unwrap_err().kind, EnvErrorKind::Disconnected);
    });
}
