//! The tables of a `[[fetcher]]` that say where it gets its pages: which keys there are and what type each has.
//!
//! As with the other tables, absent keys are `None`, and what a value does is not known here.

use serde::Deserialize;
use url::Url;

use super::value;
use crate::time::Timestamp;

/// `[fetcher.archive]`: from web archives.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ArchiveConfig {
    /// The date that copies should be near to; the newest copy without one.
    #[serde(deserialize_with = "value::date")]
    pub wanted: Option<Timestamp>,
    /// The archives, in the order in which they are asked; the Internet Archive's without any.
    pub from: Vec<ArchiveFrom>,
}

/// `[[fetcher.archive.from]]`: one archive, `wayback` or `timegate`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ArchiveFrom {
    /// An archive that works as the Wayback Machine does: captures are below `/web/` of this address.
    #[serde(deserialize_with = "value::web_address")]
    pub wayback: Option<Url>,
    /// Its availability interface.
    #[serde(deserialize_with = "value::web_address")]
    pub availability: Option<Url>,
    /// A Memento time gate, which the page's address is appended to.
    #[serde(deserialize_with = "value::web_address")]
    pub timegate: Option<Url>,
}
