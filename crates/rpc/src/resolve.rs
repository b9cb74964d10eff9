//! Where targets can be reached.

use forebay_env::Address;
use forebay_proto::{TargetId, message::ClusterMap};

/// Gives the addresses of targets. A session asks before each round of attempts to connect: the target may have come
/// back at another address since.
pub trait Resolve {
    /// The addresses of `target` according to the current map, best first.
    fn addresses(&self, target: TargetId) -> Vec<Address>;

    /// At none of its addresses does `target` accept the session, or another target answers there: a newer map may have
    /// others. Called after each such
    /// round. Returns at once; a newer map counts from the next round on.
    fn unreached(&self, target: TargetId);
}

/// The same addresses whatever happens.
impl Resolve for Vec<Address> {
    fn addresses(&self, _: TargetId) -> Vec<Address> {
        self.clone()
    }

    fn unreached(&self, _: TargetId) {}
}

/// The addresses of `target` in `map` that this program understands.
pub fn addresses_in(map: &ClusterMap, target: TargetId) -> Vec<Address> {
    let listed = map.targets.iter().find(|listed| listed.id == target);
    listed.map_or_else(Vec::new, |listed| listed.addresses.iter().filter_map(|text| text.parse().ok()).collect())
}

#[cfg(test)]
mod tests {
    use forebay_proto::{Uuid, message::MapTarget};

    use super::*;

    #[test]
    fn the_addresses_of_a_target_are_those_that_can_be_read_in_their_order() {
        let addresses = ["mem:b", "carrier-pigeon", "tcp:127.0.0.1:1"].map(str::to_owned).to_vec();
        let target = MapTarget { id: TargetId::ost(1), uuid: Uuid::default(), addresses };
        let map = ClusterMap { cluster: Uuid::default(), epoch: 1, targets: vec![target] };
        let shown: Vec<String> = addresses_in(&map, TargetId::ost(1)).iter().map(Address::to_string).collect();
        assert_eq!(shown, ["mem:b", "tcp:127.0.0.1:1"]);
        assert!(addresses_in(&map, TargetId::ost(2)).is_empty());
    }
}
