//! Compares everything below a worker's directory with its model.

use std::collections::BTreeMap;

use forebay_client::{Client, OpenMode, SetAttributes};
use forebay_proto::{Errno, Fid};

use crate::{
    model::{Node, attribute_key},
    stop::{Excuses, Stop, judge},
    workload::{Shared, attribute_of, caller},
};

const TYPE: u32 = 0o170_000;
const DIRECTORY: u32 = 0o040_000;
const SYMLINK: u32 = 0o120_000;

/// Walks a worker's directory. `loose`: client and server died together, so anything since the last sync will do.
/// Who met an EIO that is excused may look again.
pub async fn verify(client: &Client, worker: &Shared, loose: bool, excuses: Excuses) -> Result<(), Stop> {
    let home = worker.borrow().home.clone();
    let exists = client.lookup(&caller(), Fid::ROOT, home.as_bytes()).await;
    let attr = match exists {
        Ok(attr) => attr,
        Err(e) if e.errno == Errno::ENOENT => {
            let gone = worker.borrow_mut().names.check(&BTreeMap::new(), loose);
            return gone.map_err(|e| format!("{home} is gone: {e}").into());
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
    worker.borrow_mut().names.check(&seen, loose).map_err(|e| format!("{home}: {e}"))?;
    for (path, fid, id) in files {
        check_file(client, worker, (&path, fid, id), loose, excuses).await.map_err(|stop| match stop {
            Stop::Excused => Stop::Excused,
            Stop::Wrong(e) => Stop::Wrong(format!("{home}/{path} ({fid}): {e}")),
        })?;
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
    let bytes = client.read(&file, 0, attr.size as usize).await.map_err(|e| judge("read", &e, excuses))?;
    client.close(file).await.map_err(|e| judge("close", &e, excuses))?;
    if bytes.len() as u64 != attr.size {
        return Err(format!("{path}: stat says {} bytes, read gives {}", attr.size, bytes.len()).into());
    }
    let (links, size_was_lost) = {
        let mut worker = worker.borrow_mut();
        let links = worker.names.links(id);
        let model = worker.files.entry(id).or_default();
        let size_was_lost = loose && model.longest() > attr.size;
        model.check_size(attr.size, loose)?;
        model.check(0, &bytes, loose)?;
        (links, size_was_lost)
    };
    if size_was_lost {
        // Bytes beyond a lost size may reappear (P3), until a truncate says that they shall not.
        let changes = SetAttributes { size: Some(attr.size), ..SetAttributes::default() };
        client.setattr(&caller(), fid, changes, None).await.map_err(|e| judge("truncate", &e, excuses))?;
        worker.borrow_mut().files.entry(id).or_default().truncate(attr.size);
    }
    if attr.nlink as usize == links { Ok(()) } else { Err(format!("{} links, expected {links}", attr.nlink).into()) }
}

/// The model's number of an inode. One that nobody was told of was made by a create that was never answered.
fn identify(worker: &Shared, path: &str, fid: Fid) -> u64 {
    let mut worker = worker.borrow_mut();
    if let Some(id) = worker.fids.get(&fid) {
        return *id;
    }
    let Some(id) = worker.names.possible_file(path) else { return u64::MAX };
    worker.fids.insert(fid, id);
    id
}
