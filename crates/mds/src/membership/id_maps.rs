//! Which id maps a new tenant may have. Pure.
//!
//! Invariant: each id of a host stands for at most one of the file system, and the other way round, so what a host is shown
//! leads back to the same id.
//! Invariant: the users and groups of a tenant with a map are within that map.

use forebay_proto::{
    Errno, ErrorReply,
    message::{IdMap, IdMaps, IdRange, TenantInfo, UNMAPPED_ID},
};

use crate::limits;

/// The tenant with the users and groups that its maps give it, if it names none. Errors: EINVAL, with what is wrong.
pub fn checked(tenant: &TenantInfo, maps: &IdMaps) -> Result<TenantInfo, ErrorReply> {
    if maps.users.len() + maps.groups.len() > limits::TENANT_RANGES {
        return Err(wrong(format!("a tenant's id maps have at most {} ranges", limits::TENANT_RANGES)));
    }
    let users = within("user", &tenant.users, &maps.users)?;
    let groups = within("group", &tenant.groups, &maps.groups)?;
    Ok(TenantInfo { users, groups, ..tenant.clone() })
}

fn within(what: &str, ranges: &[IdRange], maps: &[IdMap]) -> Result<Vec<IdRange>, ErrorReply> {
    if maps.is_empty() {
        return Ok(ranges.to_vec());
    }
    let hosts: Vec<IdRange> = maps.iter().map(|map| range(what, map, map.host)).collect::<Result<_, _>>()?;
    let of_fs: Vec<IdRange> = maps.iter().map(|map| range(what, map, map.fs)).collect::<Result<_, _>>()?;
    if hosts.iter().any(|range| holds(range, UNMAPPED_ID)) {
        return Err(wrong(format!(
            "{what} {UNMAPPED_ID} of the hosts stands for all ids without a mapping: leave it out of the map"
        )));
    }
    for (side, ranges) in [("the hosts", &hosts), ("the file system", &of_fs)] {
        if let Some(id) = twice(ranges) {
            return Err(wrong(format!("{what} {id} of {side} is in two ranges of the map")));
        }
    }
    if ranges.is_empty() {
        return Ok(of_fs);
    }
    // What lies in no range of the map, none of its hosts could act as.
    let ids = |range: &IdRange| u64::from(range.last) - u64::from(range.first) + 1;
    let common = |one: &IdRange, two: &IdRange| {
        let (first, last) = (one.first.max(two.first), one.last.min(two.last));
        if first > last { 0 } else { ids(&IdRange { first, last }) }
    };
    for range in ranges.iter().filter(|range| range.first <= range.last) {
        if of_fs.iter().map(|mapped| common(range, mapped)).sum::<u64>() < ids(range) {
            return Err(wrong(format!(
                "{what}s {}-{} are not all in the map: its ids of the file system are the ones that count",
                range.first, range.last
            )));
        }
    }
    Ok(ranges.to_vec())
}

/// The ids from `first` on. Errors: there are none, or too many, or 0 is among them.
fn range(what: &str, map: &IdMap, first: u32) -> Result<IdRange, ErrorReply> {
    let IdMap { host, fs, count } = map;
    let last = count.checked_sub(1).and_then(|more| first.checked_add(more));
    let Some(last) = last.filter(|last| *last < u32::MAX) else {
        return Err(wrong(format!(
            "{host}:{fs}:{count} is no range of {what}s: a count is 1 or more, and ids end at {}",
            { u32::MAX - 1 }
        )));
    };
    if first == 0 {
        return Err(wrong(format!(
            "{host}:{fs}:{count}: {what} 0 is never mapped; `--no-root-squash` lets user 0 of the hosts be user 0"
        )));
    }
    Ok(IdRange { first, last })
}

fn holds(range: &IdRange, id: u32) -> bool {
    (range.first..=range.last).contains(&id)
}

/// An id that two of the ranges hold.
fn twice(ranges: &[IdRange]) -> Option<u32> {
    let mut sorted = ranges.to_vec();
    sorted.sort_by_key(|range| range.first);
    sorted.windows(2).find(|pair| holds(&pair[0], pair[1].first)).map(|pair| pair[1].first)
}

fn wrong(words: String) -> ErrorReply {
    ErrorReply::new(Errno::EINVAL, words)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenant(users: &[(u32, u32)]) -> TenantInfo {
        TenantInfo {
            name: "a".into(),
            path: "/a".into(),
            users: users.iter().map(|(first, last)| IdRange { first: *first, last: *last }).collect(),
            groups: Vec::new(),
            squash_uid: 65_534,
            squash_gid: 65_534,
            flags: 0,
            expires_ns: 0,
        }
    }

    fn maps(users: &[(u32, u32, u32)]) -> IdMaps {
        let map = |(host, fs, count): &(u32, u32, u32)| IdMap { host: *host, fs: *fs, count: *count };
        IdMaps { users: users.iter().map(map).collect(), groups: Vec::new() }
    }

    #[test]
    fn a_tenant_has_the_users_of_its_map_unless_it_names_some_of_them() {
        let both = maps(&[(1000, 70_000, 100), (5, 8000, 1)]);
        let given = checked(&tenant(&[]), &both).expect("a tenant");
        assert_eq!(given.users, [IdRange { first: 70_000, last: 70_099 }, IdRange { first: 8000, last: 8000 }]);
        assert!(given.groups.is_empty(), "groups have no map");
        let some = tenant(&[(70_010, 70_019), (8000, 8000)]);
        assert_eq!(checked(&some, &both), Ok(some));
        let joined = maps(&[(1, 100, 10), (50, 110, 10)]);
        assert!(checked(&tenant(&[(105, 114)]), &joined).is_ok(), "the ranges lie side by side");
        assert!(checked(&tenant(&[(105, 120)]), &joined).is_err());
    }

    #[test]
    fn maps_that_lead_to_two_ids_or_hold_ids_of_a_meaning_of_their_own_are_refused() {
        for (users, words) in [
            (&[(0, 70_000, 10)][..], "never mapped"),
            (&[(10, 0, 10)], "never mapped"),
            (&[(10, 10, 0)], "no range"),
            (&[(u32::MAX, 10, 1)], "no range"),
            (&[(10, u32::MAX - 4, 6)], "no range"),
            (&[(60_000, 10, 10_000)], "without a mapping"),
            (&[(10, 100, 10), (19, 200, 10)], "of the hosts is in two"),
            (&[(10, 100, 10), (30, 95, 6)], "of the file system is in two"),
        ] {
            let error = checked(&tenant(&[]), &maps(users)).expect_err("it is refused");
            assert!(error.errno == Errno::EINVAL && error.message.contains(words), "{users:?}: {error}");
        }
        assert!(
            checked(&tenant(&[]), &maps(&[(60_000, 65_534, 1)])).is_ok(),
            "of the file system it is an id as others"
        );
        let many: Vec<_> = (1..=65).map(|id| (id, id, 1)).collect();
        assert!(checked(&tenant(&[]), &maps(&many)).is_err());
    }
}
