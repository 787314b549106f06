//! The form of `Signature-Agent` that each vendor's verifier reads.
//!
//! Owns: the shipped table `forms.toml`.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::Deserialize;

/// A form of `Signature-Agent`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Form {
    /// `sig1="https://bot.example/.well-known/..."`, as draft -01 demands.
    #[default]
    Dictionary,
    /// `"https://bot.example"`, as older drafts had it.
    String,
}

/// The choice of the form.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FormSetting {
    /// By the table of vendors.
    #[default]
    Auto,
    /// Always the same.
    Always(Form),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    default: Form,
    vendor: BTreeMap<String, Form>,
    header: BTreeMap<String, String>,
}

/// The table. A test reads it, so the fallback is never used.
static TABLE: LazyLock<Table> = LazyLock::new(|| {
    toml::from_str(include_str!("forms.toml")).unwrap_or_else(|_| Table {
        default: Form::Dictionary,
        vendor: BTreeMap::new(),
        header: BTreeMap::new(),
    })
});

/// Returns the form for hosts behind `vendor`, or behind none that is known.
pub fn form_of_vendor(vendor: Option<&str>) -> Form {
    vendor.and_then(|vendor| TABLE.vendor.get(vendor)).copied().unwrap_or(TABLE.default)
}

/// Returns the vendor that a response header with this name (in lower case) shows.
pub fn vendor_of_header(name: &str) -> Option<&'static str> {
    TABLE.header.get(name).map(String::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shipped_table_is_valid() {
        let table: Table = toml::from_str(include_str!("forms.toml")).unwrap();
        assert!(table.header.values().all(|vendor| table.vendor.contains_key(vendor)));
        assert_eq!(form_of_vendor(vendor_of_header("cf-ray")), Form::String);
        assert_eq!(form_of_vendor(Some("akamai")), Form::Dictionary);
        assert_eq!(form_of_vendor(None), Form::Dictionary);
    }
}
