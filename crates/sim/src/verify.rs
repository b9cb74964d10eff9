//! Compares everything below a worker's directory with its model.

use std::collections::BTreeMap;

use bytes::Bytes;
use forebay_client::{Client, OpenFile, OpenMode, SetAttributes};
use forebay_proto::{Errno, Fid};

use crate::{
    model::{Node, attribute_key},
    stop::{Excuses, Stop, judge},
    workload::{Shared, attribute_of, caller},
};

const TYPE: u32 = 0o170_000;
const DIRECTORY: u32 = 0o040_000;
const SYMLINK: u32 = 0o120_000;
/// Granularity of the search for unreadable bytes.
const PIECE: u64 = 4096;

/// Walks a worker's directory. With `loose` any state since the last sync is accepted, as client and server died
/// together. After an excused EIO the caller may verify again.
pub async fn verify(client: &Client, worker: &Shared, loose: bool, excuses: Excuses) -> Result<(), Stop> {
    let home = worker.borrow().home.clone();
    let exists = client.lookup(&caller(), Fid::ROOT, home.as_bytes()).await;
    let attr = match exists {
        Ok(attr) => attr,
        Err(e) if e.errno == Errno::ENOENT => {
            let gone = worker.borrow_mut().names.check(&BTreeMap::new(), loose);
            return gone.map_err(|e| Stop::Names(format!("{home} is gone: {e}")));
        }
        Err(e) => return Err(judge(&home, &e, excuses)),
    };
    let mut seen = BTreeMap::new();
    let mut files = Vec::new();
    let mut dirs = vec![(String::new(), attr.fid)];
    while let Some((dir, fid)) = dirs.pop() {
        let mut cookie = 0;
        loop {
            let page = client.readdir(fid, cookie, 4096, true).await;
            let page = page.map_err(|e| judge(&format!("readdir {home}/{dir}"), &e, excuses))?;
            for entry in &page.entries {
                cookie = entry.cookie;
                let name = String::from_utf8_lossy(&entry.name).into_owned();
                if name == "." || name == ".." {
                    continue;
                }
                let path = if dir.is_empty() { name } else { format!("{dir}/{name}") };
                let node = match entry.mode & TYPE {
                    DIRECTORY => {
                        dirs.push((path.clone(), entry.fid));
                        Node::Dir
                    }
                    SYMLINK => {
                        let target = client.readlink(entry.fid).await;
                        let target = target.map_err(|e| judge(&format!("readlink {path}"), &e, excuses))?;
                        Node::Symlink(String::from_utf8_lossy(&target).into_owned())
                    }
                    _ => {
                        let id = identify(worker, &path, entry.fid);
                        files.push((path.clone(), entry.fid, id));
                        Node::File(id)
                    }
                };
                seen.insert(path, node);
            }
            if page.end {
                break;
            }
        }
    }
    let ids: BTreeMap<u64, Fid> = files.iter().map(|(_, fid, id)| (*id, *fid)).collect();
    for (id, fid) in ids {
        let value = attribute_of(client, fid, excuses).await?;
        seen.extend(value.map(|node| (attribute_key(id), node)));
    }
    worker.borrow_mut().names.check(&seen, loose).map_err(|e| Stop::Names(format!("{home}: {e}")))?;
    for (path, fid, id) in files {
        let checked = check_file(client, worker, (&path, fid, id), loose, excuses).await;
        checked.map_err(|stop| stop.at(&format!("{home}/{path} ({fid})")))?;
    }
    Ok(())
}

async fn check_file(
    client: &Client,
    worker: &Shared,
    (path, fid, id): (&str, Fid, u64),
    loose: bool,
    excuses: Excuses,
) -> Result<(), Stop> {
    let attr = client.getattr(fid, None).await.map_err(|e| judge("getattr", &e, excuses))?;
    let file = client.open(&caller(), fid, OpenMode::READ).await.map_err(|e| judge("open", &e, excuses))?;
    let read = read_what_is_there(client, worker, &file, attr.size, excuses).await;
    client.close(file).await.map_err(|e| judge("close", &e, excuses))?;
    let parts = read?;
    let bytes: u64 = parts.iter().map(Part::len).sum();
    if bytes != attr.size {
        return Err(format!("{path}: stat says {} bytes, read gives {bytes}", attr.size).into());
    }
    let (links, size_was_lost) = {
        let mut worker = worker.borrow_mut();
        let links = worker.names.links(id);
        let model = worker.files.entry(id).or_default();
        model.check_size(attr.size, loose)?;
        let size_was_lost = loose && model.has_lost_size();
        let mut at = 0;
        for part in &parts {
            match part {
                Part::There(bytes) => model.check(at, bytes, loose)?,
                Part::Damaged(length) if loose => model.forget(at, *length),
                Part::Damaged(_) => {}
            }
            at += part.len();
        }
        (links, size_was_lost)
    };
    if size_was_lost {
        let changes = SetAttributes { size: Some(attr.size), ..SetAttributes::default() };
        client.setattr(&caller(), fid, changes, None).await.map_err(|e| judge("truncate", &e, excuses))?;
        worker.borrow_mut().files.entry(id).or_default().truncate(attr.size);
    }
    match attr.nlink as usize {
        seen if seen == links => Ok(()),
        seen => Err(Stop::Names(format!("{seen} links, expected {links}"))),
    }
}

/// A part of a file.
enum Part {
    There(Bytes),
    /// This many damaged bytes cannot be read.
    Damaged(u64),
}

impl Part {
    fn len(&self) -> u64 {
        match self {
            Self::There(bytes) => bytes.len() as u64,
            Self::Damaged(length) => *length,
        }
    }
}

/// Reads all of a file except for what is damaged, to within [`PIECE`] bytes.
async fn read_what_is_there(
    client: &Client,
    worker: &Shared,
    file: &OpenFile,
    size: u64,
    excuses: Excuses,
) -> Result<Vec<Part>, Stop> {
    let damage = worker.borrow().damage.clone();
    let mut parts = Vec::new();
    let mut wanted = vec![(0, size)];
    while let Some((from, to)) = wanted.pop() {
        match client.read(file, from, (to - from) as usize).await {
            Ok(bytes) => parts.push(Part::There(bytes)),
            Err(e) if e.errno == Errno::EIO && damage.touches(&file.layout(), file.fid(), from..to) => {
                damage.told();
                damage.is_unreadable(file.layout().objects_of(file.fid()));
                if to - from > PIECE {
                    let middle = (from + (to - from) / 2).next_multiple_of(PIECE);
                    wanted.extend([(middle, to), (from, middle)]);
                } else {
                    parts.push(Part::Damaged(to - from));
                }
            }
            Err(e) => return Err(judge(&format!("read of {from}..{to}"), &e, excuses)),
        }
    }
    Ok(parts)
}

/// The model's number of an inode. An unknown inode was made by a create that was never answered.
fn identify(worker: &Shared, path: &str, fid: Fid) -> u64 {
    let mut worker = worker.borrow_mut();
    if let Some(id) = worker.fids.get(&fid) {
        return *id;
    }
    let Some(id) = worker.names.possible_file(path) else { return u64::MAX };
    worker.fids.insert(fid, id);
    id
}
