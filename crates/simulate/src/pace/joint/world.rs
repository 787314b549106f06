//! World files of `kind = "joint"`: hosts whose limits depend on who asks.
//!
//! Owns the keys and which values make sense; the limiters are those of [`PaceWorld`]s. Must not know how a site answers.

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

/// A world of hosts whose limits depend on who asks. `simulate/worlds/joint-1.toml` has every key.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JointWorld {
    /// `"joint"`.
    pub kind: String,
    /// What it is called in results.
    pub name: String,
    /// Hosts of each class; each has its own numbers.
    pub hosts: usize,
    /// URLs of each of them.
    pub urls: u32,
    /// How long it is crawled, in hours.
    pub hours: f64,
    /// Requests at once that a crawler makes at most to one host.
    pub parallel: u8,
    /// The median latency of a plain answer, in seconds: from, to.
    pub latency: [f64; 2],
    /// How much the latency of single answers scatters: the standard deviation of its logarithm.
    pub sigma: f64,
    /// Who can be sent, the cheapest first.
    #[serde(rename = "fetcher")]
    pub fetchers: Vec<JointFetcher>,
    /// The kinds of hosts.
    #[serde(rename = "class")]
    pub classes: Vec<JointClass>,
}

/// A fetcher of a world. Its name decides what it is.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JointFetcher {
    /// A built-in name.
    pub name: String,
    /// How many of them this crawler has.
    pub places: u8,
    /// How many times as long as a plain answer it takes.
    pub slower: f64,
}

/// A kind of hosts.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JointClass {
    /// What it is called in results.
    pub name: String,
    /// What limits it: the keys of a class of a pace world.
    #[serde(deserialize_with = "limit")]
    pub limit: Class,
    /// Whose requests the limiter counts.
    pub counts: Vec<String>,
    /// Whom it refuses when it is closed.
    pub refuses: Vec<String>,
    /// How many requests a rendered page makes to the host.
    pub page_requests: Draw,
    /// The share of pages that are a shell to whoever runs no scripts.
    #[serde(default)]
    pub shells: f64,
    /// Who meets a wall on so many of the pages, whatever the pace.
    #[serde(default)]
    pub walled: Option<Walled>,
}

/// A wall that has nothing to do with pace.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Walled {
    /// Who meets it.
    pub who: Vec<String>,
    /// On this share of the pages.
    pub share: f64,
    /// From this hour on.
    #[serde(default)]
    pub from_h: f64,
}

/// A class of a pace world. What it is called is said by the class that it stands in.
fn limit<'de, D: Deserializer<'de>>(from: D) -> Result<Class, D::Error> {
    let mut table = toml::Table::deserialize(from)?;
    table.insert("name".to_owned(), toml::Value::String("limit".to_owned()));
    Class::deserialize(table).map_err(serde::de::Error::custom)
}

impl JointWorld {
    /// Whether a file is of this kind, whatever else is wrong with it.
    pub fn is_one(text: &str) -> bool {
        is_of_kind(text, "joint")
    }

    /// Reads a world file.
    ///
    /// # Errors
    /// [`WorldError`] when it cannot be read or makes no sense.
    pub fn read(path: &Path) -> Result<Self, WorldError> {
        Self::from_file(path)
    }

    /// Reads the text of a world file; `origin` stands in messages.
    ///
    /// # Errors
    /// [`WorldError`] when it makes no sense.
    pub fn parse(text: &str, origin: &str) -> Result<Self, WorldError> {
        Self::from_text(text, origin)
    }

    /// What the limiters have to know of the world.
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

    /// The fetcher at `place`, as a selector knows it.
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
            let is_asker = ["direct_access", "playwright", "playwright_stealth"].contains(&fetcher.name.as_str());
            self.expect("fetcher.name", &fetcher.name, is_asker, "direct_access, playwright or playwright_stealth")?;
            self.expect("fetcher.places", fetcher.places, fetcher.places > 0, "at least 1")?;
            let slower = fetcher.slower;
            self.expect("fetcher.slower", slower, (1.0..=100.0).contains(&slower), "1 to 100")?;
        }
        let first = self.spec(0).is_some_and(|spec| !spec.renders);
        self.expect("fetcher", "no plain one first", first, "the plain one before those that render")?;
        self.classes.iter().try_for_each(|class| self.check_class(class))
    }
}

impl JointWorld {
    fn check_class(&self, class: &JointClass) -> Result<(), WorldError> {
        let share = |share: f64| (0.0..=1.0).contains(&share);
        self.expect("class.shells", class.shells, share(class.shells), "a share")?;
        let mut named = class.counts.iter().chain(&class.refuses).chain(class.walled.iter().flat_map(|w| &w.who));
        let unknown = named.find(|name| !self.fetchers.iter().any(|fetcher| fetcher.name == **name));
        self.expect("class.counts, refuses, walled.who", format_args!("{unknown:?}"), unknown.is_none(), "fetchers")?;
        let requests = match &class.page_requests {
            Draw::Range([from, to]) => *from >= 1.0 && from <= to && *to <= 500.0,
            Draw::Any { any } => !any.is_empty() && any.iter().all(|value| (1.0..=500.0).contains(value)),
        };
        let got = format_args!("{:?}", class.page_requests);
        self.expect("class.page_requests", got, requests, "1 to 500, in order")?;
        if let Some(walled) = &class.walled {
            self.expect("class.walled.share", walled.share, share(walled.share), "a share")?;
            let from = walled.from_h;
            self.expect("class.walled.from_h", from, (0.0..=1000.0).contains(&from), "hours")?;
        }
        let hosts = class.limit.hosts_a_site;
        self.expect("class.limit.hosts_a_site", hosts, hosts == 1, "1: each host is a site of its own")
    }
}
