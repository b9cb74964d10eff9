//! A program that writes through the library, remembers which files were synced, and compares them later.

use std::{
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use forebay_client::{Caller, Client, ClientResult, MountOptions, OpenMode};
use forebay_env::{Address, Env, real, sync::watch};

/// Bytes of a file.
pub const FILE_BYTES: usize = 96 << 10;

/// Content of file `number`: no two files and no two sectors are the same.
fn content(number: u64) -> Vec<u8> {
    let mut state = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut step = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    (0..FILE_BYTES / 8).flat_map(|_| step()).collect()
}

/// The first bytes of a file, to find it on a device.
pub fn head(number: u64) -> Vec<u8> {
    content(number)[..64].to_vec()
}

fn name(number: u64) -> String {
    format!("/file-{number}")
}

pub fn root() -> Caller {
    Caller { uid: 0, gid: 0, groups: Vec::new() }
}

/// Runs `program` with a client of its own. `None`: `timeout` passed, and the client was dropped as if it had crashed.
pub fn with_client<T, F: Future<Output = T>>(
    mgs: &[Address],
    timeout: Duration,
    program: impl FnOnce(Client, Env) -> F,
) -> Option<T> {
    let options = MountOptions::new(mgs.to_vec());
    real::run(|env| async move {
        let work = async {
            let client = Client::mount(&env, options).await.expect("mounted");
            let result = program(client.clone(), env.clone()).await;
            // If a server is unreachable this takes forever; then the client crashes.
            let _ = env.timeout(Duration::from_secs(3), client.unmount()).await;
            result
        };
        env.timeout(timeout, work).await.ok()
    })
}

/// Creates file `number` and returns when it is synced.
pub async fn write_synced(client: &Client, number: u64) -> ClientResult<()> {
    let file = client.create_path(&root(), &name(number), OpenMode::WRITE).await?;
    let mut at = 0;
    for piece in content(number).chunks(32 << 10) {
        at += client.write(&file, at, piece.to_vec()).await? as u64;
    }
    assert_eq!(at, FILE_BYTES as u64);
    client.fsync(&file, false).await?;
    client.close(file).await
}

/// The OST that holds file `number`.
pub async fn ost_of(client: &Client, number: u64) -> u32 {
    let attr = client.resolve(&root(), &name(number)).await.expect("it is there");
    let (layout, _) = client.get_layout(attr.fid).await.expect("a layout");
    layout.expect("of a file").home()
}

/// Whether file `number` exists with its whole content.
pub async fn read_back(client: &Client, number: u64) -> ClientResult<bool> {
    let file = client.open_path(&root(), &name(number), OpenMode::READ).await?;
    let mut found = Vec::new();
    while found.len() < FILE_BYTES {
        let piece = client.read(&file, found.len() as u64, FILE_BYTES - found.len()).await?;
        if piece.is_empty() {
            break;
        }
        found.extend_from_slice(&piece);
    }
    client.close(file).await?;
    Ok(found == content(number))
}

/// Checks that files `0..count` all exist with their whole content.
pub fn all_there(mgs: &[Address], count: u64) {
    let read = with_client(mgs, Duration::from_secs(60), |client, _| async move {
        for number in 0..count {
            assert_eq!(read_back(&client, number).await, Ok(true), "file {number}");
        }
    });
    assert!(read.is_some(), "they are read within a minute");
}

/// A program that creates one synced file after another.
pub struct Busy {
    synced: Arc<AtomicU64>,
    stop: watch::Sender<bool>,
    thread: JoinHandle<()>,
}

impl Busy {
    pub fn start(mgs: &[Address]) -> Self {
        let (stop, mut stopped) = watch::channel(false);
        let synced = Arc::new(AtomicU64::new(0));
        let (count, mgs) = (synced.clone(), mgs.to_vec());
        let work = move || {
            real::run(|env| async move {
                let write = async {
                    let client = Client::mount(&env, MountOptions::new(mgs)).await.expect("mounted");
                    for number in 0.. {
                        write_synced(&client, number).await.expect("written and synced");
                        count.store(number + 1, Ordering::SeqCst);
                    }
                };
                forebay_env::sync::select! {
                    biased;
                    _ = stopped.wait_for(|stop| *stop) => {}
                    () = write => {}
                }
            })
        };
        Self { synced, stop, thread: thread::spawn(work) }
    }

    /// Number of files synced so far.
    pub fn synced(&self) -> u64 {
        self.synced.load(Ordering::SeqCst)
    }

    /// Waits until `count` files are synced.
    pub fn reach(&self, count: u64) {
        while self.synced() < count {
            assert!(!self.thread.is_finished(), "the program died");
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Ends the program as by a crash. Returns how many files it had synced.
    pub fn die(self) -> u64 {
        let _ = self.stop.send(true);
        self.thread.join().expect("it did not panic");
        self.synced.load(Ordering::SeqCst)
    }
}
