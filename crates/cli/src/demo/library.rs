//! The demo without a mount: its programs use the client library, each with a session of its own.
//!
//! A thread stands for a process. Everything goes through [`Client`], as a mount's requests do.

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, BTreeSet},
    ffi::OsStr,
    future::Future,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    rc::Rc,
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::Duration,
};

use bytes::Bytes;
use forebay_client::{Attr, Caller, Client, LayoutSpec, MountOptions, OpenMode, SetAttributes, SetTime};
use forebay_command::{
    error::{CliError, CliResult, Doing},
    posix,
};
use forebay_env::{Address, real};
use forebay_proto::Fid;

use super::{
    checkpoint::{Checkpoint, Pace, TRANSFER_BYTES},
    crew::COPIERS,
    tree::{CHUNK_BYTES, Entry, Kind, Pulse, Tree},
    volume::{Volume, bytes_per_ost},
};

/// How often the progress of other threads is read.
const LOOK: Duration = Duration::from_millis(100);

/// The file system, reached through the library.
pub struct Library {
    mgs: Vec<Address>,
}

impl Library {
    /// The file system of the cluster whose MGS has these addresses.
    pub fn new(mgs: Vec<Address>) -> Self {
        Self { mgs }
    }

    /// Runs `program` with a client of its own. Afterwards its changes are durable and the client is unmounted.
    fn with_client<T, F: Future<Output = CliResult<T>>>(&self, program: impl FnOnce(Session) -> F) -> CliResult<T> {
        let mut options = MountOptions::new(self.mgs.clone());
        options.description = "forebay demo (library)".into();
        real::run(|env| async move {
            let client = Client::mount(&env, options).await.doing(|| "cannot connect".into())?;
            let caller = Caller { uid: posix::user_id(), gid: posix::group_id(), groups: Vec::new() };
            let result = program(Session { client: client.clone(), caller }).await;
            let end = client.unmount().await.doing(|| "not everything became durable".into());
            result.and_then(|value| end.map(|()| value))
        })
    }
}

/// A client in use.
#[derive(Clone)]
struct Session {
    client: Client,
    caller: Caller,
}

impl Volume for Library {
    fn copy(&self, tree: &Tree, to: &str, pulse: &Pulse, go_on: &(dyn Fn() -> bool + Sync)) -> CliResult<Tree> {
        self.with_client(|session| async move { copy(&session, tree, to, pulse, go_on).await })
    }

    fn compare(&self, tree: &Tree, at: &str, pulse: &Pulse) -> CliResult {
        self.with_client(|session| async move { compare(&session, tree, at, pulse).await })
    }

    fn make_dirs(&self, dir: &str, osts: usize) -> CliResult {
        self.with_client(|session| async move {
            let Session { client, caller } = &session;
            let fid = client.make_dirs(caller, dir).await.doing(|| format!("cannot make {dir}"))?;
            let layout = LayoutSpec { stripe_count: osts as u32, ..LayoutSpec::inherit() };
            client.set_layout(caller, fid, layout).await.doing(|| format!("cannot set the layout of {dir}"))
        })
    }

    fn write(&self, checkpoint: &Checkpoint, on_progress: &mut dyn FnMut(u64)) -> CliResult<Pace> {
        self.programs(checkpoint, on_progress, |session, checkpoint, rank, moved| async move {
            write_one(&session, &checkpoint, rank, &moved).await
        })
    }

    fn verify(&self, checkpoint: &Checkpoint, on_progress: &mut dyn FnMut(u64)) -> CliResult<Pace> {
        self.programs(checkpoint, on_progress, |session, checkpoint, rank, moved| async move {
            let of_rank = (rank + 1) % checkpoint.size.processes;
            verify_one(&session, &checkpoint, of_rank, &moved).await
        })
    }

    fn spread(&self, file: &str, osts: usize) -> CliResult<Vec<u64>> {
        self.with_client(|Session { client, caller }| async move {
            let attr = client.resolve(&caller, file).await.doing(|| format!("cannot look at {file}"))?;
            let (layout, _) =
                client.get_layout(attr.fid).await.doing(|| format!("cannot tell the layout of {file}"))?;
            Ok(layout.map_or(vec![0; osts], |layout| bytes_per_ost(&layout, attr.size, osts)))
        })
    }
}

impl Library {
    /// A thread per process of the checkpoint, each with its own client; `program` returns its longest call.
    fn programs<F>(
        &self,
        checkpoint: &Checkpoint,
        on_progress: &mut dyn FnMut(u64),
        program: impl Fn(Session, Checkpoint, u32, std::sync::Arc<AtomicU64>) -> F + Sync,
    ) -> CliResult<Pace>
    where
        F: Future<Output = CliResult<u64>>,
    {
        let moved = std::sync::Arc::new(AtomicU64::new(0));
        let began_ns = posix::monotonic_ns();
        let longest: Vec<CliResult<u64>> = thread::scope(|scope| {
            let one = |rank| {
                let (moved, program) = (moved.clone(), &program);
                scope.spawn(move || self.with_client(|session| program(session, checkpoint.clone(), rank, moved)))
            };
            let threads: Vec<_> = (0..checkpoint.size.processes).map(one).collect();
            while threads.iter().any(|thread| !thread.is_finished()) {
                on_progress(moved.load(Ordering::Relaxed));
                thread::sleep(LOOK);
            }
            threads.into_iter().map(|thread| thread.join().expect("a program's thread does not panic")).collect()
        });
        let seconds = (posix::monotonic_ns() - began_ns) as f64 / 1e9;
        let longest: Vec<u64> = longest.into_iter().collect::<CliResult<_>>()?;
        let longest_s = longest.into_iter().max().unwrap_or(0) as f64 / 1e9;
        Ok(Pace::new(checkpoint.size.total(), seconds, longest_s))
    }
}

async fn write_one(session: &Session, checkpoint: &Checkpoint, rank: u32, moved: &AtomicU64) -> CliResult<u64> {
    let Session { client, caller } = session;
    let path = &checkpoint.files()[rank as usize];
    let file = client.create_path(caller, path, OpenMode::WRITE).await.doing(|| format!("cannot make {path}"))?;
    let stamp = checkpoint.shape().stamp(rank, checkpoint.number);
    let mut longest_ns = 0;
    for offset in (0..checkpoint.size.bytes).step_by(TRANSFER_BYTES as usize) {
        let mut bytes = vec![0; TRANSFER_BYTES as usize];
        stamp.fill(&mut bytes, offset);
        let before_ns = posix::monotonic_ns();
        let written = client.write(&file, offset, bytes).await.doing(|| format!("write at {offset} of {path}"))?;
        if written as u64 != TRANSFER_BYTES {
            return Err(CliError::failed(format!("write at {offset} of {path} wrote {written} bytes")));
        }
        longest_ns = longest_ns.max(posix::monotonic_ns() - before_ns);
        moved.fetch_add(TRANSFER_BYTES, Ordering::Relaxed);
    }
    let before_ns = posix::monotonic_ns();
    client.fsync(&file, false).await.doing(|| format!("fsync of {path}"))?;
    client.close(file).await.doing(|| format!("close of {path}"))?;
    Ok(longest_ns.max(posix::monotonic_ns() - before_ns))
}

async fn verify_one(session: &Session, checkpoint: &Checkpoint, rank: u32, moved: &AtomicU64) -> CliResult<u64> {
    let Session { client, caller } = session;
    let path = &checkpoint.files()[rank as usize];
    let file = client.open_path(caller, path, OpenMode::READ).await.doing(|| format!("cannot open {path}"))?;
    let stamp = checkpoint.shape().stamp(rank, checkpoint.number);
    let mut scratch = vec![0; TRANSFER_BYTES as usize];
    let mut longest_ns = 0;
    for offset in (0..checkpoint.size.bytes).step_by(TRANSFER_BYTES as usize) {
        let before_ns = posix::monotonic_ns();
        let bytes = client.read(&file, offset, scratch.len()).await.doing(|| format!("read at {offset} of {path}"))?;
        longest_ns = longest_ns.max(posix::monotonic_ns() - before_ns);
        if bytes.len() != scratch.len() {
            return Err(CliError::mismatch(format!("{path} ends at {}", offset + bytes.len() as u64)));
        }
        let damaged = |wrong| CliError::mismatch(format!("{path} is damaged: {wrong}"));
        stamp.check(&bytes, offset, &mut scratch).map_err(damaged)?;
        moved.fetch_add(TRANSFER_BYTES, Ordering::Relaxed);
    }
    client.close(file).await.doing(|| format!("close of {path}"))?;
    Ok(longest_ns)
}

async fn copy(
    session: &Session,
    tree: &Tree,
    to: &str,
    pulse: &Pulse,
    go_on: &(dyn Fn() -> bool + Sync),
) -> CliResult<Tree> {
    let Session { client, caller } = session;
    let root = client.make_dirs(caller, to).await.doing(|| format!("cannot make {to}"))?;
    let dirs = make_directories(session, tree, root, pulse).await?;
    let others = tree.entries.iter().filter(|entry| entry.kind != Kind::Dir);
    let queue = RefCell::new(others);
    let copied: RefCell<BTreeSet<PathBuf>> = RefCell::default();
    let copier = || async {
        loop {
            let next = queue.borrow_mut().next().filter(|_| go_on());
            let Some(entry) = next else { return Ok(()) };
            let began_ns = posix::monotonic_ns();
            let parent = dirs[entry.path.parent().unwrap_or(Path::new(""))];
            copy_entry(session, &tree.root, parent, entry).await?;
            pulse.beat(began_ns);
            copied.borrow_mut().insert(entry.path.clone());
        }
    };
    together((0..COPIERS).map(|_| copier())).await?;
    let copied = copied.into_inner();
    let reached = |entry: &&Entry| entry.kind == Kind::Dir || copied.contains(&entry.path);
    let entries: Vec<Entry> = tree.entries.iter().filter(reached).cloned().collect();
    for entry in entries.iter().rev().filter(|entry| entry.kind == Kind::Dir) {
        finish(session, dirs[entry.path.as_path()], entry).await?;
    }
    Ok(Tree { root: tree.root.clone(), entries, bounds: tree.bounds })
}

async fn make_directories<'t>(
    session: &Session,
    tree: &'t Tree,
    root: Fid,
    pulse: &Pulse,
) -> CliResult<BTreeMap<&'t Path, Fid>> {
    let mut dirs = BTreeMap::from([(Path::new(""), root)]);
    for entry in tree.entries.iter().filter(|entry| entry.kind == Kind::Dir) {
        let began_ns = posix::monotonic_ns();
        let parent = dirs[entry.path.parent().unwrap_or(Path::new(""))];
        let made = session.client.mkdir(&session.caller, parent, name_of(entry), 0o755).await;
        let attr = made.doing(|| format!("cannot make the directory {}", entry.path.display()))?;
        dirs.insert(&entry.path, attr.fid);
        pulse.beat(began_ns);
    }
    Ok(dirs)
}

fn name_of(entry: &Entry) -> &[u8] {
    entry.path.file_name().map_or(&[], OsStr::as_bytes)
}

async fn copy_entry(session: &Session, from: &Path, parent: Fid, entry: &Entry) -> CliResult {
    let Session { client, caller } = session;
    let shown = entry.path.display();
    if let Kind::Link(target) = &entry.kind {
        let made = client.symlink(caller, parent, name_of(entry), target.as_os_str().as_bytes()).await;
        let attr = made.doing(|| format!("cannot make the link {shown}"))?;
        return finish(session, attr.fid, entry).await;
    }
    let bytes = Bytes::from(std::fs::read(from.join(&entry.path)).doing(|| format!("cannot read {shown}"))?);
    let open = OpenMode { exclusive: true, ..OpenMode::WRITE };
    let made = client.create(caller, parent, name_of(entry), 0o644, open, LayoutSpec::inherit()).await;
    let (attr, file) = made.doing(|| format!("cannot make {shown}"))?;
    for start in (0..bytes.len()).step_by(CHUNK_BYTES) {
        let chunk = bytes.slice(start..bytes.len().min(start + CHUNK_BYTES));
        let length = chunk.len();
        let written = client.write(&file, start as u64, chunk).await.doing(|| format!("cannot write {shown}"))?;
        if written != length {
            return Err(CliError::failed(format!("{shown}: only {written} of {length} bytes were written")));
        }
    }
    client.close(file).await.doing(|| format!("cannot close {shown}"))?;
    finish(session, attr.fid, entry).await
}

/// Sets mode and times, after everything else.
async fn finish(session: &Session, fid: Fid, entry: &Entry) -> CliResult {
    let time = SetTime::At(entry.mtime_ns as i64);
    let mode = (!matches!(entry.kind, Kind::Link(_))).then_some(entry.mode);
    let changes = SetAttributes { mode, atime: Some(time), mtime: Some(time), ..SetAttributes::default() };
    let set = session.client.setattr(&session.caller, fid, changes, None).await;
    set.map(drop).doing(|| format!("cannot set mode and times of {}", entry.path.display()))
}

async fn compare(session: &Session, tree: &Tree, at: &str, pulse: &Pulse) -> CliResult {
    let found = session.client.walk(&session.caller, at).await.doing(|| format!("cannot list {at}"))?;
    let found: BTreeMap<PathBuf, Attr> = found.into_iter().map(|(path, attr)| (path.into(), attr)).collect();
    let wanted: BTreeSet<&Path> = tree.entries.iter().map(|entry| entry.path.as_path()).collect();
    if let Some(more) = found.keys().find(|path| !wanted.contains(path.as_path())) {
        return Err(CliError::mismatch(format!("{at}/{} should not be there", more.display())));
    }
    let queue = Cell::new(0);
    let reader = || async {
        loop {
            let number = queue.replace(queue.get() + 1);
            let Some(entry) = tree.entries.get(number) else { return Ok(()) };
            let began_ns = posix::monotonic_ns();
            let missing = || CliError::mismatch(format!("{at}/{} is missing", entry.path.display()));
            let attr = found.get(&entry.path).ok_or_else(missing)?;
            compare_entry(session, &tree.root, entry, attr).await?;
            pulse.beat(began_ns);
        }
    };
    together((0..COPIERS).map(|_| reader())).await
}

async fn compare_entry(session: &Session, root: &Path, entry: &Entry, attr: &Attr) -> CliResult {
    let Session { client, caller } = session;
    let shown = entry.path.display();
    let differs = |what: &str| Err(CliError::mismatch(format!("{shown} has another {what} than its original")));
    let is_link = matches!(entry.kind, Kind::Link(_));
    if !is_link && attr.mode & 0o7777 != entry.mode {
        return differs("mode");
    }
    if i128::from(attr.mtime_ns) != entry.mtime_ns {
        return differs("time");
    }
    match (&entry.kind, attr.mode & libc::S_IFMT) {
        (Kind::Dir, libc::S_IFDIR) => Ok(()),
        (Kind::Link(target), libc::S_IFLNK) => {
            let found = client.readlink(attr.fid).await.doing(|| format!("cannot read the link {shown}"))?;
            if found == target.as_os_str().as_bytes() { Ok(()) } else { differs("target") }
        }
        (Kind::File(size), libc::S_IFREG) => {
            if attr.size != *size {
                return differs("size");
            }
            let file = client.open(caller, attr.fid, OpenMode::READ).await.doing(|| format!("cannot open {shown}"))?;
            let original = std::fs::read(root.join(&entry.path)).doing(|| format!("cannot read {shown}"))?;
            for (number, chunk) in original.chunks(CHUNK_BYTES).enumerate() {
                let offset = (number * CHUNK_BYTES) as u64;
                let found = client.read(&file, offset, chunk.len()).await.doing(|| format!("cannot read {shown}"))?;
                if found != chunk {
                    return differs(&format!("content (from byte {offset} on)"));
                }
            }
            client.close(file).await.doing(|| format!("cannot close {shown}"))
        }
        _ => differs("kind"),
    }
}

/// Runs all futures in parallel on this thread. The first error is returned when all have ended.
async fn together<F: Future<Output = CliResult>>(futures: impl Iterator<Item = F>) -> CliResult {
    let mut running: Vec<_> = futures.map(|future| Some(Box::pin(future))).collect();
    let first_error = Rc::new(RefCell::new(Ok(())));
    std::future::poll_fn(|cx| {
        for slot in &mut running {
            if let Some(future) = slot
                && let std::task::Poll::Ready(result) = future.as_mut().poll(cx)
            {
                *slot = None;
                let mut first = first_error.borrow_mut();
                if first.is_ok() {
                    *first = result;
                }
            }
        }
        if running.iter().all(Option::is_none) { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
    first_error.replace(Ok(()))
}
