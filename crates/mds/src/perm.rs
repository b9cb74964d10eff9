//! POSIX permissions, checked on the server by the caller's ids.
//!
//! Invariant: every operation that names a caller checks here. User 0 passes every check except those that apply to
//! everybody.

use forebay_proto::{
    Errno,
    message::{Caller, TenantInfo},
};

use crate::{
    acl::{Acl, Tag},
    inode::{Inode, S_IFDIR, S_IFMT, S_IFREG, S_ISGID, S_ISUID, S_ISVTX},
};

/// Read permission.
pub const READ: u32 = 4;
/// Write permission.
pub const WRITE: u32 = 2;
/// Execute permission; of a directory, search.
pub const SEARCH: u32 = 1;

/// True if the caller is a member of `gid`.
pub fn in_group(caller: &Caller, gid: u32) -> bool {
    caller.gid == gid || caller.groups.contains(&gid)
}

/// True if no permission of the inode binds the caller.
pub fn is_superuser(caller: &Caller, inode: &Inode) -> bool {
    caller.uid == 0 && inode.guard.is_none()
}

/// True if the inode is the caller's. A guarded inode belongs to nobody who could call.
fn is_owner(caller: &Caller, inode: &Inode) -> bool {
    caller.uid == inode.uid && inode.guard.is_none()
}

/// What user 0 of a tenant's node may do with a guarded inode: what anybody may, and what any of the tenant's users and groups
/// may. The kernel of the node has permitted it for one of them, and does not say which.
fn guarded_bits(tenant: &TenantInfo, inode: &Inode) -> u32 {
    let group = |gid, bits: u32| if tenant.allows_group(gid) { bits } else { 0 };
    let Some(list) = &inode.acls.access else { return inode.mode & 7 | group(inode.gid, inode.mode >> 3 & 7) };
    let mask = list.bits(Tag::Mask).unwrap_or(7);
    let of = |(tag, bits): &(Tag, u32)| match tag {
        Tag::Group => group(inode.gid, bits & mask),
        Tag::NamedGroup(gid) => group(*gid, bits & mask),
        Tag::User(uid) if tenant.allows_user(*uid) => bits & mask,
        Tag::Others => *bits,
        _ => 0,
    };
    list.entries().iter().map(of).fold(0, |all, bits| all | bits)
}

/// Refuses (EACCES) unless `caller` has all of `wanted` on `inode`.
pub fn access(caller: &Caller, inode: &Inode, wanted: u32) -> Result<(), Errno> {
    if is_superuser(caller, inode) {
        return Ok(());
    }
    if let (0, Some(tenant)) = (caller.uid, &inode.guard) {
        let may = guarded_bits(tenant, inode) & wanted == wanted;
        return if may { Ok(()) } else { Err(Errno::EACCES) };
    }
    if let Some(list) = &inode.acls.access {
        return access_by_list(list, caller, inode, wanted);
    }
    let shift = if is_owner(caller, inode) {
        6
    } else if in_group(caller, inode.gid) {
        3
    } else {
        0
    };
    if inode.mode >> shift & wanted == wanted { Ok(()) } else { Err(Errno::EACCES) }
}

/// Refuses (EACCES) unless the list gives `caller`, not user 0, all of `wanted`.
fn access_by_list(list: &Acl, caller: &Caller, inode: &Inode, wanted: u32) -> Result<(), Errno> {
    let allowed = |bits: u32| if bits & wanted == wanted { Ok(()) } else { Err(Errno::EACCES) };
    let mask = list.bits(Tag::Mask).unwrap_or(7);
    if is_owner(caller, inode) {
        return allowed(list.bits(Tag::Owner).unwrap_or(0));
    }
    if let Some(bits) = list.bits(Tag::User(caller.uid)) {
        return allowed(bits & mask);
    }
    let of_group = |(tag, bits): &(Tag, u32)| match tag {
        Tag::Group => in_group(caller, inode.gid).then_some(*bits),
        Tag::NamedGroup(gid) => in_group(caller, *gid).then_some(*bits),
        _ => None,
    };
    let groups: Vec<u32> = list.entries().iter().filter_map(of_group).collect();
    if groups.is_empty() {
        return allowed(list.bits(Tag::Others).unwrap_or(0));
    }
    // Any one group that allows all of it does.
    let any = groups.iter().any(|bits| bits & mask & wanted == wanted);
    if any { Ok(()) } else { Err(Errno::EACCES) }
}

/// Refuses (EPERM) unless the caller owns the inode.
pub fn owner(caller: &Caller, inode: &Inode) -> Result<(), Errno> {
    if is_superuser(caller, inode) || is_owner(caller, inode) { Ok(()) } else { Err(Errno::EPERM) }
}

/// Refuses unless the caller may take `victim`'s name out of `dir`: write and search permission, and in a sticky
/// directory the ownership of either (EPERM).
pub fn remove(caller: &Caller, dir: &Inode, victim: &Inode) -> Result<(), Errno> {
    access(caller, dir, WRITE | SEARCH)?;
    let sticky = dir.mode & S_ISVTX != 0;
    if !sticky || is_superuser(caller, victim) || is_owner(caller, dir) || is_owner(caller, victim) {
        Ok(())
    } else {
        Err(Errno::EPERM)
    }
}

/// Mode and group of a new inode of `caller` in `dir`: a set-group-id directory passes on its group, and to directories
/// also the bit.
pub fn inherit(caller: &Caller, dir: &Inode, mode: u32) -> (u32, u32) {
    if dir.mode & S_ISGID == 0 {
        return (strip_setgid(caller, caller.gid, mode), caller.gid);
    }
    if mode & S_IFMT == S_IFDIR { (mode | S_ISGID, dir.gid) } else { (strip_setgid(caller, dir.gid, mode), dir.gid) }
}

/// Only a member of `gid` (or user 0) may make an executable that runs with that group.
fn strip_setgid(caller: &Caller, gid: u32, mode: u32) -> u32 {
    let runs_as_group = mode & (S_ISGID | 0o010) == S_ISGID | 0o010;
    let may = caller.uid == 0 || in_group(caller, gid);
    if mode & S_IFMT != S_IFDIR && runs_as_group && !may { mode & !S_ISGID } else { mode }
}

/// The permission bits after `caller` asked for `wanted` on a file that will belong to `gid`: a caller outside the
/// group loses set-group-id.
pub fn chmod(caller: &Caller, gid: u32, wanted: u32) -> u32 {
    let bits = wanted & 0o7777;
    if caller.uid == 0 || in_group(caller, gid) { bits } else { bits & !S_ISGID }
}

/// Refuses (EPERM) a change of owner or group that the caller may not make.
pub fn chown(caller: &Caller, inode: &Inode, uid: Option<u32>, gid: Option<u32>) -> Result<(), Errno> {
    if is_superuser(caller, inode) {
        return Ok(());
    }
    let same_owner = uid.is_none_or(|uid| uid == inode.uid);
    let own_group = gid.is_none_or(|gid| gid == inode.gid || in_group(caller, gid));
    if is_owner(caller, inode) && same_owner && own_group { Ok(()) } else { Err(Errno::EPERM) }
}

/// The mode of a regular file after a change of owner, or after a write by a user other than 0. It loses set-user-id,
/// and an executable loses set-group-id.
pub fn drop_set_ids(mode: u32) -> u32 {
    if mode & S_IFMT != S_IFREG {
        return mode;
    }
    let setgid = if mode & 0o010 != 0 { S_ISGID } else { 0 };
    mode & !(S_ISUID | setgid)
}

#[cfg(test)]
mod tests {
    use forebay_proto::message::IdRange;

    use super::*;
    use crate::{
        acl::{Acls, tests::sample},
        inode::tests::plain_file,
    };

    fn user(uid: u32, groups: &[u32]) -> Caller {
        Caller { uid, gid: uid, groups: groups.to_vec() }
    }

    #[test]
    fn user_0_of_a_tenant_is_anybody_to_a_guarded_inode_and_a_member_of_the_tenants_groups() {
        let tenant = TenantInfo {
            name: "a".into(),
            path: "/a".into(),
            users: vec![IdRange { first: 1000, last: 1999 }],
            groups: vec![IdRange { first: 100, last: 100 }],
            squash_uid: 65_534,
            squash_gid: 65_534,
            flags: 0,
            expires_ns: 0,
        };
        let guarded = |mode, gid| Inode { guard: Some(tenant.clone().into()), ..inode(mode, 0, gid) };
        let root = user(0, &[0]);
        for (mode, gid, wanted, may) in [
            (0o700, 0, READ, false),
            (0o770, 0, READ, false),
            (0o750, 100, READ | SEARCH, true),
            (0o750, 100, WRITE, false),
            (0o704, 0, READ, true),
        ] {
            assert_eq!(access(&root, &guarded(mode, gid), wanted).is_ok(), may, "{mode:o} {gid} {wanted}");
        }
        assert!(owner(&root, &guarded(0o777, 0)).is_err() && chown(&root, &guarded(0o777, 0), Some(0), None).is_err());
        let dir = guarded(0o1777, 0);
        assert!(
            remove(&root, &dir, &guarded(0o666, 0)).is_err() && remove(&root, &dir, &inode(0o600, 1000, 0)).is_ok()
        );
    }

    fn inode(mode: u32, uid: u32, gid: u32) -> Inode {
        Inode { mode, uid, gid, ..plain_file() }
    }

    #[test]
    fn the_most_specific_class_decides_alone() {
        let file = inode(S_IFREG | 0o047, 1, 2);
        assert_eq!(
            access(&user(1, &[2]), &file, READ),
            Err(Errno::EACCES),
            "the owner has nothing, whatever others have"
        );
        assert_eq!(access(&user(3, &[2]), &file, READ), Ok(()));
        assert_eq!(access(&user(3, &[2]), &file, WRITE), Err(Errno::EACCES));
        assert_eq!(access(&user(9, &[]), &file, READ | WRITE | SEARCH), Ok(()));
        assert_eq!(access(&user(0, &[]), &file, READ | WRITE), Ok(()));
    }

    #[test]
    fn the_mask_bounds_the_named_and_the_groups_but_not_owner_and_others() {
        let acls = Acls { access: Some(sample()), default: None };
        let inode = Inode { acls, ..inode(S_IFREG | 0o650, 1, 2) };
        let allowed = |caller: &Caller, wanted| access(caller, &inode, wanted).is_ok();
        assert!(allowed(&user(1, &[]), 6) && !allowed(&user(1, &[9]), 1));
        assert!(allowed(&user(5, &[]), 5) && !allowed(&user(5, &[9]), 2), "a named user's entry decides alone");
        assert!(allowed(&user(7, &[9]), 5) && !allowed(&user(7, &[9]), 7), "group 9 is masked");
        assert!(allowed(&user(7, &[2]), 4) && !allowed(&user(7, &[2]), 1));
        assert!(allowed(&user(7, &[2, 9]), 5), "any group that allows it");
        assert!(!allowed(&user(8, &[]), 4));
    }

    #[test]
    fn a_sticky_directory_protects_names_of_others() {
        let (dir, theirs) = (inode(S_IFDIR | 0o1777, 0, 0), inode(S_IFREG | 0o666, 5, 5));
        assert_eq!(remove(&user(6, &[]), &dir, &theirs), Err(Errno::EPERM));
        assert_eq!(remove(&user(5, &[]), &dir, &theirs), Ok(()));
        assert_eq!(remove(&user(6, &[]), &inode(S_IFDIR | 0o1777, 6, 0), &theirs), Ok(()));
        assert_eq!(remove(&user(6, &[]), &inode(S_IFDIR | 0o755, 0, 0), &theirs), Err(Errno::EACCES));
    }

    #[test]
    fn a_setgid_directory_gives_its_group_and_to_directories_the_bit() {
        let dir = inode(S_IFDIR | S_ISGID | 0o775, 1, 50);
        assert_eq!(inherit(&user(7, &[50]), &dir, S_IFREG | 0o644), (S_IFREG | 0o644, 50));
        assert_eq!(inherit(&user(7, &[50]), &dir, S_IFDIR | 0o755), (S_IFDIR | S_ISGID | 0o755, 50));
        let executable = S_IFREG | S_ISGID | 0o755;
        assert_eq!(inherit(&user(7, &[]), &dir, executable), (S_IFREG | 0o755, 50));
        assert_eq!(inherit(&user(7, &[50]), &dir, executable), (executable, 50));
    }

    #[test]
    fn only_user_0_gives_files_away_and_owners_stay_within_their_groups() {
        let file = inode(S_IFREG | 0o644, 1, 1);
        assert_eq!(chown(&user(1, &[]), &file, Some(2), None), Err(Errno::EPERM));
        assert_eq!(chown(&user(1, &[8]), &file, Some(1), Some(8)), Ok(()));
        assert_eq!(chown(&user(1, &[]), &file, None, Some(8)), Err(Errno::EPERM));
        assert_eq!(chown(&user(2, &[8]), &file, None, Some(8)), Err(Errno::EPERM));
        assert_eq!(chown(&user(0, &[]), &file, Some(2), Some(3)), Ok(()));
    }

    #[test]
    fn set_ids_go_with_a_change_of_owner_but_mandatory_locking_stays() {
        assert_eq!(drop_set_ids(S_IFREG | 0o6755), S_IFREG | 0o755);
        assert_eq!(drop_set_ids(S_IFREG | 0o6745), S_IFREG | 0o2745);
        assert_eq!(drop_set_ids(S_IFDIR | 0o6755), S_IFDIR | 0o6755);
    }
}
