//! The tables of a `[[fetcher]]` that say where it gets its pages: which keys there are and what type each has.
//!
//! As with the other tables, absent keys are `None`, and what a value does is not known here.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;
use url::Url;

use super::secret::{Secret, without_password};
use super::value;
use fetchwise_types::time::Timestamp;

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
#[derive(Clone, Default, PartialEq, Eq, Deserialize)]
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

/// Without the user and the password that an address may hold.
impl fmt::Debug for ArchiveFrom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("ArchiveFrom");
        let own = [("wayback", &self.wayback), ("availability", &self.availability), ("timegate", &self.timegate)];
        for (name, address) in own {
            shown.field(name, &address.as_ref().map(|address| without_password(address.as_str()).into_owned()));
        }
        shown.finish()
    }
}

/// `[fetcher.search]`: from a search interface. Places are JSON pointers; what `nytime_searcher` leaves out it has from the shipped
/// configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SearchConfig {
    /// The address that is asked, with `{url}` for the page's address and `{key}` for the key.
    pub url: Option<Secret>,
    /// The variable of the environment that has the key.
    pub key_env: Option<String>,
    /// The header that the key goes into.
    pub key_header: Option<String>,
    /// The sites that the interface knows; all of them when the list is empty.
    pub hosts: Option<Vec<String>>,
    /// Where the records are in an answer.
    pub records: Option<String>,
    /// Where the address of its page is in a record.
    pub address: Option<String>,
    /// Where the title is.
    pub title: Option<String>,
    /// Where the abstract is.
    #[serde(rename = "abstract")]
    pub summary: Option<String>,
    /// Where the text is.
    pub body: Option<String>,
    /// Where the date is.
    pub date: Option<String>,
}

/// `[fetcher.download]`: media, by yt-dlp.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DownloadConfig {
    /// The program; `yt-dlp` on the PATH without it.
    pub program: Option<PathBuf>,
    /// Which format is wanted, as yt-dlp's `--format` has it.
    pub format: Option<String>,
    /// The languages of subtitles that are wanted.
    pub subtitles: Vec<String>,
    /// The time that a download may take.
    #[serde(alias = "max_time_s", deserialize_with = "value::seconds")]
    pub max_time: Option<Duration>,
    /// Where media, what is known of them, and subtitles are kept.
    pub dir: Option<PathBuf>,
    /// Further arguments for the program.
    pub arguments: Vec<String>,
}
