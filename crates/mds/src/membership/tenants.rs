//! Tenants and the keys of capabilities, pure: what a request about them changes, as rows.

use std::rc::Rc;

use forebay_keys::{CapabilityKey, PublicKey};
use forebay_proto::{
    Errno, ErrorReply, Fid,
    message::{IdMaps, ListIdMapsReply, ListTenantsReply, TenantInfo, TenantMaps},
};

use super::{
    members::{Edits, Members},
    rows::{self, SigningRow, TenantRow},
};
use crate::{limits, tenant::Tenant};

impl Members {
    /// The tenant of the node with this key. `None`: it has none, and is the admin's own.
    pub fn tenant_of(&self, node: &PublicKey) -> Option<Tenant> {
        let project = *self.tenancies.get(&node.0)?;
        let row = self.tenants.get(&project);
        // A node without its tenant's row reaches nothing: no inode has this project.
        let none = || TenantRow { root: Fid::default(), exists: false, tenant: nobody(), maps: IdMaps::default() };
        let row = row.cloned().unwrap_or_else(none);
        Some(Tenant { project, root: row.root, info: Rc::new(row.tenant), maps: Rc::new(row.maps) })
    }

    pub(super) fn tenant_name(&self, key_or_hash: &[u8; 32]) -> String {
        let project = self.tenancies.get(key_or_hash);
        project.and_then(|project| self.tenants.get(project)).map_or_else(String::new, |row| row.tenant.name.clone())
    }

    pub(super) fn tenant_called(&self, name: &str) -> Result<(u32, &TenantRow), ErrorReply> {
        let mut found = self.tenants.iter().filter(|(_, row)| row.exists && row.tenant.name == name);
        found.next().map(|(project, row)| (*project, row)).ok_or_else(|| {
            let words = format!("no tenant is called {name}: `forebay tenant list` shows them");
            ErrorReply::new(Errno::ENOENT, words)
        })
    }

    /// The project of the next tenant. Errors: the tenant's description is wrong, or there are too many.
    pub fn next_project(&self, tenant: &TenantInfo) -> Result<u32, ErrorReply> {
        let wrong = |words: String| Err(ErrorReply::new(Errno::EINVAL, words));
        let is_part = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        if tenant.name.is_empty() || tenant.name.len() > limits::TENANT_NAME || !tenant.name.bytes().all(is_part) {
            return wrong(format!(
                "a tenant's name has 1 to {} small letters, digits and hyphens",
                limits::TENANT_NAME
            ));
        }
        if self.tenant_called(&tenant.name).is_ok() {
            let words = format!("there is a tenant called {} already", tenant.name);
            return Err(ErrorReply::new(Errno::EEXIST, words));
        }
        let ranges = || tenant.users.iter().chain(&tenant.groups);
        if let Some(range) = ranges().find(|range| range.first > range.last) {
            return wrong(format!("{}-{} holds no id: the first comes first", range.first, range.last));
        }
        if ranges().count() > limits::TENANT_RANGES || self.tenants.len() >= limits::TENANTS {
            let (ranges, tenants) = (limits::TENANT_RANGES, limits::TENANTS);
            return wrong(format!("a tenant has at most {ranges} ranges of ids, and a cluster {tenants} tenants"));
        }
        if tenant.squash_uid == 0 || tenant.squash_gid == 0 {
            return wrong("who is squashed cannot be user or group 0".into());
        }
        Ok(self.tenants.keys().last().map_or(1, |last| last + 1))
    }

    /// A tenant whose highest directory is `root`, or one that is about to be.
    pub fn new_tenant(
        &self,
        project: u32,
        (root, exists): (Fid, bool),
        (tenant, maps): (&TenantInfo, &IdMaps),
    ) -> Edits {
        let mut edits = Edits::default();
        edits.set_tenant(project, &TenantRow { root, exists, tenant: tenant.clone(), maps: maps.clone() });
        edits
    }

    /// Removes a tenant without nodes.
    pub fn remove_tenant(&self, name: &str) -> Result<Edits, ErrorReply> {
        let (project, row) = self.tenant_called(name)?;
        if self.tenancies.values().any(|of| *of == project) {
            let words = format!(
                "tenant {name} has nodes, or tokens that nobody has used: `forebay node list` shows them, `forebay node \
                 remove` removes a node"
            );
            return Err(ErrorReply::new(Errno::EBUSY, words));
        }
        let mut edits = Edits::default();
        edits.set_tenant(project, &TenantRow { exists: false, ..row.clone() });
        Ok(edits)
    }

    /// All tenants, for a person.
    pub fn list_tenants(&self) -> ListTenantsReply {
        let mut tenants: Vec<TenantInfo> =
            self.tenants.values().filter(|row| row.exists).map(|row| row.tenant.clone()).collect();
        tenants.sort_by(|one, two| one.name.cmp(&two.name));
        ListTenantsReply { tenants }
    }

    /// The id maps of the tenants that have some.
    pub fn list_id_maps(&self) -> ListIdMapsReply {
        let mapped = self.tenants.values().filter(|row| row.exists && !row.maps.is_empty());
        let mut tenants: Vec<TenantMaps> =
            mapped.map(|row| TenantMaps { name: row.tenant.name.clone(), maps: row.maps.clone() }).collect();
        tenants.sort_by(|one, two| one.name.cmp(&two.name));
        ListIdMapsReply { tenants }
    }

    /// The first key for capabilities, or the next one if the one in use has been for `life`.
    pub fn next_signing(&self, now_ns: i64, life: std::time::Duration) -> Option<Edits> {
        let next = match &self.signing {
            None => SigningRow {
                master: CapabilityKey::random_master().to_vec().into(),
                // The one before it has a number too, and 0 is none.
                number: 2,
                since_ns: now_ns,
            },
            // Clocks jump, both ways.
            Some(row) if u128::from(row.since_ns.abs_diff(now_ns)) >= life.as_nanos() => {
                SigningRow { number: row.number.checked_add(1)?, since_ns: now_ns, ..row.clone() }
            }
            Some(_) => return None,
        };
        let mut edits = Edits::default();
        edits.set(rows::signing(), &next);
        Some(edits)
    }

    /// The key in use.
    pub fn signing_key(&self) -> Option<CapabilityKey> {
        self.numbered_key(0)
    }

    /// The keys that OSTs take: the one in use, the one before and the one after it.
    pub fn signing_keys(&self) -> Option<[CapabilityKey; 3]> {
        Some([self.numbered_key(-1)?, self.numbered_key(0)?, self.numbered_key(1)?])
    }

    fn numbered_key(&self, from_now: i32) -> Option<CapabilityKey> {
        let row = self.signing.as_ref()?;
        let master = row.master[..].try_into().ok()?;
        Some(CapabilityKey::derive(&master, row.number.checked_add_signed(from_now)?))
    }
}

fn nobody() -> TenantInfo {
    let (users, groups) = (Vec::new(), Vec::new());
    let (squash_uid, squash_gid) = (limits::SQUASHED, limits::SQUASHED);
    TenantInfo { name: "?".into(), path: "?".into(), users, groups, squash_uid, squash_gid, flags: 0, expires_ns: 1 }
}

#[cfg(test)]
#[path = "tenants/tests.rs"]
mod tests;
