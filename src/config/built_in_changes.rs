//! `[fetcher.NAME]`: changes of a built-in fetcher, without a list of all of them.
//!
//! Owns: the list that stands for such changes: the fetchers that need no configuration, and those
//! that are named.
//!
//! Invariants: a list of the user's own stays as it is. Each value keeps its origin.
//!
//! Must not know: what a fetcher's keys mean.

use std::collections::BTreeMap;

use super::origin::{Origin, Problem};
use super::tree::{Node, NodeContent};
use fetchwise_types::registry::{BUILT_IN, PROBE_FETCHER, canonical};
use fetchwise_types::unknown_name::nearest;

/// The fetchers that need no configuration.
const READY: [&str; 3] = [PROBE_FETCHER, "playwright", "playwright_stealth"];

/// Returns whether the fetchers are not a list: there are none, or only changes.
pub(super) fn are_built_in(tree: &Node) -> bool {
    tree.get(&["fetcher"]).is_none_or(|node| matches!(node.content, NodeContent::Table(_)))
}

/// Replaces changes of built-in fetchers by the list of fetchers with these changes. Returns a
/// problem for each name that is not built in.
pub(super) fn list_with_changes(tree: &mut Node) -> Vec<Problem> {
    let way = ["fetcher".to_owned()];
    let taken = tree.take(&way).unwrap_or_else(Node::empty);
    let NodeContent::Table(mut changes) = taken.content else {
        tree.set(&way, taken);
        return Vec::new();
    };
    let mut list = Vec::new();
    for (name, _) in BUILT_IN {
        let key = changes.keys().find(|key| canonical(key) == *name).cloned();
        let change = key.and_then(|key| changes.remove(&key));
        if change.is_some() || READY.contains(name) {
            list.push(named(name, change));
        }
    }
    let unknown = changes.into_iter().map(|(name, node)| unknown(&name, &node)).collect();
    tree.set(&way, Node { content: NodeContent::List(list), ..taken });
    unknown
}

/// Returns a fetcher's settings with its name.
fn named(name: &str, change: Option<Node>) -> Node {
    let mut node = change.unwrap_or_else(|| Node {
        origin: Origin::Default,
        key_origin: Origin::Default,
        content: NodeContent::Table(BTreeMap::new()),
    });
    let origin = node.key_origin.clone();
    node.set(&["name".to_owned()], Node::of(toml::Value::String(name.to_owned()), &origin));
    node
}

fn unknown(name: &str, node: &Node) -> Problem {
    let meant = nearest(name, BUILT_IN.iter().map(|(name, _)| *name));
    let hint = meant.map_or_else(String::new, |meant| format!(" (did you mean `{meant}`?)"));
    Problem {
        origin: node.key_origin.clone(),
        key: format!("fetcher.{name}"),
        message: format!(
            "no built-in fetcher is called `{name}`{hint}: `[fetcher.NAME]` changes a built-in one; a fetcher of your own \
             is a `[[fetcher]]` with a `name`"
        ),
        meant: meant.map(str::to_owned),
    }
}
