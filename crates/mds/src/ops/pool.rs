//! Pools: named sets of OSTs. They are part of the placement table, which determines the layouts of new files.
//!
//! Order: a changed table is committed before the first create uses it, as when weights change (`background::poll`).

use forebay_proto::{
    Errno, ErrorReply,
    message::{Empty, Pool, PoolsReply, SetPool, pool_change},
};

use crate::{
    halt::{Halt, Step},
    keys,
    keys::Key,
    limits,
    placement::{Table, check_pool_name},
    tx::Tx,
};

/// Rows worth prefetching together.
pub fn keys(_request: &SetPool) -> [Key; 0] {
    []
}

/// Errors: EPERM, EEXIST, ENOENT, EINVAL for an unknown OST, ENOTEMPTY for a pool that still has OSTs.
pub fn set(tx: &mut Tx<'_>, request: &SetPool) -> Step<Empty> {
    if tx.memory.placing && !tx.origin.is_replay {
        return Err(Halt::Placing);
    }
    if request.caller.uid != 0 {
        return Err(ErrorReply::new(Errno::EPERM, "pools are changed by user 0").into());
    }
    let mut table = tx.memory.placement.newest_table().cloned().unwrap_or_default();
    change(&mut table, request)?;
    let from = tx.origin.transno;
    tx.put_with(keys::placement(from), |out| out.extend_from_slice(&table.encode()));
    tx.effects.table = Some((from, table));
    Ok(Empty {})
}

fn change(table: &mut Table, request: &SetPool) -> Result<(), ErrorReply> {
    check_pool_name(&request.name)?;
    if let Some(stranger) = request.osts.iter().find(|ost| !table.weights.contains_key(ost)) {
        return refuse(Errno::EINVAL, format!("there is no OST with index {stranger}; see `forebay status`"));
    }
    let name = &request.name;
    if request.change == pool_change::NEW {
        if table.pools.len() >= limits::POOLS {
            return refuse(Errno::ENOSPC, format!("there are {} pools, and no more can be", limits::POOLS));
        }
        if table.pools.insert(name.clone(), request.osts.iter().copied().collect()).is_some() {
            return refuse(Errno::EEXIST, format!("there is a pool named '{name}' already"));
        }
        return Ok(());
    }
    let Some(members) = table.pools.get_mut(name) else {
        return refuse(Errno::ENOENT, format!("there is no pool named '{name}'"));
    };
    match request.change {
        pool_change::ADD => members.extend(&request.osts),
        pool_change::REMOVE => {
            if let Some(stranger) = request.osts.iter().find(|ost| !members.contains(ost)) {
                return refuse(Errno::EINVAL, format!("OST{stranger:04x} is not in pool '{name}'"));
            }
            members.retain(|ost| !request.osts.contains(ost));
        }
        pool_change::DESTROY if members.is_empty() => drop(table.pools.remove(name)),
        pool_change::DESTROY => return refuse(Errno::ENOTEMPTY, format!("pool '{name}' has OSTs: remove them first")),
        other => return refuse(Errno::EINVAL, format!("{other} is no change of a pool")),
    }
    Ok(())
}

fn refuse(errno: Errno, words: String) -> Result<(), ErrorReply> {
    Err(ErrorReply::new(errno, words))
}

/// All pools, and all OSTs.
pub fn list(table: Option<&Table>) -> PoolsReply {
    let table = table.cloned().unwrap_or_default();
    let pool =
        |(name, osts): (String, std::collections::BTreeSet<u32>)| Pool { name, osts: osts.into_iter().collect() };
    PoolsReply { osts: table.weights.into_keys().collect(), pools: table.pools.into_iter().map(pool).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{World, root, user};

    fn request(name: &str, change: u32, osts: &[u32]) -> SetPool {
        SetPool { caller: root(), name: name.into(), change, osts: osts.to_vec() }
    }

    /// Does what the server does once the table is committed.
    fn run(world: &mut World, request: SetPool) {
        world.run(|tx| set(tx, &request));
        let (from, table) = world.effects.table.take().unwrap();
        world.memory.placement.push(from, &table);
    }

    #[test]
    fn pools_come_change_and_go() {
        let mut world = World::new();
        run(&mut world, request("fast", pool_change::NEW, &[]));
        run(&mut world, request("fast", pool_change::ADD, &[2, 0]));
        let reply = list(world.memory.placement.newest_table());
        assert_eq!(reply.osts, [0, 1, 2]);
        assert_eq!(reply.pools, [Pool { name: "fast".into(), osts: vec![0, 2] }]);
        assert_eq!(world.errno(|tx| set(tx, &request("fast", pool_change::DESTROY, &[]))), Errno::ENOTEMPTY);
        run(&mut world, request("fast", pool_change::REMOVE, &[0, 2]));
        run(&mut world, request("fast", pool_change::DESTROY, &[]));
        assert_eq!(list(world.memory.placement.newest_table()).pools, []);
    }

    #[test]
    fn invalid_changes_of_pools_are_refused() {
        let mut world = World::new();
        run(&mut world, request("fast", pool_change::NEW, &[1]));
        let cases = [
            (request("fast", pool_change::NEW, &[]), Errno::EEXIST),
            (request("slow", pool_change::ADD, &[1]), Errno::ENOENT),
            (request("fast", pool_change::ADD, &[9]), Errno::EINVAL),
            (request("fast", pool_change::REMOVE, &[0]), Errno::EINVAL),
            (request("no way", pool_change::NEW, &[]), Errno::EINVAL),
            (SetPool { caller: user(7), ..request("x", pool_change::NEW, &[]) }, Errno::EPERM),
        ];
        for (request, errno) in cases {
            assert_eq!(world.errno(|tx| set(tx, &request)), errno, "{request:?}");
        }
    }
}
