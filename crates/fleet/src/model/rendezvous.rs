//! Rendezvous hashing of sites over nodes. A node that joins or leaves moves only its own part of
//! the sites.

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use crate::model::node_id::NodeId;

/// Returns the node that owns a site; none without nodes. All callers with the same nodes get the
/// same result.
///
/// ```
/// use fetchwise_fleet::model::rendezvous::owner;
/// use fetchwise_fleet::model::node_id::NodeId;
///
/// let nodes = [NodeId::from_bytes([1; 16]), NodeId::from_bytes([2; 16])];
/// assert_eq!(owner("example.org", &nodes), owner("example.org", &[nodes[1], nodes[0]]));
/// ```
pub fn owner(site: &str, nodes: &[NodeId]) -> Option<NodeId> {
    owner_of_hash(hash_of(site), nodes)
}

/// Returns the hash that stands for a site.
pub(crate) fn hash_of(site: &str) -> u64 {
    xxh3_64(site.as_bytes())
}

/// Works like [`owner`], given the hash of the site.
pub(crate) fn owner_of_hash(seed: u64, nodes: &[NodeId]) -> Option<NodeId> {
    nodes.iter().copied().max_by_key(|node| (xxh3_64_with_seed(node.as_bytes(), seed), *node))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leaving_node_moves_its_own_sites_only_and_load_is_even() {
        let nodes: Vec<NodeId> = (0..10).map(|n| NodeId::from_bytes([n * 7 + 1; 16])).collect();
        let (mut counts, mut moved) = ([0usize; 10], 0);
        for n in 0..20_000 {
            let site = format!("site{n}.example");
            let before = owner(&site, &nodes).unwrap();
            counts[nodes.iter().position(|node| *node == before).unwrap()] += 1;
            let after = owner(&site, &nodes[1..]).unwrap();
            assert!(after == before || before == nodes[0]);
            moved += usize::from(after != before);
        }
        assert_eq!(moved, counts[0]);
        assert!(counts.iter().all(|count| (1800..2200).contains(count)), "{counts:?}");
        assert_eq!(owner("example.org", &[]), None);
    }
}
