//! Returns the target of a symbolic link.

use forebay_proto::{
    Errno,
    message::{ReadLink, ReadLinkReply},
};

use crate::{halt::Step, inode::Body, keys, keys::Key, tx::Tx};

/// Rows worth prefetching together.
pub fn keys(request: &ReadLink) -> [Key; 1] {
    [keys::inode(request.fid)]
}

/// Errors: ESTALE, EINVAL if it is not a symbolic link.
pub fn apply(tx: &mut Tx<'_>, request: &ReadLink) -> Step<ReadLinkReply> {
    match tx.inode(request.fid)?.body {
        Body::Symlink(target) => Ok(ReadLinkReply { target }),
        _ => Err(Errno::EINVAL.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        inode::S_IFLNK,
        testing::{World, root},
    };
    use forebay_proto::Fid;

    #[test]
    fn a_link_gives_back_what_it_was_given_and_nothing_else_is_a_link() {
        let mut world = World::new();
        let mut request = world.make(&root(), Fid::ROOT, "l", S_IFLNK | 0o777);
        request.symlink = "../somewhere".into();
        world.run(|tx| crate::ops::make::apply(tx, &request));
        assert_eq!(world.run(|tx| apply(tx, &ReadLink { fid: request.fid })).target, "../somewhere");
        assert_eq!(world.errno(|tx| apply(tx, &ReadLink { fid: Fid::ROOT })), Errno::EINVAL);
    }
}
