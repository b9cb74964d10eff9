//! Directory entries as operations use them: find, add, remove, replace.

use forebay_proto::{Errno, ErrorReply, Fid};

use crate::{
    dirent::{self, Dirent, Entry},
    halt::{Step, corrupt},
    inode::Inode,
    keys, limits,
    tx::Tx,
};

/// The result of a search for a name.
#[derive(Debug)]
pub struct Found {
    /// The directory.
    pub parent: Fid,
    /// Cookie of collision number 0.
    first: u64,
    /// Highest collision number in use; `None` if no name has this hash.
    highest: Option<u16>,
    /// The name's entry and its collision number, if it was found.
    hit: Option<(u16, Entry)>,
    /// The lowest free collision number.
    free: u16,
}

impl Found {
    /// The entry that was found.
    pub fn entry(&self) -> Option<&Entry> {
        self.hit.as_ref().map(|(_, entry)| entry)
    }
}

impl Tx<'_> {
    /// Searches for `name` in the directory `parent`, whose inode is `dir`.
    pub fn find(&self, parent: Fid, dir: &Inode, name: &[u8]) -> Step<Found> {
        let seed = dir.dir().ok_or(Errno::ENOTDIR)?.seed;
        self.find_at(parent, dirent::first_cookie(seed, name), name)
    }

    fn find_at(&self, parent: Fid, first: u64, name: &[u8]) -> Step<Found> {
        self.share(keys::dirent(parent, first));
        let mut found = Found { parent, first, highest: None, hit: None, free: 0 };
        let Some(head) = self.dirent(parent, first)? else { return Ok(found) };
        found.highest = Some(head.highest);
        let mut free = None;
        for number in 0..=head.highest {
            let row = if number == 0 { Some(head.clone()) } else { self.dirent(parent, first + u64::from(number))? };
            match row.and_then(|row| row.entry) {
                Some(entry) if entry.name == name => found.hit = Some((number, entry)),
                Some(_) => {}
                None => free = free.or(Some(number)),
            }
        }
        found.free = free.unwrap_or(head.highest + 1);
        Ok(found)
    }

    fn dirent(&self, parent: Fid, cookie: u64) -> Step<Option<Dirent>> {
        let key = keys::dirent(parent, cookie);
        let Some(row) = self.row(key)? else { return Ok(None) };
        Dirent::decode(&row).map(Some).map_err(|error| corrupt(key.as_ref(), error))
    }

    /// The name at a cookie.
    pub fn name_at(&self, parent: Fid, cookie: u64) -> Step<Option<Entry>> {
        Ok(self.dirent(parent, cookie)?.and_then(|row| row.entry))
    }

    /// Adds `entry` under a name that was not found.
    pub fn add_name(&mut self, found: &Found, entry: Entry) -> Step<()> {
        assert!(found.hit.is_none(), "a name is added only where there is none");
        if found.free >= limits::COLLISIONS {
            return Err(ErrorReply::new(Errno::ENOSPC, "too many names of one hash in this directory").into());
        }
        let highest = found.highest.unwrap_or(0).max(found.free);
        self.put_name(found, found.free, highest, entry)
    }

    /// Points the name that was found to another inode.
    pub fn replace_name(&mut self, found: &Found, fid: Fid, mode: u32) -> Step<()> {
        let (number, old) = found.hit.clone().expect("a name is replaced only where there is one");
        self.put_name(found, number, found.highest.unwrap_or(0), Entry { fid, mode, name: old.name })
    }

    fn put_name(&mut self, found: &Found, number: u16, highest: u16, entry: Entry) -> Step<()> {
        if number == 0 {
            self.put_dirent(found, 0, &Dirent { entry: Some(entry), highest });
        } else {
            self.put_dirent(found, number, &Dirent { entry: Some(entry), highest: 0 });
            self.put_head(found, highest)?;
        }
        self.touch_name(found);
        Ok(())
    }

    /// Removes the name that was found; other names of its hash keep their cookies.
    pub fn remove_name(&mut self, found: &Found) -> Step<()> {
        let number = found.hit.as_ref().expect("a name is removed only where there is one").0;
        let mut highest = found.highest.unwrap_or(0);
        if number == highest {
            highest = self.highest_below(found, number)?;
        }
        if number > 0 {
            self.delete(keys::dirent(found.parent, found.first + u64::from(number)));
            self.put_head(found, highest)?;
        } else if highest > 0 {
            self.put_dirent(found, 0, &Dirent { entry: None, highest });
        } else {
            self.delete(keys::dirent(found.parent, found.first));
        }
        self.touch_name(found);
        Ok(())
    }

    fn highest_below(&self, found: &Found, number: u16) -> Step<u16> {
        for below in (1..number).rev() {
            if self.dirent(found.parent, found.first + u64::from(below))?.is_some() {
                return Ok(below);
            }
        }
        Ok(0)
    }

    /// Stores the highest number in the head row. A head row with neither a name nor other numbers is deleted.
    fn put_head(&mut self, found: &Found, highest: u16) -> Step<()> {
        let entry = self.dirent(found.parent, found.first)?.and_then(|head| head.entry);
        if entry.is_none() && highest == 0 {
            self.delete(keys::dirent(found.parent, found.first));
        } else {
            self.put_dirent(found, 0, &Dirent { entry, highest });
        }
        Ok(())
    }

    fn put_dirent(&mut self, found: &Found, number: u16, row: &Dirent) {
        self.put_with(keys::dirent(found.parent, found.first + u64::from(number)), |out| row.encode(out));
    }

    fn touch_name(&mut self, found: &Found) {
        self.touch(keys::dirent(found.parent, found.first));
        self.touch(keys::dirents(found.parent));
    }

    /// Notes that the operation shows, or builds on, the whole set of a directory's names.
    pub fn share_names(&self, parent: Fid) {
        self.share(keys::dirents(parent));
    }

    /// Writes a directory's row after its entries changed: times, number of entries, subdirectories. Such changes of
    /// several sessions commute and do not wait for each other.
    pub fn put_changed_dir(&mut self, fid: Fid, dir: &mut Inode, entries: i64, subdirectories: i32) {
        dir.mtime_ns = self.origin.now_ns;
        dir.ctime_ns = self.origin.now_ns;
        dir.nlink = dir.nlink.saturating_add_signed(subdirectories);
        let body = dir.dir_mut().expect("only directories have names");
        body.entries = body.entries.saturating_add_signed(entries);
        self.put_inode(fid, dir);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::World;

    const PARENT: Fid = Fid { high: 0, low: 9 };

    fn entry(number: u64) -> Entry {
        Entry { fid: Fid { high: 0, low: number }, mode: crate::inode::S_IFREG, name: format!("n{number}").into() }
    }

    fn cookies(world: &World) -> Vec<u64> {
        world.rows.keys().filter_map(|key| keys::cookie_of(key)).collect()
    }

    /// Adds or removes the name of `number`; all names have the same hash.
    fn change(world: &mut World, number: u64, add: bool) {
        world.run(|tx| {
            let found = tx.find_at(PARENT, 1 << 15, &entry(number).name)?;
            if add { tx.add_name(&found, entry(number)) } else { tx.remove_name(&found) }
        });
    }

    fn has(world: &mut World, number: u64) -> bool {
        world.run(|tx| Ok(tx.find_at(PARENT, 1 << 15, &entry(number).name)?.entry() == Some(&entry(number))))
    }

    #[test]
    fn names_of_one_hash_keep_their_cookies_when_others_go() {
        let mut world = World::new();
        (1..=3).for_each(|number| change(&mut world, number, true));
        let base = 1 << 15;
        assert_eq!(cookies(&world), [base, base + 1, base + 2]);
        change(&mut world, 1, false);
        assert_eq!(cookies(&world), [base, base + 1, base + 2], "the head keeps the place");
        assert!(!has(&mut world, 1) && has(&mut world, 2) && has(&mut world, 3));
        change(&mut world, 3, false);
        assert_eq!(cookies(&world), [base, base + 1]);
        change(&mut world, 4, true);
        assert!(has(&mut world, 4) && has(&mut world, 2), "the free number was used again");
        assert_eq!(cookies(&world), [base, base + 1]);
        change(&mut world, 2, false);
        change(&mut world, 4, false);
        assert_eq!(cookies(&world), [0u64; 0], "nothing is left behind");
    }
}
