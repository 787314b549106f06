//! Tree of settings in which every value keeps its origin.
//!
//! Owns: the merge of a file's values with their places, and changes of single values.
//!
//! Must not know: the config keys.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::origin::{Origin, Problem, TextPositions};

/// Value with its origin.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) origin: Origin,
    /// Position of the key.
    pub(super) key_origin: Origin,
    pub(super) content: NodeContent,
}

/// Content of a node.
#[derive(Clone, Debug)]
pub(super) enum NodeContent {
    Single(toml::Value),
    List(Vec<Node>),
    Table(BTreeMap<String, Node>),
}

impl Node {
    /// Creates an empty tree.
    pub(super) fn empty() -> Self {
        Self {
            origin: Origin::Default,
            key_origin: Origin::Default,
            content: NodeContent::Table(BTreeMap::new()),
        }
    }

    /// Parses a file's text. Reports all syntax errors at once.
    pub(super) fn parse(text: &str, path: &Path) -> Result<Self, Vec<Problem>> {
        let (table, errors) = DeTable::parse_recoverable(text);
        let file = File { positions: TextPositions::new(text), path: path.into() };
        let values: Option<toml::Table> =
            if errors.is_empty() { toml::from_str(text).ok() } else { None };
        match values {
            Some(values) => {
                let at = file.origin(0);
                Ok(file.table(&at, table.get_ref(), values))
            }
            None => {
                let mut problems: Vec<Problem> =
                    errors.iter().map(|error| file.problem(error)).collect();
                problems.sort_by_cached_key(Problem::rank);
                Err(problems)
            }
        }
    }

    /// Creates a node from a value that `origin` sets as a whole.
    pub(super) fn of(value: toml::Value, origin: &Origin) -> Self {
        let content = match value {
            toml::Value::Table(table) => NodeContent::Table(
                table.into_iter().map(|(key, value)| (key, Self::of(value, origin))).collect(),
            ),
            toml::Value::Array(list) => {
                NodeContent::List(list.into_iter().map(|value| Self::of(value, origin)).collect())
            }
            one => NodeContent::Single(one),
        };
        Self { origin: origin.clone(), key_origin: origin.clone(), content }
    }

    /// Returns the value without origins.
    pub(super) fn value(&self) -> toml::Value {
        match &self.content {
            NodeContent::Single(value) => value.clone(),
            NodeContent::List(list) => toml::Value::Array(list.iter().map(Self::value).collect()),
            NodeContent::Table(table) => toml::Value::Table(
                table.iter().map(|(key, node)| (key.clone(), node.value())).collect(),
            ),
        }
    }

    /// Returns the node at `way`.
    pub(super) fn get<'n, S: AsRef<str>>(&'n self, way: &[S]) -> Option<&'n Self> {
        way.iter().try_fold(self, |node, step| node.child(step.as_ref()))
    }

    /// Returns the node at `way`, or the last one on the path that exists.
    pub(super) fn nearest<'n, S: AsRef<str>>(&'n self, way: &[S]) -> &'n Self {
        let mut node = self;
        for step in way {
            let Some(next) = node.child(step.as_ref()) else { break };
            node = next;
        }
        node
    }

    fn child(&self, step: &str) -> Option<&Self> {
        match &self.content {
            NodeContent::Single(_) => None,
            NodeContent::List(list) => list.get(step.parse::<usize>().ok()?),
            NodeContent::Table(table) => table.get(step),
        }
    }

    /// Puts `node` at `way` and creates missing tables. Does nothing if a single value blocks the
    /// path.
    pub(super) fn set(&mut self, way: &[String], node: Self) {
        let Some((last, before)) = way.split_last() else { return };
        let mut at = self;
        for step in before {
            let next = match &mut at.content {
                NodeContent::Single(_) => None,
                NodeContent::List(list) => {
                    step.parse::<usize>().ok().and_then(|place| list.get_mut(place))
                }
                NodeContent::Table(table) => {
                    Some(table.entry(step.clone()).or_insert_with(|| Self {
                        origin: node.origin.clone(),
                        key_origin: node.origin.clone(),
                        content: NodeContent::Table(BTreeMap::new()),
                    }))
                }
            };
            let Some(next) = next else { return };
            at = next;
        }
        match &mut at.content {
            NodeContent::Single(_) => {}
            NodeContent::List(list) => {
                if let Some(place) =
                    last.parse::<usize>().ok().and_then(|place| list.get_mut(place))
                {
                    *place = node;
                }
            }
            NodeContent::Table(table) => {
                table.insert(last.clone(), node);
            }
        }
    }

    /// Removes the node at `way` and returns it.
    pub(super) fn take(&mut self, way: &[String]) -> Option<Self> {
        let (last, before) = way.split_last()?;
        let mut at = self;
        for step in before {
            at = match &mut at.content {
                NodeContent::Single(_) => return None,
                NodeContent::List(list) => list.get_mut(step.parse::<usize>().ok()?)?,
                NodeContent::Table(table) => table.get_mut(step)?,
            };
        }
        match &mut at.content {
            NodeContent::Single(_) => None,
            NodeContent::List(list) => {
                let place = last.parse::<usize>().ok().filter(|place| *place < list.len())?;
                Some(list.remove(place))
            }
            NodeContent::Table(table) => table.remove(last),
        }
    }

    /// Calls `f` with every single value and its path. A list of single values counts as one.
    pub(super) fn each<'n>(
        &'n self,
        way: &mut Vec<String>,
        f: &mut dyn FnMut(&[String], &'n Self),
    ) {
        let children: Vec<(String, &Self)> = match &self.content {
            NodeContent::Table(table) => {
                table.iter().map(|(key, node)| (key.clone(), node)).collect()
            }
            NodeContent::List(list)
                if list.iter().any(|node| matches!(node.content, NodeContent::Table(_))) =>
            {
                list.iter().enumerate().map(|(place, node)| (place.to_string(), node)).collect()
            }
            _ => return f(way, self),
        };
        for (step, node) in children {
            way.push(step);
            node.each(way, f);
            way.pop();
        }
    }
}

/// File that is being parsed.
struct File<'t> {
    positions: TextPositions<'t>,
    path: Arc<Path>,
}

impl File<'_> {
    fn origin(&self, at: usize) -> Origin {
        Origin::File { path: Arc::clone(&self.path), at: self.positions.of(at) }
    }

    fn problem(&self, error: &toml::de::Error) -> Problem {
        let origin = self.origin(error.span().map_or(0, |span| span.start));
        let message = error.message().trim_end().to_owned();
        Problem { origin, key: String::new(), message, meant: None }
    }

    fn table(&self, origin: &Origin, places: &DeTable<'_>, values: toml::Table) -> Node {
        let places: BTreeMap<&str, _> =
            places.iter().map(|place| (place.0.get_ref().as_ref(), place)).collect();
        let mut table = BTreeMap::new();
        for (key, value) in values {
            let Some((place, child)) = places.get(key.as_str()) else { continue };
            let node = self.node(self.origin(place.span().start), child, value);
            table.insert(key, node);
        }
        Node {
            origin: origin.clone(),
            key_origin: origin.clone(),
            content: NodeContent::Table(table),
        }
    }

    fn node(&self, key_origin: Origin, place: &Spanned<DeValue<'_>>, value: toml::Value) -> Node {
        let origin = self.origin(place.span().start);
        let content = match (place.get_ref(), value) {
            (DeValue::Table(places), toml::Value::Table(values)) => {
                self.table(&origin, places, values).content
            }
            (DeValue::Array(places), toml::Value::Array(values)) => NodeContent::List(
                places
                    .iter()
                    .zip(values)
                    .map(|(place, value)| self.node(self.origin(place.span().start), place, value))
                    .collect(),
            ),
            (_, value) => NodeContent::Single(value),
        };
        Node { origin, key_origin, content }
    }
}
