//! Removes a name of a file.

use forebay_proto::{
    Errno,
    message::{Changed, Unlink, lease_flags},
};

use crate::{halt::Step, keys, keys::Key, name, perm, tx::Tx};

/// Rows worth prefetching together.
pub fn keys(request: &Unlink) -> [Key; 1] {
    [keys::inode(request.parent)]
}

/// Errors: ENOENT, EISDIR, EACCES, EPERM in a sticky directory.
pub fn apply(tx: &mut Tx<'_>, request: &Unlink) -> Step<Changed> {
    tx.answered_at(request.parent, request.at_ns)?;
    let mut dir = tx.dir(request.parent)?;
    name::check(&request.name, Errno::EISDIR)?;
    perm::access(&request.caller, &dir, perm::SEARCH)?;
    let found = tx.find(request.parent, &dir, &request.name)?;
    let fid = found.entry().ok_or(Errno::ENOENT)?.fid;
    let mut inode = tx.named_inode(fid)?;
    perm::remove(&request.caller, &dir, &inode)?;
    if inode.is_dir() {
        return Err(Errno::EISDIR.into());
    }
    tx.remove_name(&found)?;
    tx.drop_link(fid, &mut inode)?;
    tx.put_changed_dir(request.parent, &mut dir, -1, 0);
    let parents = tx.cached_parent(request.parent)?.into_iter().collect();
    let leases = tx.lease_entries_write(request.parent, &dir, lease_flags::PARENT_ENTRIES_WRITE);
    Ok(Changed { fids: vec![fid], parents, leases })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{World, root, user};
    use forebay_proto::{
        Fid,
        message::{Link, Open, open_flags},
    };

    fn unlink(name: &str) -> Unlink {
        Unlink { caller: root(), parent: Fid::ROOT, name: name.to_owned().into(), at_ns: 0 }
    }

    #[test]
    fn the_last_name_takes_the_inode_along() {
        let mut world = World::new();
        let before = world.rows.len();
        let fid = world.file(Fid::ROOT, "a");
        let link = Link { caller: root(), fid, parent: Fid::ROOT, name: "b".into() };
        world.run(|tx| crate::ops::link::apply(tx, &link));
        world.run(|tx| apply(tx, &unlink("a")));
        assert_eq!(world.run(|tx| tx.inode(fid)).nlink, 1);
        world.run(|tx| apply(tx, &unlink("b")));
        assert_eq!((world.rows.len(), world.memory.inodes), (before, 1));
    }

    #[test]
    fn a_file_that_was_never_written_leaves_nothing_to_destroy_and_a_written_one_a_record_for_each_stripe() {
        let mut world = World::new();
        world.file(Fid::ROOT, "a");
        world.run(|tx| apply(tx, &unlink("a")));
        assert_eq!(world.count(keys::DESTROY), 0);
        let mut request = world.create(&root(), Fid::ROOT, "b", 1);
        request.layout.stripe_count = 3;
        let fid = world.run(|tx| crate::ops::create::apply(tx, &request)).attr.fid;
        world.close(fid, 1, true);
        world.run(|tx| apply(tx, &unlink("b")));
        assert_eq!(world.count(keys::DESTROY), 3);
    }

    #[test]
    fn a_file_that_was_open_for_writing_and_never_written_leaves_nothing_to_destroy() {
        let mut world = World::new();
        let request = world.create(&root(), Fid::ROOT, "a", 1);
        let fid = world.run(|tx| crate::ops::create::apply(tx, &request)).attr.fid;
        world.close(fid, 1, false);
        world.run(|tx| apply(tx, &unlink("a")));
        assert_eq!((world.count(keys::DESTROY), world.effects.destroys), (0, false));
    }

    #[test]
    fn one_of_two_writers_is_enough_for_something_to_destroy_whoever_closes_last() {
        let mut world = World::new();
        let request = world.create(&root(), Fid::ROOT, "a", 1);
        let fid = world.run(|tx| crate::ops::create::apply(tx, &request)).attr.fid;
        let open = Open { caller: root(), fid, flags: open_flags::WRITE, handle: 2 };
        world.run(|tx| crate::ops::open::apply(tx, &open));
        world.close(fid, 1, true);
        world.close(fid, 2, false);
        world.run(|tx| apply(tx, &unlink("a")));
        assert_eq!(world.count(keys::DESTROY), 1);
    }

    #[test]
    fn a_file_that_was_cut_while_somebody_had_it_open_for_writing_may_have_objects() {
        let mut world = World::new();
        let request = world.create(&root(), Fid::ROOT, "a", 1);
        let fid = world.run(|tx| crate::ops::create::apply(tx, &request)).attr.fid;
        world.run(|tx| {
            let mut inode = tx.inode(fid)?;
            tx.resize(fid, &mut inode, 0, true)?;
            tx.put_inode(fid, &mut inode);
            Ok(())
        });
        assert_eq!((world.count(keys::TRUNCATE), world.effects.truncate), (1, Some(fid)));
        world.close(fid, 1, false);
        world.run(|tx| apply(tx, &unlink("a")));
        assert_eq!(world.count(keys::DESTROY), 1);
    }

    #[test]
    fn a_file_whose_osts_were_notified_of_a_time_may_have_objects() {
        let mut world = World::new();
        let request = world.create(&root(), Fid::ROOT, "a", 1);
        let fid = world.run(|tx| crate::ops::create::apply(tx, &request)).attr.fid;
        let told = world.run(|tx| {
            let mut inode = tx.inode(fid)?;
            inode.attr_epoch += 1;
            tx.put_inode(fid, &mut inode);
            tx.log_set_time(fid, &inode);
            Ok(keys::truncate(fid))
        });
        world.close(fid, 1, false);
        world.run(|tx| {
            tx.delete(told);
            apply(tx, &unlink("a"))
        });
        assert_eq!(world.count(keys::DESTROY), 1);
    }

    /// create, close, unlink |MDT| again
    #[test]
    fn replayed_file_may_have_objects() {
        let mut world = World::new();
        world.is_replay = true;
        let request = world.create(&root(), Fid::ROOT, "a", 1);
        let fid = world.run(|tx| crate::ops::create::apply(tx, &request)).attr.fid;
        world.close(fid, 1, false);
        world.is_replay = false;
        world.run(|tx| apply(tx, &unlink("a")));
        assert_eq!(world.count(keys::DESTROY), 1);
    }

    #[test]
    fn a_file_that_was_opened_for_writing_again_may_have_objects() {
        let mut world = World::new();
        let request = world.create(&root(), Fid::ROOT, "a", 1);
        let fid = world.run(|tx| crate::ops::create::apply(tx, &request)).attr.fid;
        world.close(fid, 1, false);
        let open = Open { caller: root(), fid, flags: open_flags::WRITE, handle: 2 };
        world.run(|tx| crate::ops::open::apply(tx, &open));
        world.close(fid, 2, false);
        world.run(|tx| apply(tx, &unlink("a")));
        assert_eq!(world.count(keys::DESTROY), 1);
    }

    #[test]
    fn unlink_of_another_users_name_in_a_sticky_directory_is_refused() {
        let mut world = World::new();
        world.run(|tx| {
            let mut dir = tx.inode(Fid::ROOT)?;
            dir.mode |= 0o1777;
            tx.put_inode(Fid::ROOT, &mut dir);
            Ok(())
        });
        world.file(Fid::ROOT, "a");
        let request = Unlink { caller: user(7), ..unlink("a") };
        assert_eq!(world.errno(|tx| apply(tx, &request)), Errno::EPERM);
    }

    #[test]
    fn directories_and_missing_names_are_refused() {
        let mut world = World::new();
        world.mkdir(Fid::ROOT, "d");
        assert_eq!(world.errno(|tx| apply(tx, &unlink("d"))), Errno::EISDIR);
        assert_eq!(world.errno(|tx| apply(tx, &unlink("x"))), Errno::ENOENT);
    }

    #[test]
    fn deleting_works_on_a_full_target() {
        let mut world = World::new();
        world.file(Fid::ROOT, "a");
        world.has_space = false;
        world.run(|tx| apply(tx, &unlink("a")));
    }
}
