//! Assigns OSTs to parts of a file: to components that have none yet, and to the range behind the end of a file whose
//! OSTs are full.
//!
//! Order: nobody is shown the new layout before it is committed (`Effects::hidden`, the truncate log). So data that a
//! client writes under it is found after any crash, and the choice need not be repeatable as that of a create is.
//! Order: where OSTs are full, all OSTs of the file first get a new truncate epoch. From then on nobody writes under
//! the old layout, and the size that the home reports covers every acknowledged write. What lies behind that size can
//! be given to other OSTs. The file is then cut to exactly that size, so that bytes of failed writes are gone
//! everywhere.

use std::collections::BTreeSet;

use forebay_proto::{
    Errno, ErrorReply, Fid, Layout,
    limits::COMPONENTS,
    message::{Empty, ExtendLayout, open_flags},
};

use super::{Purpose, create};
use crate::{
    halt::{Halt, Step},
    inode::{Body, Inode},
    keys,
    keys::Key,
    placement,
    tx::Tx,
};

/// Rows worth prefetching together.
pub fn keys(request: &ExtendLayout) -> [Key; 1] {
    [keys::inode(request.fid)]
}

/// Errors: EBADF, ESTALE, ENOSPC if no OST has space.
pub fn apply(tx: &mut Tx<'_>, request: &ExtendLayout) -> Step<Empty> {
    tx.wait_for_truncate(request.fid)?;
    if tx.memory.placing && !tx.origin.is_replay {
        return Err(Halt::Placing);
    }
    let flags = tx.memory.opens.flags(request.fid, tx.origin.session, request.handle);
    if flags.is_none_or(|flags| flags & open_flags::WRITE == 0) {
        return Err(Errno::EBADF.into());
    }
    let mut inode = tx.inode(request.fid)?;
    if inode.inline {
        return Err(ErrorReply::new(Errno::EBUSY, "the file's bytes lie with the MDT").into());
    }
    if request.full.is_empty() {
        fill_gaps(tx, request, &mut inode)?
    } else {
        pass_over(tx, request, &mut inode)?
    }
    Ok(Empty {})
}

fn fill_gaps(tx: &mut Tx<'_>, request: &ExtendLayout, inode: &mut Inode) -> Step<()> {
    let wheels = create::wheels(tx)?;
    let Body::File(layout) = &mut inode.body else { return Err(Errno::EINVAL.into()) };
    let touched = layout.touched(request.offset, request.length);
    let bare: Vec<usize> = touched.filter(|(_, part)| !part.has_osts()).map(|(number, _)| number).collect();
    for number in &bare {
        placement::fill(request.fid, layout, *number, wheels, &[])?;
    }
    if bare.is_empty() {
        // Another client has requested it meanwhile.
        return Ok(());
    }
    layout.generation += 1;
    revive(layout);
    tx.put_inode_touched(request.fid, inode);
    tx.effects.hidden = Some(request.fid);
    Ok(())
}

/// Starts to replace full OSTs, if there are others.
fn pass_over(tx: &mut Tx<'_>, request: &ExtendLayout, inode: &mut Inode) -> Step<()> {
    let wheels = create::wheels(tx)?;
    let layout = inode.layout().ok_or(Errno::EINVAL)?;
    let number = layout.component_at(request.offset);
    let part = &layout.components[number];
    if !part.osts.iter().any(|ost| request.full.contains(ost)) {
        return Ok(());
    }
    let wheel = wheels.of(&part.pool).unwrap_or(wheels.all());
    // Where all OSTs are full, the known state suffices: a full system replies at once, without a request to any OST.
    let beside = |known: &BTreeSet<u32>| known.iter().chain(&request.full).copied().collect::<Vec<u32>>();
    let is_elsewhere = |full: &[u32]| !wheel.spread(request.fid, number as u64, 1, full).is_empty();
    let mut full = beside(&tx.memory.full);
    if !is_elsewhere(&full) {
        // Two percent of a large OST are space for many files.
        full = beside(&tx.memory.exhausted);
    }
    if !is_elsewhere(&full) || layout.components.len() >= COMPONENTS || request.offset < inode.size {
        let words = "the OSTs of the file are full, and there are none to go on with; see `forebay df`";
        return Err(ErrorReply::new(Errno::ENOSPC, words).into());
    }
    inode.truncate_epoch += 1;
    tx.put_inode_touched(request.fid, inode);
    tx.log_truncate(request.fid, inode, Purpose::Extend { full });
    Ok(())
}

/// The second half, once all OSTs know the epoch and the home has reported `size`: what lies behind it gets other OSTs.
pub fn replace_full_osts(tx: &mut Tx<'_>, fid: Fid, inode: &mut Inode, size: u64, full: &[u32]) -> Step<()> {
    let wheels = create::wheels(tx)?;
    let Body::File(layout) = &mut inode.body else { return Err(Errno::EINVAL.into()) };
    layout.former = layout.osts();
    let mut number = layout.component_at(size);
    let part = &mut layout.components[number];
    if part.start < size && part.osts.iter().any(|ost| full.contains(ost)) {
        let behind = forebay_proto::Component { start: size, osts: Vec::new(), ..part.clone() };
        part.end = size;
        number += 1;
        layout.components.insert(number, behind);
        placement::fill(fid, layout, number, wheels, full)?;
    }
    for number in number..layout.components.len() {
        if layout.components[number].osts.iter().any(|ost| full.contains(ost)) {
            placement::fill(fid, layout, number, wheels, full)?;
        }
    }
    layout.generation += 1;
    revive(layout);
    recut(tx, fid, inode, size);
    Ok(())
}

/// The second half for an empty file that gets another layout.
pub fn relayout_empty(
    tx: &mut Tx<'_>,
    fid: Fid,
    inode: &mut Inode,
    spec: &forebay_proto::message::LayoutSpec,
) -> Step<()> {
    let Body::File(old) = &inode.body else { return Err(Errno::EINVAL.into()) };
    let chosen = create::choose_layout(tx, fid, inode, spec, old.generation + 1)?;
    let mut layout = Layout { objects: old.objects, former: old.osts(), ..chosen };
    revive(&mut layout);
    inode.body = Body::File(layout);
    recut(tx, fid, inode, 0);
    Ok(())
}

/// Removes OSTs that a component names (again) from the former OSTs.
fn revive(layout: &mut Layout) {
    let named: Vec<u32> = layout.components.iter().flat_map(|part| part.osts.iter().copied()).collect();
    layout.former.retain(|ost| !named.contains(ost));
}

/// The file keeps its size under the new layout: logs a cut, which gives every OST the end of its object.
pub fn recut(tx: &mut Tx<'_>, fid: Fid, inode: &mut Inode, size: u64) {
    inode.size = size;
    inode.truncate_epoch += 1;
    tx.put_inode_touched(fid, inode);
    tx.log_truncate(fid, inode, Purpose::Cut { size });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        ops::{self, TruncateLog},
        testing::{World, root},
    };
    use forebay_proto::message::{ComponentSpec, LayoutSpec};

    /// A file that this session writes: up to `end` on one OST, then on two.
    fn opened(world: &mut World, end: u64) -> Fid {
        let part = |end, stripe_count| {
            let (stripe_bytes, stripe_index, pool) = (0, u32::MAX, String::new());
            ComponentSpec { end, stripe_count, stripe_bytes, stripe_index, pool }
        };
        let mut request = world.create(&root(), Fid::ROOT, "a", 1);
        request.layout =
            LayoutSpec { components: vec![part(end, 1), part(forebay_proto::FOR_EVER, 2)], ..LayoutSpec::inherit() };
        world.run(|tx| ops::create::apply(tx, &request)).attr.fid
    }

    fn request(fid: Fid, offset: u64, full: &[u32]) -> ExtendLayout {
        ExtendLayout { fid, handle: 1, offset, length: 1 << 20, full: full.to_vec() }
    }

    fn layout(world: &mut World, fid: Fid) -> Layout {
        world.run(|tx| tx.inode(fid)).layout().unwrap().clone()
    }

    #[test]
    fn a_component_gets_its_osts_when_it_is_first_written() {
        let mut world = World::new();
        let fid = opened(&mut world, 4 << 20);
        world.run(|tx| apply(tx, &request(fid, 0, &[])));
        assert_eq!((layout(&mut world, fid).generation, world.effects.hidden), (1, None));
        world.run(|tx| apply(tx, &request(fid, 4 << 20, &[])));
        assert_eq!(world.effects.hidden, Some(fid));
        let after = layout(&mut world, fid);
        assert_eq!((after.generation, after.components[1].osts.len()), (2, 2));
        assert_eq!(world.errno(|tx| apply(tx, &ExtendLayout { handle: 9, ..request(fid, 0, &[]) })), Errno::EBADF);
    }

    #[test]
    fn a_file_on_a_full_ost_is_extended_on_another_ost() {
        let mut world = World::new();
        let fid = opened(&mut world, 4 << 20);
        let full = layout(&mut world, fid).home();
        world.run(|tx| apply(tx, &request(fid, 1 << 20, &[full])));
        assert_eq!((world.count(keys::TRUNCATE), world.effects.truncate), (1, Some(fid)));
        world.run(|tx| {
            let mut inode = tx.inode(fid)?;
            replace_full_osts(tx, fid, &mut inode, 1_000_000, &[full])
        });
        let after = layout(&mut world, fid);
        let ends: Vec<u64> = after.components.iter().map(|part| part.end).collect();
        assert_eq!(ends, [1_000_000, 4 << 20, forebay_proto::FOR_EVER]);
        assert_eq!((after.home(), after.components[1].osts.contains(&full)), (full, false));
        assert_eq!((after.validate(), after.former.len(), after.generation), (Ok(()), 0, 2));
    }

    #[test]
    fn a_full_ost_on_which_nothing_lies_is_left_alone_from_then_on() {
        let mut world = World::new();
        let fid = opened(&mut world, 4 << 20);
        let full = layout(&mut world, fid).home();
        world.run(|tx| {
            let mut inode = tx.inode(fid)?;
            replace_full_osts(tx, fid, &mut inode, 0, &[full])
        });
        let after = layout(&mut world, fid);
        assert_eq!((after.components.len(), &after.former[..], after.home() == full), (2, &[full][..], false));
        // Its object is known to exist, and is destroyed with the file.
        assert!(after.osts().contains(&full) && after.object_ends(1 << 30).contains(&(full, 0)));
    }

    #[test]
    fn where_all_are_full_nothing_is_begun() {
        let mut world = World::new();
        let fid = opened(&mut world, 4 << 20);
        assert_eq!(world.errno(|tx| apply(tx, &request(fid, 0, &[0, 1, 2]))), Errno::ENOSPC);
        let home = layout(&mut world, fid).home();
        world.memory.full = (0..3).filter(|ost| *ost != home).collect();
        world.memory.exhausted = world.memory.full.clone();
        assert_eq!(world.errno(|tx| apply(tx, &request(fid, 0, &[home]))), Errno::ENOSPC);
        assert_eq!(world.count(keys::TRUNCATE), 0);
    }

    #[test]
    fn a_file_grows_onto_a_nearly_full_ost_when_no_other_has_space() {
        let mut world = World::new();
        let fid = opened(&mut world, 4 << 20);
        let home = layout(&mut world, fid).home();
        let others: Vec<u32> = (0..3).filter(|ost| *ost != home).collect();
        (world.memory.full, world.memory.exhausted) = ([0, 1, 2].into(), [others[0]].into());
        world.run(|tx| apply(tx, &request(fid, 0, &[home])));
        let log = world.run(|tx| Ok(tx.row(keys::truncate(fid))?.map(|row| TruncateLog::decode(&row))));
        let Some(Ok(TruncateLog { purpose: Purpose::Extend { full }, .. })) = log else { panic!("{log:?}") };
        assert!(!full.contains(&others[1]) && full.contains(&home) && full.contains(&others[0]), "{full:?}");
    }
}
