//! Declaration of settings: each key once, with its type, its default, its valid values and its
//! meaning.
//!
//! Owns: [`settings!`], and what follows from a declaration: the struct with its fields, the list
//! of keys and the check of values. Tests compare the example file and the reference page with the
//! list.
//!
//! Invariants: a declared key is known to variables, to `config show` and to the documents.
//!
//! Must not know: any key.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::path::PathBuf;
use std::time::Duration;

use url::Url;

use super::error::InvalidValue;
use super::rule::Rule;
use super::secret::Secret;

/// Step of a path that stands for any element of a list, or for any key of a table with free keys.
pub const ANY: &str = "*";

/// Declares tables of settings. A key is a field of a struct, with serde's attributes where its
/// type needs them, and:
///
/// * `= VALUE`: its default, which the documents show;
/// * `, unset "WORDS"`: its default in words, if it is not one value, and `, such as VALUE` for the
///   documents;
/// * `, valid RULE`: its valid values.
///
/// The comment on the field is the sentence of the documents.
macro_rules! settings {
    ($(
        $(#[$($of_table:tt)*])*
        pub struct $table:ident {
            $(
                $(#[$($of_field:tt)*])*
                pub $field:ident: $type:ty
                $(= $default:expr)?
                $(, unset $words:literal $(, such as $example:expr)?)?
                $(, valid $rule:expr)?
                ;
            )*
        }
    )*) => { $(
        $(#[$($of_table)*])*
        pub struct $table {
            $($(#[$($of_field)*])* pub $field: $type,)*
        }

        impl $crate::config::declare::Declared for $table {
            const KIND: $crate::config::Kind = $crate::config::Kind::Table;

            fn list(list: &mut $crate::config::declare::KeyList) {
                $(
                    let name: Option<&str> = $crate::config::declare::name_of!($field $(#[$($of_field)*])*);
                    let meaning = $crate::config::declare::Meaning {
                        about: $crate::config::declare::comment_of!($(#[$($of_field)*])*).trim_start(),
                        default: $crate::config::declare::default_of!(
                            $(= $default)? $(, unset $words $(, such as $example)?)?
                        ),
                        expected: [$($rule.expected(),)? ""][0],
                    };
                    list.add::<$type>(name, meaning);
                )*
            }

            fn check_values(&self, checked: &mut $crate::config::declare::Checked) {
                $(
                    let name: Option<&str> = $crate::config::declare::name_of!($field $(#[$($of_field)*])*);
                    checked.within(name.unwrap_or_default(), |checked| {
                        $(checked.apply(&self.$field, &$rule);)?
                        self.$field.check_values(checked);
                    });
                )*
            }
        }
    )* };
}

/// Returns the name of the key: that of the field, unless serde renames or skips it.
macro_rules! name_of {
    ($field:ident) => { Some(stringify!($field)) };
    ($field:ident #[serde(skip)] $($rest:tt)*) => { None };
    ($field:ident #[serde(rename = $name:literal $($more:tt)*)] $($rest:tt)*) => { Some($name) };
    ($field:ident #[$($other:tt)*] $($rest:tt)*) => { $crate::config::declare::name_of!($field $($rest)*) };
}

/// Returns the text of the comment on a field.
macro_rules! comment_of {
    () => { "" };
    (#[doc = $line:literal] $($rest:tt)*) => { concat!($line, $crate::config::declare::comment_of!($($rest)*)) };
    (#[$($other:tt)*] $($rest:tt)*) => { $crate::config::declare::comment_of!($($rest)*) };
}

/// Returns the default of a key.
macro_rules! default_of {
    () => {
        None
    };
    (= $value:expr) => {
        Some($crate::config::KeyDefault::Value($value.into()))
    };
    (, unset $words:literal) => {
        Some($crate::config::KeyDefault::Words { words: $words, such_as: None })
    };
    (, unset $words:literal, such as $value:expr) => {
        Some($crate::config::KeyDefault::Words { words: $words, such_as: Some($value.into()) })
    };
}

pub(super) use {comment_of, default_of, name_of, settings};

/// Kind of a key's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
    /// Table with fixed keys.
    Table,
    /// List of tables.
    Tables,
    /// Table with free keys.
    Map,
}

/// Value of a key that is not set.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum KeyDefault {
    /// One value.
    Value(toml::Value),
    /// A description, for a default that depends on something.
    Words {
        /// The description.
        words: &'static str,
        /// A value that the key may have.
        such_as: Option<toml::Value>,
    },
}

/// Config key.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Key {
    /// Path to the key through the tables, with [`ANY`] for free steps.
    pub way: Vec<String>,
    /// Kind of the value.
    pub kind: Kind,
    /// Whether the value may be a secret, which is never shown.
    pub is_secret: bool,
    /// Meaning of the key.
    pub about: &'static str,
    /// Value of the key if it is not set; `None` within lists.
    pub default: Option<KeyDefault>,
    /// Valid values; empty for all of the type.
    pub expected: &'static str,
}

impl Key {
    /// Returns the full name, such as `log.durability` or `fetcher.*.cost`.
    pub fn name(&self) -> String {
        self.way.join(".")
    }

    /// Returns whether this is the key at `way`.
    pub fn is_at<S: AsRef<str>>(&self, way: &[S]) -> bool {
        self.way.len() == way.len()
            && self.way.iter().zip(way).all(|(own, step)| own == ANY || own == step.as_ref())
    }
}

/// What a declaration says of a key besides its name and type.
pub(super) struct Meaning {
    pub(super) about: &'static str,
    pub(super) default: Option<KeyDefault>,
    pub(super) expected: &'static str,
}

/// Keys found so far, and the path to the table that is being listed.
#[derive(Default)]
pub(super) struct KeyList {
    way: Vec<String>,
    pub(super) keys: Vec<Key>,
}

impl KeyList {
    /// Adds a key of this type, and the keys below it. Skips a field without a name.
    pub(super) fn add<T: Declared>(&mut self, name: Option<&str>, meaning: Meaning) {
        let Some(name) = name else { return };
        let Meaning { about, default, expected } = meaning;
        self.way.push(name.to_owned());
        self.keys.push(Key {
            way: self.way.clone(),
            kind: T::KIND,
            is_secret: T::IS_SECRET,
            about,
            default,
            expected,
        });
        T::list(self);
        self.way.pop();
    }

    /// Adds the keys of each element of a list or a table with free keys.
    fn add_elements<T: Declared>(&mut self) {
        self.way.push(ANY.to_owned());
        T::list(self);
        self.way.pop();
    }
}

/// Invalid values found so far, and the path to the table that is being checked.
#[derive(Debug, Default)]
pub(super) struct Checked {
    way: Vec<String>,
    pub(super) invalid: Vec<InvalidValue>,
}

impl Checked {
    /// Calls `check` for what is below `step`.
    pub(super) fn within(&mut self, step: &str, check: impl FnOnce(&mut Self)) {
        self.way.push(step.to_owned());
        check(self);
        self.way.pop();
    }

    /// Applies a rule to the value of the current key, if it is set.
    pub(super) fn apply<'v, T: PartialOrd + Debug + 'v>(
        &mut self,
        value: impl Into<Option<&'v T>>,
        rule: &Rule<T>,
    ) {
        if let Some(value) = value.into().filter(|value| !rule.accepts(value)) {
            let expected = format!("expected {}", rule.expected());
            self.invalid.push(InvalidValue {
                way: self.way.clone(),
                value: format!("{value:?}"),
                expected,
            });
        }
    }

    /// Reports the value at `way`, a path from the top.
    pub(super) fn bad(&mut self, way: &[&str], value: String, expected: String) {
        let way = way.iter().map(|&step| step.to_owned()).collect();
        self.invalid.push(InvalidValue { way, value, expected });
    }
}

/// Type of a setting: a table of settings, or a single value, without further keys and checks.
pub(super) trait Declared {
    const KIND: Kind;
    const IS_SECRET: bool = false;

    /// Lists the keys below a setting of this type.
    fn list(_: &mut KeyList) {}

    /// Checks the values below this one.
    fn check_values(&self, _: &mut Checked) {}
}

impl<T: Declared> Declared for Option<T> {
    const KIND: Kind = T::KIND;
    const IS_SECRET: bool = T::IS_SECRET;

    fn list(list: &mut KeyList) {
        T::list(list);
    }

    fn check_values(&self, checked: &mut Checked) {
        self.iter().for_each(|value| value.check_values(checked));
    }
}

impl<T: Declared> Declared for Vec<T> {
    const KIND: Kind = if matches!(T::KIND, Kind::Table) { Kind::Tables } else { Kind::List };

    fn list(list: &mut KeyList) {
        list.add_elements::<T>();
    }

    fn check_values(&self, checked: &mut Checked) {
        for (place, value) in self.iter().enumerate() {
            checked.within(&place.to_string(), |checked| value.check_values(checked));
        }
    }
}

impl<T: Declared> Declared for BTreeMap<String, T> {
    const KIND: Kind = Kind::Map;

    fn list(list: &mut KeyList) {
        list.add_elements::<T>();
    }

    fn check_values(&self, checked: &mut Checked) {
        self.iter()
            .for_each(|(name, value)| checked.within(name, |checked| value.check_values(checked)));
    }
}

impl<T> Declared for Secret<T> {
    const KIND: Kind = Kind::Text;
    const IS_SECRET: bool = true;
}

/// Declares the kinds of types of single values.
macro_rules! single_values {
    ($($kind:ident: $($type:ty),+;)+) => {
        $($(impl $crate::config::declare::Declared for $type {
            const KIND: $crate::config::Kind = $crate::config::Kind::$kind;
        })+)+
    };
}

pub(super) use single_values;

single_values! {
    Switch: bool;
    Number: f64, u8, u32, u64, usize;
    Any: Duration;
    Text: String, PathBuf, Url;
}
