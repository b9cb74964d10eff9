//! How a worker starts: it makes its directories, or takes over what its predecessor left and compares that with the
//! log.
//!
//! It syncs what it finds first, as a dead mount's changes may be visible before they are durable.

use std::{
    collections::BTreeMap,
    fs::{self, File, OpenOptions},
    os::unix::fs::DirEntryExt,
    path::Path,
};

use super::{
    file::FileModel,
    hands::{self, Trouble},
    model::{DIRS, Death, Model},
    notes::{self, Notes},
    worker::Tally,
};

/// Makes everything certain.
pub fn settle(dir: &Path, path: &Path, death: Death, tally: &mut Tally) -> Result<Notes, Trouble> {
    let Some(mut before) = Notes::read(path).map_err(Trouble::Broken)? else {
        make_dirs(dir)?;
        let model = Model { next_file: 1, next_write: 1, ..Model::default() };
        return Notes::begin(path, model).map_err(Trouble::Broken);
    };
    tally.unsynced += before.model.died(death);
    let found = synced_names(dir, tally)?;
    let names = before.model.check_names(&found).map_err(Trouble::Broken)?;
    tally.names += found.len() as u64;
    let mut files = BTreeMap::new();
    let mut shorter = Vec::new();
    for (name, number) in &names {
        let file = &before.model.files[number];
        let sizes = tally.sizes;
        let left = left(&hands::path(dir, *name), *number, file, tally)?;
        if left.now.size != file.now.size || tally.sizes > sizes {
            shorter.push(*name);
        }
        files.insert(*number, FileModel { ino: Some(found[name]), ..left });
    }
    let mut model = notes::certain(names, files, &before.model);
    // Bytes beyond a lost size may reappear (P3), so such a file is removed.
    for name in shorter {
        let path = hands::path(dir, name);
        hands::expect(fs::remove_file(&path), "unlink", &path)?;
        let file = model.names.remove(&name).expect("it was found");
        model.files.remove(&file);
    }
    model.base = model.names.clone();
    sync_dirs(dir)?;
    Notes::begin(path, model).map_err(Trouble::Broken)
}

fn make_dirs(dir: &Path) -> Result<(), Trouble> {
    for number in 0..DIRS {
        let path = hands::dir(dir, number);
        hands::expect(fs::create_dir_all(&path), "mkdir", &path)?;
    }
    sync_dirs(dir)
}

fn sync_dirs(dir: &Path) -> Result<(), Trouble> {
    for path in (0..DIRS).map(|number| hands::dir(dir, number)).chain([dir.to_owned()]) {
        hands::expect(File::open(&path).and_then(|dir| dir.sync_all()), "fsync", &path)?;
    }
    Ok(())
}

/// The existing names with their inode numbers. Names and bytes are synced.
fn synced_names(dir: &Path, tally: &mut Tally) -> Result<BTreeMap<u32, u64>, Trouble> {
    let found = list(dir, tally)?;
    for name in found.keys() {
        let path = hands::path(dir, *name);
        let synced = tally.call(|| OpenOptions::new().read(true).write(true).open(&path)?.sync_all());
        hands::expect(synced, "open and fsync", &path)?;
    }
    sync_dirs(dir)?;
    Ok(found)
}

/// The existing names with their inode numbers.
pub fn list(dir: &Path, tally: &mut Tally) -> Result<BTreeMap<u32, u64>, Trouble> {
    let mut found = BTreeMap::new();
    for number in 0..DIRS {
        let path = hands::dir(dir, number);
        let entries = tally.call(|| fs::read_dir(&path)?.collect::<Result<Vec<_>, _>>());
        for entry in hands::expect(entries, "readdir", &path)? {
            let name = entry.file_name().to_str().and_then(|name| name.strip_prefix('n')?.parse::<u32>().ok());
            let twice = name.filter(|name| name % DIRS == number).map(|name| found.insert(name, entry.ino()));
            if twice != Some(None) {
                return Err(Trouble::Broken(format!(
                    "{} holds {:?}, once too often",
                    path.display(),
                    entry.file_name()
                )));
            }
        }
    }
    Ok(found)
}

/// Reads what a file contains, and checks that it may.
fn left(path: &Path, number: u32, file: &FileModel, tally: &mut Tally) -> Result<FileModel, Trouble> {
    let read = tally.call(|| {
        let (_, size) = hands::stat(path)?;
        Ok((size, hands::read(&File::open(path)?, 0, file.now.size.max(size) + 8)?))
    });
    let (size, bytes) = hands::expect(read, "read", path)?;
    let broken = |words: String| Trouble::Broken(format!("{} (file {number}): {words}", path.display()));
    let image = file.check_left(number, &bytes).map_err(broken)?;
    if bytes.len() as u64 != size {
        // If the MDT died with the writer, stat may show less than can be read: a lost size (P3). It never shows less
        // than what is certain.
        file.check_size(size).map_err(broken)?;
        if bytes.len() as u64 <= size {
            return Err(broken(format!("it has {size} bytes, and {} can be read", bytes.len())));
        }
        tally.sizes += 1;
    }
    tally.blocks += size.div_ceil(file.record.max(1));
    Ok(FileModel { base: image.clone(), now: image, writes: Vec::new(), ..file.clone() })
}
