//! List of all config keys and the kinds of their values, derived from the structs that read them.
//!
//! Owns: the derivation. A deserializer returns no values and notes what is requested from it. So every field of a
//! struct is known here at once, and no list has to be maintained alongside the structs.
//!
//! Must not know: what a key means.

use std::cell::RefCell;

use serde::de::{self, Deserialize, DeserializeSeed, Deserializer, IntoDeserializer, MapAccess, SeqAccess, Visitor};
use serde::forward_to_deserialize_any;

use super::Config;
use super::secret::SECRET;

/// Step of a path that stands for any element of a list, or for any key of a table with free keys.
pub const ANY: &str = "*";

/// Kind of a key's value.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// Text.
    Text,
    /// `true` or `false`.
    Switch,
    /// Number.
    Number,
    /// Text or a number: times, sizes, days.
    Any,
    /// List of single values.
    List,
    /// List of tables.
    Tables,
    /// Table with free keys.
    Map,
}

/// Config key.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Key {
    /// Path to the key through the tables, with [`ANY`] for free steps.
    pub way: Vec<String>,
    /// Kind of the value.
    pub kind: Kind,
    /// Whether the value may be a secret, which is never shown.
    pub is_secret: bool,
}

impl Key {
    /// Returns the full name, such as `log.durability` or `fetcher.*.cost`.
    pub fn name(&self) -> String {
        self.way.join(".")
    }

    /// Returns whether this is the key at `way`.
    pub fn is_at<S: AsRef<str>>(&self, way: &[S]) -> bool {
        self.way.len() == way.len() && self.way.iter().zip(way).all(|(own, step)| own == ANY || own == step.as_ref())
    }
}

/// Returns every key of a config, in the order of declaration. Cost: some hundred microseconds.
pub fn keys() -> Vec<Key> {
    let mut found = Vec::new();
    collect(&mut Vec::new(), &mut found);
    found
}

/// Type that a struct requests at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RequestedType {
    Text,
    Switch,
    Number,
    Any,
    List,
    Map,
    Table(&'static [&'static str]),
}

fn collect(way: &mut Vec<String>, found: &mut Vec<Key>) {
    let Some((shape, is_secret)) = type_at(way) else { return };
    let kind = match shape {
        RequestedType::Text => Kind::Text,
        RequestedType::Switch => Kind::Switch,
        RequestedType::Number => Kind::Number,
        RequestedType::Any => Kind::Any,
        RequestedType::List => {
            way.push(ANY.to_owned());
            let has_tables = matches!(type_at(way), Some((RequestedType::Table(_), _)));
            way.pop();
            if has_tables { Kind::Tables } else { Kind::List }
        }
        RequestedType::Map => Kind::Map,
        RequestedType::Table(fields) => {
            for field in fields {
                way.push((*field).to_owned());
                collect(way, found);
                way.pop();
            }
            return;
        }
    };
    let is_open = matches!(kind, Kind::Tables | Kind::Map);
    found.push(Key { way: way.clone(), kind, is_secret });
    if is_open {
        way.push(ANY.to_owned());
        collect(way, found);
        way.pop();
    }
}

fn type_at(way: &[String]) -> Option<(RequestedType, bool)> {
    let seen = RefCell::new(NotedType::default());
    // The result does not matter, because the deserializer never returns a value.
    let _ = Config::deserialize(TypeProbe { way, seen: &seen });
    let seen = seen.into_inner();
    seen.shape.map(|shape| (shape, seen.is_secret))
}

#[derive(Default)]
struct NotedType {
    shape: Option<RequestedType>,
    is_secret: bool,
}

/// Deserializer that notes what is requested at the end of `way`.
struct TypeProbe<'w> {
    way: &'w [String],
    seen: &'w RefCell<NotedType>,
}

impl<'w> TypeProbe<'w> {
    fn note<T>(&self, shape: RequestedType) -> Result<T, NoValue> {
        if self.way.is_empty() {
            self.seen.borrow_mut().shape.get_or_insert(shape);
        }
        Err(NoValue)
    }

    fn next(&self) -> Option<(&'w str, Self)> {
        let (step, rest) = self.way.split_first()?;
        Some((step, Self { way: rest, seen: self.seen }))
    }
}

impl<'de> Deserializer<'de> for TypeProbe<'_> {
    type Error = NoValue;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, NoValue> {
        self.note(RequestedType::Any)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, NoValue> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, name: &'static str, visitor: V) -> Result<V::Value, NoValue> {
        if self.way.is_empty() && name == SECRET {
            self.seen.borrow_mut().is_secret = true;
        }
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_bool<V: Visitor<'de>>(self, _: V) -> Result<V::Value, NoValue> {
        self.note(RequestedType::Switch)
    }

    fn deserialize_u8<V: Visitor<'de>>(self, _: V) -> Result<V::Value, NoValue> {
        self.note(RequestedType::Number)
    }

    fn deserialize_u32<V: Visitor<'de>>(self, _: V) -> Result<V::Value, NoValue> {
        self.note(RequestedType::Number)
    }

    fn deserialize_u64<V: Visitor<'de>>(self, _: V) -> Result<V::Value, NoValue> {
        self.note(RequestedType::Number)
    }

    fn deserialize_f64<V: Visitor<'de>>(self, _: V) -> Result<V::Value, NoValue> {
        self.note(RequestedType::Number)
    }

    fn deserialize_str<V: Visitor<'de>>(self, _: V) -> Result<V::Value, NoValue> {
        self.note(RequestedType::Text)
    }

    fn deserialize_string<V: Visitor<'de>>(self, _: V) -> Result<V::Value, NoValue> {
        self.note(RequestedType::Text)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, NoValue> {
        self.note(RequestedType::Text)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, NoValue> {
        match self.next() {
            Some((_, rest)) => visitor.visit_seq(SingleEntry { key: None, rest: Some(rest) }),
            None => self.note(RequestedType::List),
        }
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, NoValue> {
        match self.next() {
            Some((key, rest)) => visitor.visit_map(SingleEntry { key: Some(key), rest: Some(rest) }),
            None => self.note(RequestedType::Map),
        }
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, NoValue> {
        match self.next() {
            Some((key, rest)) => visitor.visit_map(SingleEntry { key: Some(key), rest: Some(rest) }),
            None => self.note(RequestedType::Table(fields)),
        }
    }

    forward_to_deserialize_any! {
        i8 i16 i32 i64 i128 u16 u128 f32 char bytes byte_buf unit unit_struct tuple tuple_struct identifier ignored_any
    }
}

/// Table with one key, or list with one element.
struct SingleEntry<'w> {
    key: Option<&'w str>,
    rest: Option<TypeProbe<'w>>,
}

impl<'de> MapAccess<'de> for SingleEntry<'_> {
    type Error = NoValue;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, NoValue> {
        self.key.take().map(|key| seed.deserialize(key.into_deserializer())).transpose()
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, NoValue> {
        seed.deserialize(self.rest.take().ok_or(NoValue)?)
    }
}

impl<'de> SeqAccess<'de> for SingleEntry<'_> {
    type Error = NoValue;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, NoValue> {
        self.rest.take().map(|rest| seed.deserialize(rest)).transpose()
    }
}

/// Error that ends each deserialization.
#[derive(Debug, thiserror::Error)]
#[error("no value")]
struct NoValue;

impl de::Error for NoValue {
    fn custom<T: std::fmt::Display>(_: T) -> Self {
        Self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_is_a_key_with_its_kind() {
        let all = keys();
        let of = |name: &str| all.iter().find(|key| key.name() == name).map(|key| (key.kind.clone(), key.is_secret));
        for (name, kind) in [
            ("mode", Kind::Text),
            ("data_dir", Kind::Text),
            ("split_share", Kind::Number),
            ("http.timeout", Kind::Any),
            ("http.max_body", Kind::Any),
            ("log.durability", Kind::Text),
            ("network.allow", Kind::List),
            ("network.allow_private", Kind::Switch),
            ("fetcher", Kind::Tables),
            ("fetcher.*.cost", Kind::Any),
            ("fetcher.*.command", Kind::List),
            ("fetcher.*.archive.from.*.wayback", Kind::Text),
            ("prior.*.samples", Kind::Number),
        ] {
            assert_eq!(of(name), Some((kind, false)), "{name}");
        }
        for secret in ["fetcher.*.proxy", "fetcher.*.cdp", "fetcher.*.solver", "fetcher.*.search.url"] {
            assert_eq!(of(secret), Some((Kind::Text, true)), "{secret}");
        }
        assert!(all.len() > 100, "{}", all.len());
    }

    /// Returns the example with all of its settings active. A commented-out setting has no blank after the `#`.
    fn example() -> String {
        let is_setting = |rest: &str| rest.starts_with(|c: char| c == '[' || c.is_ascii_lowercase());
        let line = |line: &'static str| match line.strip_prefix('#') {
            Some(rest) if is_setting(rest) => rest,
            _ => line,
        };
        crate::config::EXAMPLE.lines().map(line).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn the_example_has_every_key_and_no_other() {
        let text = example();
        let path = std::path::Path::new("fetchwise.example.toml");
        // The shipped file changes nothing.
        let shipped: toml::Table = crate::config::EXAMPLE.parse().unwrap();
        assert!(shipped.is_empty(), "{shipped}");
        // With all settings active it is a valid config, so it has no unknown key.
        Config::from_toml(&text, path).unwrap();
        let settings = crate::config::tree::Node::parse(&text, path).unwrap();
        let mut ways = Vec::new();
        settings.each(&mut Vec::new(), &mut |way, _| ways.push(way.to_vec()));
        let all = keys();
        let leaves = all.iter().filter(|key| !matches!(key.kind, Kind::Tables | Kind::Map));
        let missing: Vec<String> = leaves.filter(|key| !ways.iter().any(|way| key.is_at(way))).map(Key::name).collect();
        assert!(missing.is_empty(), "the example lacks {missing:?}");
        let unknown: Vec<_> = ways.iter().filter(|way| !all.iter().any(|key| key.is_at(way))).collect();
        assert!(unknown.is_empty(), "no key is {unknown:?}");
    }
}
