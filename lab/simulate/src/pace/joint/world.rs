//! World files of `kind = "joint"`: hosts whose limits depend on the fetcher.
//!
//! Owns: the keys and their valid values; the limiters are those of [`PaceWorld`]s.
//!
//! Must not know: how a site responds.

use std::path::Path;

use serde::{Deserialize, Deserializer};

use crate::pace::world::{Class, Draw, PaceWorld};
use crate::world_file::{WorldError, WorldFile, is_of_kind};
use fetchwise::registry::FetcherSpec;

/// The shipped worlds, as name and text of the file.
pub const JOINT_WORLDS: [(&str, &str); 2] = [
    ("joint-1", include_str!("../../../worlds/joint-1.toml")),
    ("joint-2", include_str!("../../../worlds/joint-2.toml")),
];

/// A world of hosts whose limits depend on the fetcher. `lab/simulate/worlds/joint-1.toml` has
/// every key.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JointWorld {
    /// `"joint"`.
    pub kind: String,
    /// The name in results.
    pub name: String,
    /// Hosts per class; each draws its own numbers.
    pub hosts: usize,
    /// URLs per host.
    pub urls: u32,
    /// The duration of the crawl, in hours.
    pub hours: f64,
    /// The maximum number of parallel requests of a crawler to one host.
    pub parallel: u8,
    /// The median latency of a plain response, in seconds: from, to.
    pub latency: [f64; 2],
    /// The scatter of single latencies: the standard deviation of the logarithm.
    pub sigma: f64,
    /// The fetchers, the cheapest first.
    #[serde(rename = "fetcher")]
    pub fetchers: Vec<JointFetcher>,
    /// The kinds of hosts.
    #[serde(rename = "class")]
    pub classes: Vec<JointClass>,
}

/// A fetcher of a world. Its name implies its class.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JointFetcher {
    /// A built-in name.
    pub name: String,
    /// The number of parallel requests by it.
    pub places: u8,
    /// Its latency as a multiple of a plain response's.
    pub slower: f64,
}

/// A kind of hosts.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JointClass {
    /// The name in results.
    pub name: String,
    /// The limiter: the keys of a class of a pace world.
    #[serde(deserialize_with = "limit")]
    pub limit: Class,
    /// The fetchers whose requests the limiter counts.
    pub counts: Vec<String>,
    /// The fetchers that it refuses when it is closed.
    pub refuses: Vec<String>,
    /// The requests of a rendered page to the host.
    pub page_requests: Draw,
    /// The share of pages that are a shell to fetchers that run no scripts.
    #[serde(default)]
    pub shells: f64,
    /// The blocks that do not depend on the pace.
    #[serde(default)]
    pub content_blocked: Option<ContentBlocked>,
}

/// Blocks that do not depend on the pace.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ContentBlocked {
    /// The blocked fetchers.
    pub who: Vec<String>,
    /// The share of blocked pages.
    pub share: f64,
    /// The hour of their begin.
    #[serde(default)]
    pub from_h: f64,
}

/// Reads a class of a pace world. Its name comes from the class around it.
fn limit<'de, D: Deserializer<'de>>(from: D) -> Result<Class, D::Error> {
    let mut table = toml::Table::deserialize(from)?;
    table.insert("name".to_owned(), toml::Value::String("limit".to_owned()));
    Class::deserialize(table).map_err(serde::de::Error::custom)
}

impl JointWorld {
    /// Returns whether a file declares this kind, even if it is otherwise invalid.
    pub fn is_one(text: &str) -> bool {
        is_of_kind(text, "joint")
    }

    /// Reads a world file.
    ///
    /// # Errors
    /// [`WorldError`] when it cannot be read or is invalid.
    pub fn read(path: &Path) -> Result<Self, WorldError> {
        Self::from_file(path)
    }

    /// Reads the text of a world file; `origin` names it in messages.
    ///
    /// # Errors
    /// [`WorldError`] when it is invalid.
    pub fn parse(text: &str, origin: &str) -> Result<Self, WorldError> {
        Self::from_text(text, origin)
    }

    /// Returns the limiter classes as a pace world.
    pub(super) fn limits(&self) -> PaceWorld {
        PaceWorld {
            kind: "pace".to_owned(),
            name: self.name.clone(),
            hosts: self.hosts,
            urls: self.urls,
            hours: self.hours,
            parallel: self.parallel,
            latency: self.latency,
            sigma: self.sigma,
            before: None,
            classes: self.classes.iter().map(|class| class.limit.clone()).collect(),
        }
    }

    /// Returns the fetcher at `place`, as a selector knows it.
    pub(super) fn spec(&self, place: usize) -> Option<FetcherSpec> {
        self.fetchers.get(place).map(|fetcher| FetcherSpec::by_name(&fetcher.name))
    }
}

impl WorldFile for JointWorld {
    fn called(&self) -> &str {
        &self.name
    }

    fn check(&self) -> Result<(), WorldError> {
        self.expect("kind", &self.kind, self.kind == "joint", "\"joint\"")?;
        self.limits().check()?;
        let count = self.fetchers.len();
        self.expect("fetcher", count, (1..=8).contains(&count), "1 to 8 of them")?;
        for fetcher in &self.fetchers {
            let is_asker = ["direct_access", "playwright", "playwright_stealth"]
                .contains(&fetcher.name.as_str());
            self.expect(
                "fetcher.name",
                &fetcher.name,
                is_asker,
                "direct_access, playwright or playwright_stealth",
            )?;
            self.expect("fetcher.places", fetcher.places, fetcher.places > 0, "at least 1")?;
            let slower = fetcher.slower;
            self.expect("fetcher.slower", slower, (1.0..=100.0).contains(&slower), "1 to 100")?;
        }
        let first = self.spec(0).is_some_and(|spec| !spec.renders);
        self.expect(
            "fetcher",
            "no plain one first",
            first,
            "the plain one before those that render",
        )?;
        self.classes.iter().try_for_each(|class| self.check_class(class))
    }
}

impl JointWorld {
    fn check_class(&self, class: &JointClass) -> Result<(), WorldError> {
        let share = |share: f64| (0.0..=1.0).contains(&share);
        self.expect("class.shells", class.shells, share(class.shells), "a share")?;
        let mut named = class
            .counts
            .iter()
            .chain(&class.refuses)
            .chain(class.content_blocked.iter().flat_map(|w| &w.who));
        let unknown =
            named.find(|name| !self.fetchers.iter().any(|fetcher| fetcher.name == **name));
        self.expect(
            "class.counts, refuses, content_blocked.who",
            format_args!("{unknown:?}"),
            unknown.is_none(),
            "fetchers",
        )?;
        let requests = match &class.page_requests {
            Draw::Range([from, to]) => *from >= 1.0 && from <= to && *to <= 500.0,
            Draw::Any { any } => {
                !any.is_empty() && any.iter().all(|value| (1.0..=500.0).contains(value))
            }
        };
        let got = format_args!("{:?}", class.page_requests);
        self.expect("class.page_requests", got, requests, "1 to 500, in order")?;
        if let Some(content_blocked) = &class.content_blocked {
            self.expect(
                "class.content_blocked.share",
                content_blocked.share,
                share(content_blocked.share),
                "a share",
            )?;
            let from = content_blocked.from_h;
            self.expect(
                "class.content_blocked.from_h",
                from,
                (0.0..=1000.0).contains(&from),
                "hours",
            )?;
        }
        let hosts = class.limit.hosts_a_site;
        self.expect(
            "class.limit.hosts_a_site",
            hosts,
            hosts == 1,
            "1: each host is a separate site",
        )
    }
}
