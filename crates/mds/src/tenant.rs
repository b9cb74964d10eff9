//! What the nodes of a tenant may do: a node's word about its users counts only within its tenant.
//!
//! A tenant has one subtree. All inodes in it have the tenant's project, a number; so a file handle, `..`, a symbolic link
//! or a guessed fid lead to nothing else (`Tx::find_inode`).
//!
//! A node of a tenant acts as some users and groups; everybody else on it is squashed. User 0 is a case of its own: the
//! kernel of an honest node checks permissions and sends what it has permitted as user 0, and a dishonest node can name
//! any user that it is allowed. So user 0 has the rights of all allowed users together, and no more: an inode of another
//! owner is *guarded*: user 0 has what anybody has to it, and what the tenant's groups have.
//!
//! A tenant may have *id maps*: then its hosts' ids are not those of the file system. A request is translated before it is
//! looked at (`membership/confine.rs`), and attributes when a reply shows them (`Tx::attr`). Everything else here, the
//! squashed users too, is in the file system's ids. The maps never change, so a replay is translated as at first.

use std::rc::Rc;

use forebay_env::{Bug, planted};
use forebay_proto::{
    Errno, ErrorReply, Fid,
    message::{Attr, Caller, IdMap, IdMaps, IdRange, SetAttr, TenantInfo, UNMAPPED_ID, set_attr, tenant_flags},
};

use crate::{
    acl::{Acl, Tag},
    inode::{Inode, S_ISGID},
};

/// A tenant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tenant {
    /// The project of all inodes in its subtree.
    pub project: u32,
    /// Its highest directory.
    pub root: Fid,
    /// Its description.
    pub info: Rc<TenantInfo>,
    /// Its hosts' ids.
    pub maps: Rc<IdMaps>,
}

impl Tenant {
    /// True if its nodes may change nothing.
    pub fn is_read_only(&self) -> bool {
        self.info.flags & tenant_flags::READ_ONLY != 0
    }

    /// True if user 0 of its nodes is user 0 in the subtree.
    pub fn has_root(&self) -> bool {
        self.info.flags & tenant_flags::ROOT != 0
    }

    /// True if its time is over.
    pub fn has_expired(&self, now_ns: i64) -> bool {
        self.info.expires_ns != 0 && self.info.expires_ns <= now_ns
    }

    /// Who acts, when a node says that this one does. User 0 stays, and is held to what allowed users may do.
    pub fn squash(&self, caller: &Caller) -> Caller {
        if planted(Bug::TenantsUserBelieved) {
            return caller.clone();
        }
        match caller.uid {
            0 => {
                let of_group = |gid: &u32| self.info.allows_group(*gid);
                let gid = if of_group(&caller.gid) { caller.gid } else { self.info.squash_gid };
                Caller { uid: 0, gid, groups: caller.groups.iter().copied().filter(|gid| of_group(gid)).collect() }
            }
            _ => self.info.squash(caller),
        }
    }

    /// The user of the file system that a host's user stands for. `None`: it has no mapping.
    fn user(&self, uid: u32) -> Option<u32> {
        self.to_fs(&self.maps.users, uid)
    }

    fn group(&self, gid: u32) -> Option<u32> {
        self.to_fs(&self.maps.groups, gid)
    }

    fn to_fs(&self, maps: &[IdMap], id: u32) -> Option<u32> {
        match self.is_same(maps, id) {
            true => Some(id),
            false => maps.iter().find_map(|map| map.to_fs(id)),
        }
    }

    /// What a host is shown.
    fn to_host(&self, maps: &[IdMap], id: u32) -> u32 {
        match self.is_same(maps, id) {
            true => id,
            false => maps.iter().find_map(|map| map.to_host(id)).unwrap_or(UNMAPPED_ID),
        }
    }

    fn is_same(&self, maps: &[IdMap], id: u32) -> bool {
        maps.is_empty() || id == 0 && self.has_root()
    }

    /// Who acts, in the file system's ids, when a node names one of its own. Who has no mapping is squashed. User 0 stays
    /// user 0, as for [`Tenant::squash`].
    pub fn translate(&self, caller: &Caller) -> Caller {
        let gid = self.group(caller.gid).unwrap_or(self.info.squash_gid);
        let groups = || caller.groups.iter().filter_map(|gid| self.group(*gid)).collect();
        match caller.uid {
            0 => Caller { uid: 0, gid, groups: groups() },
            uid => match self.user(uid) {
                Some(uid) => Caller { uid, gid, groups: groups() },
                None => Caller { uid: self.info.squash_uid, gid: self.info.squash_gid, groups: Vec::new() },
            },
        }
    }

    /// Puts the file system's ids for the owner and group that a node wants to set. Errors: EINVAL if one has no
    /// mapping, as in a user namespace: what is meant does not exist, whoever asks.
    pub fn translate_owner(&self, request: &mut SetAttr) -> Result<(), ErrorReply> {
        if request.mask & set_attr::UID != 0 {
            request.uid = self.user(request.uid).ok_or_else(|| self.unmapped("user", request.uid))?;
        }
        if request.mask & set_attr::GID != 0 {
            request.gid = self.group(request.gid).ok_or_else(|| self.unmapped("group", request.gid))?;
        }
        Ok(())
    }

    /// The access control list that a node wants to set, in the file system's ids. Errors: EINVAL, as
    /// [`Tenant::translate_owner`].
    pub fn translate_acl(&self, list: &Acl) -> Result<Acl, ErrorReply> {
        list.with_tags(|tag| {
            Ok(match tag {
                Tag::User(uid) => Tag::User(self.user(uid).ok_or_else(|| self.unmapped("user", uid))?),
                Tag::NamedGroup(gid) => Tag::NamedGroup(self.group(gid).ok_or_else(|| self.unmapped("group", gid))?),
                tag => tag,
            })
        })
    }

    fn unmapped(&self, what: &str, id: u32) -> ErrorReply {
        let words =
            format!("tenant {} has no mapping for {what} {id}: `forebay tenant list` shows its maps", self.info.name);
        ErrorReply::new(Errno::EINVAL, words)
    }

    /// Puts the node's ids for owner and group.
    pub fn show(&self, attr: &mut Attr) {
        attr.uid = self.to_host(&self.maps.users, attr.uid);
        attr.gid = self.to_host(&self.maps.groups, attr.gid);
    }

    /// An access control list in the node's ids.
    pub fn show_acl(&self, list: &Acl) -> Acl {
        let shown = list.with_tags(|tag| {
            Ok::<_, std::convert::Infallible>(match tag {
                Tag::User(uid) => Tag::User(self.to_host(&self.maps.users, uid)),
                Tag::NamedGroup(gid) => Tag::NamedGroup(self.to_host(&self.maps.groups, gid)),
                tag => tag,
            })
        });
        match shown {
            Ok(list) => list,
            Err(never) => match never {},
        }
    }

    /// The description in the node's ids. By it a client knows what the MDT could refuse.
    pub fn shown(&self) -> TenantInfo {
        let info = &*self.info;
        if self.maps.is_empty() {
            return info.clone();
        }
        TenantInfo {
            users: shown_ranges(&self.maps.users, &info.users),
            groups: shown_ranges(&self.maps.groups, &info.groups),
            squash_uid: self.to_host(&self.maps.users, info.squash_uid),
            squash_gid: self.to_host(&self.maps.groups, info.squash_gid),
            flags: info.flags | tenant_flags::MAPPED,
            ..info.clone()
        }
    }

    /// Errors: ESTALE if the inode is not in the subtree, as if it did not exist.
    pub fn check_reaches(&self, inode: &Inode) -> Result<(), ErrorReply> {
        if self.project == inode.project || planted(Bug::TenantNotConfined) {
            return Ok(());
        }
        Err(Errno::ESTALE.into())
    }

    /// The description, if user 0 of its nodes is anybody to the inode.
    pub fn guard(&self, inode: &Inode) -> Option<Rc<TenantInfo>> {
        (self.info.guards(inode.uid) && !planted(Bug::TenantsUserBelieved)).then(|| self.info.clone())
    }

    /// Errors: EPERM if user 0 of its nodes would give a file to somebody whom the tenant does not have.
    pub fn check_owner(&self, inode: &Inode, uid: Option<u32>, gid: Option<u32>) -> Result<(), Errno> {
        let is_user = uid.is_none_or(|uid| uid == inode.uid || self.info.allows_user(uid));
        let is_group = gid.is_none_or(|gid| gid == inode.gid || self.info.allows_group(gid));
        if is_user && is_group { Ok(()) } else { Err(Errno::EPERM) }
    }

    /// The permission bits without set-group-id, if the tenant does not have that group.
    pub fn strip_setgid(&self, gid: u32, bits: u32) -> u32 {
        if self.info.allows_group(gid) { bits } else { bits & !S_ISGID }
    }
}

/// The ids of hosts that stand for one of `ranges`.
fn shown_ranges(maps: &[IdMap], ranges: &[IdRange]) -> Vec<IdRange> {
    if maps.is_empty() {
        return ranges.to_vec();
    }
    let common = |map: &IdMap, range: &IdRange| {
        let last = map.fs.saturating_add(map.count.saturating_sub(1));
        let (first, last) = (map.fs.max(range.first), last.min(range.last));
        Some(IdRange { first: map.to_host(first)?, last: map.to_host(last)? }).filter(|_| first <= last)
    };
    maps.iter().flat_map(|map| ranges.iter().filter_map(move |range| common(map, range))).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::inode::tests::plain_file;

    /// Users 1000 to 1099 and 7, groups 500 to 549 of the hosts are 70000 to 70099, 1999 and 100 to 149.
    pub(crate) fn mapped(flags: u32) -> Tenant {
        let map = |host, fs, count| IdMap { host, fs, count };
        let range = |first, last| IdRange { first, last };
        let maps = IdMaps { users: vec![map(1000, 70_000, 100), map(7, 1999, 1)], groups: vec![map(500, 100, 50)] };
        let (users, groups) = (vec![range(70_000, 70_049), range(1999, 1999)], vec![range(100, 149)]);
        let plain = tenant(flags);
        let info = TenantInfo { users, groups, ..(*plain.info).clone() };
        Tenant { info: Rc::new(info), maps: Rc::new(maps), ..plain }
    }

    #[test]
    fn a_caller_becomes_the_user_of_the_map_and_is_squashed_without_a_mapping() {
        let tenant = mapped(0);
        let acts = |uid, gid, groups: &[u32]| tenant.squash(&tenant.translate(&caller(uid, gid, groups)));
        assert_eq!(acts(1007, 501, &[500, 999, 549]), caller(70_007, 101, &[100, 149]));
        assert_eq!(acts(7, 100, &[]), caller(1999, 65_533, &[]), "group 100 of the host is not group 100");
        assert_eq!(acts(70_007, 501, &[500]), caller(65_534, 65_533, &[]), "ids of the file system mean nothing there");
        assert_eq!(acts(1060, 501, &[500]), caller(65_534, 65_533, &[]), "mapped, and not one of the tenant's users");
        assert_eq!(acts(0, 501, &[0, 500]), caller(0, 101, &[100]), "user 0 is a case of its own");
        let plain = tenant_without_maps();
        assert_eq!(plain.translate(&caller(5, 6, &[7])), caller(5, 6, &[7]));
    }

    #[test]
    fn an_owner_to_set_needs_a_mapping_and_what_is_shown_leads_back() {
        let tenant = mapped(0);
        let request = |mask, uid, gid| SetAttr {
            caller: caller(0, 0, &[]),
            fid: Fid::ROOT,
            mask,
            mode: 0,
            uid,
            gid,
            size: 0,
            atime_ns: 0,
            mtime_ns: 0,
            handle: 0,
            at_ns: 0,
        };
        let set = |tenant: &Tenant, mut request: SetAttr| match tenant.translate_owner(&mut request) {
            Ok(()) => Ok((request.uid, request.gid)),
            Err(error) => Err(error.errno),
        };
        let both = set_attr::UID | set_attr::GID;
        assert_eq!(set(&tenant, request(both, 1007, 501)), Ok((70_007, 101)));
        assert_eq!(set(&tenant, request(set_attr::UID, 1007, 9)), Ok((70_007, 9)), "the group is not set");
        for (uid, gid) in [(70_007, 501), (1007, 101), (0, 501), (65_534, 501), (u32::MAX, 501)] {
            assert_eq!(set(&tenant, request(both, uid, gid)), Err(Errno::EINVAL), "{uid}:{gid}");
        }
        assert_eq!(set(&mapped(tenant_flags::ROOT), request(both, 0, 0)), Ok((0, 0)));
        let shown = |tenant: &Tenant, uid, gid| {
            let mut attr = crate::inode::Inode { uid, gid, ..plain_file() }.attr(Fid::ROOT, 0);
            tenant.show(&mut attr);
            (attr.uid, attr.gid)
        };
        assert_eq!(shown(&tenant, 70_007, 101), (1007, 501));
        assert_eq!(shown(&tenant, 1007, 501), (UNMAPPED_ID, UNMAPPED_ID), "others of the file system");
        assert_eq!(shown(&tenant, 0, 0), (UNMAPPED_ID, UNMAPPED_ID));
        assert_eq!(shown(&mapped(tenant_flags::ROOT), 0, 0), (0, 0));
        assert_eq!(shown(&tenant_without_maps(), 5, 6), (5, 6));
    }

    #[test]
    fn access_control_lists_are_translated_both_ways() {
        let tenant = mapped(0);
        let list = |user: u32, group: u32| {
            crate::acl::tests::sample()
                .with_tags(|tag| {
                    Ok::<_, ()>(match tag {
                        Tag::User(_) => Tag::User(user),
                        Tag::NamedGroup(_) => Tag::NamedGroup(group),
                        tag => tag,
                    })
                })
                .expect("a list")
        };
        assert_eq!(tenant.translate_acl(&list(1007, 501)), Ok(list(70_007, 101)));
        assert_eq!(tenant.show_acl(&list(70_007, 101)), list(1007, 501));
        assert_eq!(tenant.show_acl(&list(5, 9)), list(UNMAPPED_ID, UNMAPPED_ID));
        for unmapped in [list(70_007, 501), list(1007, 101), list(UNMAPPED_ID, 501)] {
            assert_eq!(tenant.translate_acl(&unmapped).expect_err("no mapping").errno, Errno::EINVAL);
        }
    }

    #[test]
    fn a_client_knows_in_its_own_ids_whom_the_mdt_guards() {
        let range = |first, last| IdRange { first, last };
        let shown = mapped(0).shown();
        assert_eq!(
            (&shown.users[..], &shown.groups[..]),
            (&[range(1000, 1049), range(7, 7)][..], &[range(500, 549)][..])
        );
        assert_eq!((shown.squash_uid, shown.squash_gid), (UNMAPPED_ID, UNMAPPED_ID));
        assert_eq!(shown.squash(&caller(0, 0, &[])), caller(UNMAPPED_ID, UNMAPPED_ID, &[]));
        let all = [0, 5, 1007, 1060, 7, 65_534];
        let guarded: Vec<u32> = all.into_iter().filter(|uid| shown.guards(*uid)).collect();
        // Of 65534 the client cannot tell whether it was squashed or has no mapping.
        assert_eq!(guarded, [0, 5, 1060, 65_534]);
        assert_eq!(tenant(0).shown(), *tenant(0).info);
    }

    fn tenant_without_maps() -> Tenant {
        tenant(0)
    }

    fn tenant(flags: u32) -> Tenant {
        let range = |first, last| IdRange { first, last };
        let info = TenantInfo {
            name: "a".into(),
            path: "/a".into(),
            users: vec![range(1000, 1999), range(7, 7)],
            groups: vec![range(100, 200)],
            squash_uid: 65_534,
            squash_gid: 65_533,
            flags,
            expires_ns: 5,
        };
        Tenant { project: 3, root: Fid { high: 0, low: 9 }, info: Rc::new(info), maps: Rc::default() }
    }

    fn caller(uid: u32, gid: u32, groups: &[u32]) -> Caller {
        Caller { uid, gid, groups: groups.to_vec() }
    }

    #[test]
    fn users_and_groups_outside_of_the_ranges_are_squashed() {
        let tenant = tenant(0);
        let allowed = caller(1000, 100, &[150]);
        assert_eq!(tenant.squash(&allowed), allowed);
        assert_eq!(tenant.squash(&caller(999, 100, &[150])), caller(65_534, 65_533, &[]));
        assert_eq!(tenant.squash(&caller(7, 0, &[0, 150, 201])), caller(7, 65_533, &[150]));
        assert_eq!(tenant.squash(&caller(0, 0, &[0, 150])), caller(0, 65_533, &[150]));
        assert_eq!(tenant.info.squash(&caller(0, 0, &[])).uid, 65_534, "what user 0 makes is nobody's");
    }

    #[test]
    fn user_0_has_the_rights_of_the_allowed_users_and_no_more() {
        let inode = |uid| crate::inode::Inode { uid, ..plain_file() };
        let squashing = tenant(0);
        assert!(squashing.guard(&inode(1500)).is_none() && squashing.guard(&inode(65_534)).is_none());
        assert!(squashing.guard(&inode(0)).is_some() && squashing.guard(&inode(2000)).is_some());
        assert!(tenant(tenant_flags::ROOT).guard(&inode(0)).is_none());
        let own = inode(1500);
        assert_eq!(squashing.check_owner(&own, Some(1600), Some(150)), Ok(()));
        assert_eq!(squashing.check_owner(&own, Some(1500), Some(own.gid)), Ok(()), "as it is");
        assert!(
            [(Some(0), None), (None, Some(0)), (Some(5), None)]
                .into_iter()
                .all(|(uid, gid)| squashing.check_owner(&own, uid, gid).is_err())
        );
        assert_eq!((squashing.strip_setgid(150, 0o2755), squashing.strip_setgid(0, 0o2755)), (0o2755, 0o755));
    }

    #[test]
    fn a_tenant_reaches_its_project_until_its_time_is_over() {
        let tenant = tenant(tenant_flags::READ_ONLY);
        let inode = |project| crate::inode::Inode { project, ..plain_file() };
        assert_eq!(tenant.check_reaches(&inode(3)), Ok(()));
        assert!(tenant.check_reaches(&inode(0)).is_err() && tenant.check_reaches(&inode(4)).is_err());
        assert!(!tenant.has_expired(4) && tenant.has_expired(5) && tenant.is_read_only());
    }
}
