//! Id maps of a tenant: which ids of its hosts stand for which ids of the file system.

use super::TenantInfo;
use crate::wire_struct;

/// Owner or group that a tenant's host is shown for an id without a mapping.
pub const UNMAPPED_ID: u32 = 65_534;

wire_struct! {
    /// Consecutive ids of a tenant's hosts, and the ids of the file system that they stand for.
    pub struct IdMap {
        /// The first id on the hosts.
        pub host: u32,
        /// The id of the file system that it stands for.
        pub fs: u32,
        /// How many ids.
        pub count: u32,
    }
}

impl IdMap {
    /// The file system's id of a host's id. `None`: it is not in this range.
    pub fn to_fs(&self, id: u32) -> Option<u32> {
        moved(id, self.host, self.fs, self.count)
    }

    /// The host's id of a file system's id. `None`: it is not in this range.
    pub fn to_host(&self, id: u32) -> Option<u32> {
        moved(id, self.fs, self.host, self.count)
    }
}

fn moved(id: u32, from: u32, to: u32, count: u32) -> Option<u32> {
    let at = id.checked_sub(from).filter(|at| *at < count)?;
    to.checked_add(at)
}

wire_struct! {
    /// The id maps of a tenant. Where a list is empty, ids are the same on its hosts and in the file system.
    #[derive(Default)]
    pub struct IdMaps {
        /// Of users.
        pub users: Vec<IdMap>,
        /// Of groups.
        pub groups: Vec<IdMap>,
    }
}

impl IdMaps {
    /// True if all ids are the same on the tenant's hosts and in the file system.
    pub fn is_empty(&self) -> bool {
        self.users.is_empty() && self.groups.is_empty()
    }
}

wire_struct! {
    /// Makes a tenant with id maps. A server that knows none refuses it, and does not make the tenant without them.
    pub struct NewMappedTenant {
        /// The tenant. Its ids are those of the file system. Without users, or groups, it has those of the map.
        pub tenant: TenantInfo,
        /// Its id maps.
        pub maps: IdMaps,
    }
}

wire_struct! {
    /// Asks for the id maps of all tenants.
    pub struct ListIdMaps {}
}

wire_struct! {
    /// The id maps of tenants that have some, ordered by name.
    pub struct ListIdMapsReply {
        /// All of them.
        pub tenants: Vec<TenantMaps>,
    }
}

wire_struct! {
    /// The id maps of one tenant.
    pub struct TenantMaps {
        /// The tenant's name.
        pub name: String,
        /// Its id maps.
        pub maps: IdMaps,
    }
}
