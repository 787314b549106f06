//! Tables of a `[[fetcher]]` that configure where it gets its pages: keys and their types.
//!
//! As with the other tables, absent keys are `None`. The documents show these keys by examples that
//! are written by hand.
//!
//! Must not know: the effect of a value.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;
use url::Url;

use super::declare::{settings, single_values};
use super::secret::{Secret, without_password};
use super::value;
use fetchwise_types::time::Timestamp;

settings! {
    /// `[fetcher.archive]`: web archives.
    #[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
    #[serde(deny_unknown_fields, default)]
    pub struct ArchiveConfig {
        /// Preferred date of the copy; the newest copy if unset.
        #[serde(deserialize_with = "value::date")]
        pub wanted: Option<Timestamp>;
        /// Archives in the order of requests; the Internet Archive if empty.
        pub from: Vec<ArchiveFrom>;
    }

    /// `[[fetcher.archive.from]]`: one archive, `wayback` or `timegate`.
    #[derive(Clone, Default, PartialEq, Eq, Deserialize)]
    #[serde(deny_unknown_fields, default)]
    pub struct ArchiveFrom {
        /// URL of an archive that works like the Wayback Machine, with captures below `/web/`.
        #[serde(deserialize_with = "value::web_address")]
        pub wayback: Option<Url>;
        /// URL of its availability API.
        #[serde(deserialize_with = "value::web_address")]
        pub availability: Option<Url>;
        /// URL of a Memento TimeGate; the page's URL is appended.
        #[serde(deserialize_with = "value::web_address")]
        pub timegate: Option<Url>;
    }

    /// `[fetcher.search]`: a search API. Fields of a record are JSON pointers. `nytime_searcher`
    /// takes absent keys from its shipped configuration.
    #[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
    #[serde(deny_unknown_fields, default)]
    pub struct SearchConfig {
        /// URL of the API, with `{url}` for the page's URL and `{key}` for the API key.
        pub url: Option<Secret>;
        /// Environment variable that holds the API key.
        pub key_env: Option<String>;
        /// Header for the API key.
        pub key_header: Option<String>;
        /// Sites that the API covers; all if empty.
        pub hosts: Option<Vec<String>>;
        /// Place of the records in a response.
        pub records: Option<String>;
        /// Place of the page's URL in a record.
        pub address: Option<String>;
        /// Place of the title.
        pub title: Option<String>;
        /// Place of the abstract.
        #[serde(rename = "abstract")]
        pub summary: Option<String>;
        /// Place of the text.
        pub body: Option<String>;
        /// Place of the date.
        pub date: Option<String>;
    }

    /// `[fetcher.download]`: media downloads with yt-dlp.
    #[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
    #[serde(deny_unknown_fields, default)]
    pub struct DownloadConfig {
        /// Path of the program; `yt-dlp` on the PATH if unset.
        pub program: Option<PathBuf>;
        /// Format, as in yt-dlp's `--format`.
        pub format: Option<String>;
        /// Languages of the subtitles to download.
        pub subtitles: Vec<String>;
        /// Longest duration of a download.
        #[serde(deserialize_with = "value::seconds")]
        pub max_time: Option<Duration>;
        /// Directory for media, their metadata, and subtitles.
        pub dir: Option<PathBuf>;
        /// Further arguments for the program.
        pub arguments: Vec<String>;
    }
}

single_values! {
    Any: Timestamp;
}

/// Omits the user and the password that a URL may hold.
impl fmt::Debug for ArchiveFrom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("ArchiveFrom");
        let own = [
            ("wayback", &self.wayback),
            ("availability", &self.availability),
            ("timegate", &self.timegate),
        ];
        for (name, address) in own {
            shown.field(
                name,
                &address.as_ref().map(|address| without_password(address.as_str()).into_owned()),
            );
        }
        shown.finish()
    }
}
