//! What the nodes of a tenant may do: a node's word about its users counts only within its tenant.
//!
//! A tenant has one subtree. All inodes in it have the tenant's project, a number; so a file handle, `..`, a symbolic link
//! or a guessed fid lead to nothing else (`Tx::find_inode`).
//!
//! A node of a tenant acts as some users and groups; everybody else on it is squashed. User 0 is a case of its own: the
//! kernel of an honest node checks permissions and sends what it has permitted as user 0, and a dishonest node can name
//! any user that it is allowed. So user 0 has the rights of all allowed users together, and no more: an inode of another
//! owner is *guarded*: user 0 has what anybody has to it, and what the tenant's groups have.

use std::rc::Rc;

use forebay_env::{Bug, planted};
use forebay_proto::{
    Errno, ErrorReply, Fid,
    message::{Caller, TenantInfo, tenant_flags},
};

use crate::inode::{Inode, S_ISGID};

/// A tenant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tenant {
    /// The project of all inodes in its subtree.
    pub project: u32,
    /// Its highest directory.
    pub root: Fid,
    /// Its description.
    pub info: Rc<TenantInfo>,
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

#[cfg(test)]
mod tests {
    use forebay_proto::message::IdRange;

    use super::*;
    use crate::inode::tests::plain_file;

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
        Tenant { project: 3, root: Fid { high: 0, low: 9 }, info: Rc::new(info) }
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
