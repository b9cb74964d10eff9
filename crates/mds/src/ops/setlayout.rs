//! Sets a directory's default layout, or the layout of a file without data.

use forebay_proto::{
    Errno, ErrorReply,
    message::{EntryReply, LayoutSpec, SetLayout},
};

use super::{Purpose, create};
use crate::{
    halt::Step,
    inode::{Body, Inode},
    keys,
    keys::Key,
    perm,
    tx::Tx,
};

/// Rows worth prefetching together.
pub fn keys(request: &SetLayout) -> [Key; 1] {
    [keys::inode(request.fid)]
}

/// Errors: EPERM, EINVAL for an impossible layout, EEXIST for a file with data. If the file was open for writing
/// before, its layout changes only if the OSTs know of no data either; the caller checks the result.
pub fn apply(tx: &mut Tx<'_>, request: &SetLayout) -> Step<EntryReply> {
    tx.wait_for_truncate(request.fid)?;
    let mut inode = tx.inode(request.fid)?;
    perm::owner(&request.caller, &inode)?;
    let resets = request.layout == LayoutSpec::inherit();
    if inode.dir_mut().is_some() && !resets {
        // An invalid layout is refused now, not when the first file is created.
        create::choose_layout(tx, request.fid, &inode, &request.layout, 1)?;
    }
    if let Some(dir) = inode.dir_mut() {
        dir.default_layout = (!resets).then(|| request.layout.clone());
    } else {
        relayout(tx, request, &mut inode)?;
    }
    inode.changed_at(tx.origin.now_ns);
    tx.put_inode_touched(request.fid, &mut inode);
    Ok(tx.entry_reply(request.fid, &inode))
}

fn relayout(tx: &mut Tx<'_>, request: &SetLayout, inode: &mut Inode) -> Step<()> {
    let Body::File(old) = &inode.body else {
        return Err(ErrorReply::new(Errno::EINVAL, "only files and directories have layouts").into());
    };
    // A file has no parent to inherit from: defaults come from the file system.
    let layout = create::choose_layout(tx, request.fid, inode, &request.layout, old.generation + 1)?;
    // Other sessions with the file open would continue with the layout that they know: only a new epoch makes them look
    // again.
    if !inode.written && !tx.memory.opens.is_open_elsewhere(request.fid, tx.origin.session) {
        inode.body = Body::File(layout);
        return Ok(());
    }
    if inode.size != 0 {
        let message = "the file has data, so its layout is fixed; `forebay migrate` moves it to another";
        return Err(ErrorReply::new(Errno::EEXIST, message).into());
    }
    // The file may have objects, and a session may be about to write: the OSTs decide (see `extend`).
    inode.truncate_epoch += 1;
    // Notifying an OST of the epoch creates an object there.
    inode.written = true;
    tx.log_truncate(request.fid, inode, Purpose::Relayout { spec: request.layout.clone() });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{World, root, user};
    use forebay_proto::Fid;

    fn request(fid: Fid, count: u32) -> SetLayout {
        SetLayout { caller: root(), fid, layout: LayoutSpec { stripe_count: count, ..LayoutSpec::inherit() } }
    }

    #[test]
    fn a_directory_hands_its_default_layout_down_to_new_files() {
        let mut world = World::new();
        let dir = world.mkdir(Fid::ROOT, "d");
        assert_eq!(world.run(|tx| apply(tx, &request(dir, 3))).default_layout, Some(request(dir, 3).layout));
        let file = world.file(dir, "f");
        assert_eq!(world.run(|tx| tx.inode(file)).layout().unwrap().osts().len(), 3);
        assert_eq!(world.run(|tx| apply(tx, &request(dir, 0))).default_layout, None);
    }

    #[test]
    fn an_unwritten_file_gets_a_new_layout_under_a_new_generation() {
        let mut world = World::new();
        let fid = world.file(Fid::ROOT, "f");
        let layout = world.run(|tx| apply(tx, &request(fid, 2))).layout.unwrap();
        assert_eq!((layout.generation, layout.osts().len()), (2, 2));
    }

    #[test]
    fn setlayout_of_an_unwritten_file_open_elsewhere_raises_its_truncate_epoch() {
        let mut world = World::new();
        let fid = world.file(Fid::ROOT, "f");
        let (flags, handle) = (forebay_proto::message::open_flags::READ, 5);
        let open = forebay_proto::message::Open { caller: root(), fid, flags, handle };
        world.session = forebay_proto::SessionId(2);
        world.run(|tx| crate::ops::open::apply(tx, &open));
        world.session = forebay_proto::SessionId(1);
        let before = world.run(|tx| apply(tx, &request(fid, 2)));
        assert_eq!((before.layout.unwrap().generation, before.attr.truncate_epoch), (1, 1));
        assert_eq!((world.count(keys::TRUNCATE), world.effects.truncate), (1, Some(fid)));
        assert!(world.run(|tx| tx.inode(fid)).written, "its OSTs are told of the epoch: there are objects to destroy");
    }

    #[test]
    fn a_written_file_keeps_its_layout() {
        let mut world = World::new();
        let create = world.create(&root(), Fid::ROOT, "f", 1);
        let fid = world.run(|tx| create::apply(tx, &create)).attr.fid;
        world.run(|tx| {
            let mut inode = tx.inode(fid)?;
            inode.size = 1;
            tx.put_inode(fid, &mut inode);
            Ok(())
        });
        assert_eq!(world.errno(|tx| apply(tx, &request(fid, 2))), Errno::EEXIST);
    }

    #[test]
    fn the_layout_of_a_file_that_was_opened_for_writing_is_set_after_a_truncate_on_its_osts() {
        let mut world = World::new();
        let create = world.create(&root(), Fid::ROOT, "f", 1);
        let fid = world.run(|tx| create::apply(tx, &create)).attr.fid;
        let before = world.run(|tx| apply(tx, &request(fid, 2))).layout.unwrap();
        assert_eq!((world.count(keys::TRUNCATE), world.effects.truncate), (1, Some(fid)));
        world.run(|tx| {
            let mut inode = tx.inode(fid)?;
            crate::ops::extend::relayout_empty(tx, fid, &mut inode, &request(fid, 2).layout)
        });
        let after = world.run(|tx| tx.inode(fid)).layout().unwrap().clone();
        assert_eq!((before.osts().len(), after.components[0].osts.len(), after.generation), (1, 2, 2));
    }

    #[test]
    fn strangers_and_odd_stripes_are_refused() {
        let mut world = World::new();
        let fid = world.file(Fid::ROOT, "f");
        assert_eq!(world.errno(|tx| apply(tx, &SetLayout { caller: user(7), ..request(fid, 2) })), Errno::EPERM);
        let mut odd = request(fid, 2);
        odd.layout.stripe_bytes = 1000;
        assert_eq!(world.errno(|tx| apply(tx, &odd)), Errno::EINVAL);
    }
}
