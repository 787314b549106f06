//! World files: the description of a generated web, as TOML.
//!
//! Owns: the keys and their valid values.
//!
//! Invariants: a parsed [`World`] can be generated and run: shares are shares, mixes have a sum
//! above zero, sizes fit in memory. Unknown keys are errors, because a misspelt key would run a
//! different world.
//!
//! Must not know: how a world is generated.

use std::collections::HashSet;
use std::path::Path;

use serde::Deserialize;

use super::vendor::{self, Tags, Vendor};
use crate::world_file::{WorldError, WorldFile};
use fetchwise::registry::{Class, FetcherSpec};

/// The maximum number of visits of a world: each takes about 30 bytes.
const MAX_URLS: usize = 50_000_000;
/// The maximum number of sites of a world: each takes about half a kilobyte.
const MAX_SITES: usize = 5_000_000;

/// The maximum number of fetchers: the oracle tries every order of them.
const MAX_FETCHERS: usize = 16;

/// The class of a page, by what is needed to read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Render {
    /// Complete in the HTML.
    Static = 0,
    /// A shell that scripts fill.
    Spa = 1,
    /// Partly filled by scripts.
    JsPartial = 2,
    /// A player.
    Video = 3,
    /// A file, not a page.
    File = 4,
}

/// The protection of a host against crawlers, the mildest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Protection {
    /// No protection.
    None = 0,
    /// A limit on the rate of requests.
    Rate = 1,
    /// Captchas.
    Captcha = 2,
    /// Bot protection that stealth still passes.
    Hard = 3,
    /// Bot protection that almost nothing passes.
    Fortress = 4,
}

/// One number for each [`Render`] class.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ByRender {
    /// For [`Render::Static`].
    #[serde(rename = "static")]
    pub static_: f64,
    /// For [`Render::Spa`].
    pub spa: f64,
    /// For [`Render::JsPartial`].
    pub js_partial: f64,
    /// For [`Render::Video`].
    pub video: f64,
    /// For [`Render::File`].
    pub file: f64,
}

impl ByRender {
    /// Returns the numbers in the order of the enum.
    pub fn array(&self) -> [f64; 5] {
        [self.static_, self.spa, self.js_partial, self.video, self.file]
    }
}

/// One number for each [`Protection`].
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ByProtection {
    /// For [`Protection::None`].
    pub none: f64,
    /// For [`Protection::Rate`].
    pub rate: f64,
    /// For [`Protection::Captcha`].
    pub captcha: f64,
    /// For [`Protection::Hard`].
    pub hard: f64,
    /// For [`Protection::Fortress`].
    pub fortress: f64,
}

impl ByProtection {
    /// Returns the numbers in the order of the enum.
    pub fn array(&self) -> [f64; 5] {
        [self.none, self.rate, self.captcha, self.hard, self.fortress]
    }
}

/// Bursts that are much larger than most.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BigBurst {
    /// The share of bursts that are big.
    pub p: f64,
    /// Their mean number of URLs.
    pub size: f64,
}

/// How hosts change over time.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Drift {
    /// Mean days between changes of protection; changes of rendering take 1.5 times as long. 0 for
    /// a world without changes.
    pub days: f64,
    /// The probability that a protected host becomes milder.
    pub better: f64,
    /// The probability that an open host becomes protected.
    pub worse: f64,
}

/// A change that many sites make on one day.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Flip {
    /// The day; 0 for never.
    pub day: f64,
    /// The share of the sites that turns captchas on or off.
    pub share: f64,
}

/// A fetcher of a world: its cost and its abilities.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fetcher {
    /// The name.
    pub name: String,
    /// The cost of a request, in direct requests.
    pub cost: f64,
    /// The value of what it delivers, as a share of the page.
    pub quality: f64,
    /// The probability that it reads a page of each class.
    pub render: ByRender,
    /// The probability that it passes each protection.
    pub protection: ByProtection,
    /// The pressure that one of its requests adds to a host.
    pub pressure: f64,
}

/// A framework or a server software, by what it serves.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Label {
    /// The name that its responses show; empty for none.
    pub name: String,
    /// Its frequency among hosts, by the class of their first section.
    pub weight: ByRender,
}

/// A generated web.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct World {
    /// The name in results.
    pub name: String,
    /// The duration in days.
    pub days: f64,
    /// The number of sites.
    pub sites: usize,
    /// The number of visited URLs.
    pub urls: usize,
    /// The exponent with which a site's share of visits falls with its rank.
    pub zipf: f64,
    /// The share of sites that are born during the run.
    pub new_site_share: f64,
    /// The mean number of URLs in a burst.
    pub burst: f64,
    /// Bursts that are larger.
    pub big_burst: BigBurst,
    /// The classes of sites.
    pub render_mix: ByRender,
    /// The protections of sites.
    pub protection_mix: ByProtection,
    /// The share of hosts whose sections have separate classes.
    pub mixed_sections: f64,
    /// The share of sites with more hosts than `www`.
    pub multi_host: f64,
    /// How hosts change.
    pub drift: Drift,
    /// The share of URLs that are files.
    pub file_share: f64,
    /// The share of sites whose files are not behind captchas or bot protection.
    pub file_exempt: f64,
    /// The share of hosts that are unreliable.
    pub flaky: f64,
    /// The share of dead URLs.
    pub dead: f64,
    /// The probability of a timeout, for the fetcher with the fewest.
    pub timeout: f64,
    /// The probability that a failure looks like content.
    pub false_success: f64,
    /// The irritability of hosts: divides their limits.
    pub ban: f64,
    /// The share of visits that go to one huge static site.
    pub giant_share: f64,
    /// A change that many sites make on one day.
    pub flip: Flip,
    /// V: the value of a page, in direct requests.
    pub value: f64,
    /// The cost of a blocked response, in addition to the request.
    pub blocked_cost: f64,
    /// The cost of a ban.
    pub ban_cost: f64,
    /// The cost of a failure that is taken for content.
    pub false_success_cost: f64,
    /// The maximum number of attempts per URL.
    pub max_attempts: u32,
    /// The fetchers, `direct_access` first.
    #[serde(rename = "fetcher")]
    pub fetchers: Vec<Fetcher>,
    /// How well responses show vendors, frameworks and servers. Without those lists nothing is
    /// shown.
    pub tags: Option<Tags>,
    /// The vendors of captchas, bot protection and fortresses. Without vendors, each class of
    /// protection has its own probabilities.
    #[serde(rename = "vendor", default)]
    pub vendors: Vec<Vendor>,
    /// The frameworks of pages.
    #[serde(rename = "framework", default)]
    pub frameworks: Vec<Label>,
    /// The servers of pages.
    #[serde(rename = "server", default)]
    pub servers: Vec<Label>,
}

/// The role of a fetcher. It decides whether it can be banned, how often it times out, and whether
/// it takes a block for content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Direct,
    Browser,
    Stealth,
    Archive,
    Downloader,
}

impl World {
    /// Reads a world file.
    ///
    /// # Errors
    /// [`WorldError`] names the file and its error.
    pub fn read(path: &Path) -> Result<Self, WorldError> {
        Self::from_file(path)
    }

    /// Reads a world from the text of a world file; `origin` names it in errors.
    ///
    /// # Errors
    /// [`WorldError`] names the key and its expected values.
    pub fn parse(text: &str, origin: &str) -> Result<Self, WorldError> {
        Self::from_text(text, origin)
    }

    /// Returns the fetcher's spec for a selector: name, cost, quality; everything else follows from
    /// its name.
    pub fn spec(&self, fetcher: usize) -> Option<FetcherSpec> {
        let of = self.fetchers.get(fetcher)?;
        Some(FetcherSpec { cost: of.cost, quality: of.quality, ..FetcherSpec::by_name(&of.name) })
    }

    /// Returns the same world for a crawler that signs nothing: without the fetchers that sign.
    #[must_use]
    pub fn without_signed(&self) -> Self {
        let is_kept: Vec<bool> =
            (0..self.fetchers.len()).map(|place| !self.is_signed(place)).collect();
        let keep = |pass: &mut Vec<f64>| {
            let mut kept = is_kept.iter();
            pass.retain(|_| kept.next().is_none_or(|kept| *kept));
        };
        let mut world = self.clone();
        for vendor in &mut world.vendors {
            let shifted = vendor.shift.iter_mut().flat_map(|shift| &mut shift.settings);
            vendor.settings.iter_mut().chain(shifted).for_each(|setting| keep(&mut setting.pass));
        }
        world.fetchers.retain(|fetcher| !FetcherSpec::by_name(&fetcher.name).signed);
        world
    }

    fn is_signed(&self, place: usize) -> bool {
        self.fetchers.get(place).is_some_and(|fetcher| FetcherSpec::by_name(&fetcher.name).signed)
    }

    /// Returns the role of the fetcher at `place`: by its name or, if the name implies none, by its
    /// position in the file.
    pub(crate) fn role(&self, place: usize) -> Role {
        const BY_PLACE: [Role; 5] =
            [Role::Direct, Role::Browser, Role::Stealth, Role::Archive, Role::Downloader];
        match self.fetchers.get(place).map(|fetcher| FetcherSpec::by_name(&fetcher.name).class) {
            Some(Class::Plain) => Role::Direct,
            Some(Class::Rendering) => Role::Browser,
            Some(Class::Stealth) => Role::Stealth,
            Some(Class::Archive) => Role::Archive,
            Some(Class::Special) => Role::Downloader,
            _ => BY_PLACE.get(place).copied().unwrap_or(Role::Downloader),
        }
    }
}

impl WorldFile for World {
    fn called(&self) -> &str {
        &self.name
    }

    fn check(&self) -> Result<(), WorldError> {
        self.check_numbers()?;
        self.check_fetchers()?;
        for (key, mix) in [
            ("render_mix", self.render_mix.array()),
            ("protection_mix", self.protection_mix.array()),
        ] {
            for share in mix {
                self.expect(key, share, (0.0..=1.0).contains(&share), "shares between 0 and 1")?;
            }
            let sum: f64 = mix.iter().sum();
            self.expect(key, sum, sum > 0.0, "a sum above 0")?;
        }
        self.check_labels()?;
        vendor::check(self.tags.as_ref(), &self.vendors, self.fetchers.len()).map_err(
            |(key, got, expected)| WorldError::Value {
                world: self.name.clone(),
                key: key.to_owned(),
                got,
                expected,
            },
        )
    }
}

impl World {
    fn check_labels(&self) -> Result<(), WorldError> {
        for (key, labels) in
            [("framework.weight", &self.frameworks), ("server.weight", &self.servers)]
        {
            self.expect(
                key,
                labels.len(),
                labels.len() <= usize::from(u8::MAX),
                "at most 255 of them",
            )?;
            for class in 0..5 {
                let weights = labels.iter().map(|label| label.weight.array()[class]);
                for weight in weights.clone() {
                    self.expect(key, weight, (0.0..=1e9).contains(&weight), "weights from 0 on")?;
                }
                let sum: f64 = weights.sum();
                self.expect(
                    key,
                    sum,
                    labels.is_empty() || sum > 0.0,
                    "a sum above 0 for each class",
                )?;
            }
        }
        Ok(())
    }

    fn check_numbers(&self) -> Result<(), WorldError> {
        let shares = [
            ("new_site_share", self.new_site_share),
            ("big_burst.p", self.big_burst.p),
            ("mixed_sections", self.mixed_sections),
            ("multi_host", self.multi_host),
            ("drift.better", self.drift.better),
            ("drift.worse", self.drift.worse),
            ("file_share", self.file_share),
            ("file_exempt", self.file_exempt),
            ("flaky", self.flaky),
            ("dead", self.dead),
            ("timeout", self.timeout),
            ("false_success", self.false_success),
            ("giant_share", self.giant_share),
            ("flip.share", self.flip.share),
        ];
        for (key, share) in shares {
            self.expect(key, share, (0.0..=1.0).contains(&share), "a share between 0 and 1")?;
        }
        let amounts = [
            ("zipf", self.zipf, 10.0),
            ("drift.days", self.drift.days, 1e6),
            ("flip.day", self.flip.day, 3650.0),
            ("value", self.value, 1e9),
            ("blocked_cost", self.blocked_cost, 1e9),
            ("ban_cost", self.ban_cost, 1e9),
            ("false_success_cost", self.false_success_cost, 1e9),
            ("big_burst.size", self.big_burst.size, 1e6),
        ];
        for (key, amount, most) in amounts {
            self.expect(
                key,
                amount,
                (0.0..=most).contains(&amount),
                "a number from 0 up to a sensible size",
            )?;
        }
        self.expect(
            "days",
            self.days,
            self.days > 0.0 && self.days <= 3650.0,
            "more than 0 and at most 3650 days",
        )?;
        self.expect(
            "burst",
            self.burst,
            (1.0..=1e6).contains(&self.burst),
            "a mean of at least 1 URL",
        )?;
        self.expect("ban", self.ban, self.ban > 0.0 && self.ban <= 1e6, "a number above 0")?;
        self.expect(
            "urls",
            self.urls,
            (1..=MAX_URLS).contains(&self.urls),
            "between 1 and 50 million",
        )?;
        self.expect(
            "sites",
            self.sites,
            (1..=MAX_SITES).contains(&self.sites),
            "between 1 and 5 million",
        )?;
        let attempts = self.max_attempts;
        self.expect("max_attempts", attempts, (1..=5).contains(&attempts), "between 1 and 5")
    }

    fn check_fetchers(&self) -> Result<(), WorldError> {
        let count = self.fetchers.len();
        self.expect(
            "fetcher",
            count,
            (1..=MAX_FETCHERS).contains(&count),
            "between 1 and 16 of them",
        )?;
        let mut names = HashSet::new();
        for fetcher in &self.fetchers {
            let fresh = !fetcher.name.is_empty()
                && names.insert(fetchwise::registry::canonical(&fetcher.name));
            self.expect(
                "fetcher.name",
                &fetcher.name,
                fresh,
                "names that are not empty and differ",
            )?;
            let amounts = [("fetcher.cost", fetcher.cost), ("fetcher.pressure", fetcher.pressure)];
            for (key, amount) in amounts {
                self.expect(key, amount, (0.0..=1e9).contains(&amount), "a number from 0 on")?;
            }
            let quality = fetcher.quality;
            self.expect(
                "fetcher.quality",
                quality,
                (0.0..=1.0).contains(&quality),
                "a share between 0 and 1",
            )?;
            for (key, chances) in [
                ("fetcher.render", fetcher.render.array()),
                ("fetcher.protection", fetcher.protection.array()),
            ] {
                for chance in chances {
                    self.expect(
                        key,
                        chance,
                        (0.0..=1.0).contains(&chance),
                        "chances between 0 and 1",
                    )?;
                }
            }
        }
        Ok(())
    }
}

/// The shipped worlds, as name and text of the file.
pub const SHIPPED: [(&str, &str); 7] = [
    ("W1", include_str!("../worlds/W1.toml")),
    ("W2", include_str!("../worlds/W2.toml")),
    ("W3", include_str!("../worlds/W3.toml")),
    ("W4", include_str!("../worlds/W4.toml")),
    ("W5", include_str!("../worlds/W5.toml")),
    ("W6", include_str!("../worlds/W6.toml")),
    ("W7", include_str!("../worlds/W7.toml")),
];

/// Further worlds, against policies that are tuned to [`SHIPPED`] only, as name and text of the
/// file.
pub const MORE: [(&str, &str); 20] = [
    ("newsroom", include_str!("../worlds/newsroom.toml")),
    ("flaky", include_str!("../worlds/flaky.toml")),
    ("restless", include_str!("../worlds/restless.toml")),
    ("scripted", include_str!("../worlds/scripted.toml")),
    ("sparse", include_str!("../worlds/sparse.toml")),
    ("thrifty", include_str!("../worlds/thrifty.toml")),
    ("still", include_str!("../worlds/still.toml")),
    ("captcha-flip", include_str!("../worlds/captcha-flip.toml")),
    ("app-drift", include_str!("../worlds/app-drift.toml")),
    ("V1", include_str!("../worlds/V1.toml")),
    ("V2", include_str!("../worlds/V2.toml")),
    ("V3", include_str!("../worlds/V3.toml")),
    ("V4", include_str!("../worlds/V4.toml")),
    ("N1", include_str!("../worlds/N1.toml")),
    ("strict", include_str!("../worlds/strict.toml")),
    ("motley", include_str!("../worlds/motley.toml")),
    ("fickle", include_str!("../worlds/fickle.toml")),
    ("I1", include_str!("../worlds/I1.toml")),
    ("I0", include_str!("../worlds/I0.toml")),
    ("I2", include_str!("../worlds/I2.toml")),
];

/// The shipped worlds of [`PaceWorld`](crate::PaceWorld)s, as name and text of the file.
pub const PACE_WORLDS: [(&str, &str); 6] = [
    ("pace", include_str!("../worlds/pace.toml")),
    ("pace-8h", include_str!("../worlds/pace-8h.toml")),
    ("pace-again", include_str!("../worlds/pace-again.toml")),
    ("pace-held-out", include_str!("../worlds/pace-held-out.toml")),
    ("pace-others", include_str!("../worlds/pace-others.toml")),
    ("pace-walls", include_str!("../worlds/pace-walls.toml")),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<World, WorldError> {
        World::parse(text, "test.toml")
    }

    #[test]
    fn every_shipped_world_is_valid() {
        for (name, text) in SHIPPED.into_iter().chain(MORE) {
            let world = parse(text).unwrap();
            assert!(world.name.starts_with(name), "{name}");
            assert_eq!(world.fetchers.len(), if name.starts_with('I') { 7 } else { 5 });
            assert_eq!(world.without_signed().fetchers.len(), 5);
        }
    }

    #[test]
    fn an_unknown_key_is_an_error_that_names_it() {
        let text = SHIPPED[0].1;
        for (from, to, key) in [
            ("zipf = 1.0", "zipf = 1.0\nzipff = 1.0", "zipff"),
            ("p = 0.004,", "p = 0.004, q = 1,", "q"),
            ("pressure = 0.7", "pressure = 0.7\nspeed = 1", "speed"),
        ] {
            let changed = text.replacen(from, to, 1);
            assert_ne!(changed, text);
            let message = parse(&changed).unwrap_err().to_string();
            assert!(message.contains(key) && message.contains("test.toml"), "{message}");
        }
    }

    #[test]
    fn invalid_values_are_refused_with_their_key() {
        let text = SHIPPED[0].1;
        for (from, to, key) in [
            ("dead = 0.02", "dead = 1.2", "dead"),
            ("days = 180.0", "days = 0.0", "days"),
            ("zipf = 1.0", "zipf = nan", "zipf"),
            ("burst = 4.0", "burst = 0.5", "burst"),
            ("urls = 300000", "urls = 0", "urls"),
            ("static = 0.985", "static = -0.1", "fetcher.render"),
            ("name = \"playwright\"", "name = \"direct_access\"", "fetcher.name"),
        ] {
            let message = parse(&text.replacen(from, to, 1)).unwrap_err().to_string();
            assert!(message.contains(key) && message.contains("W1-base"), "{message}");
        }
    }

    #[test]
    fn a_missing_file_is_named() {
        let message = World::read(Path::new("no/such/world.toml")).unwrap_err().to_string();
        assert!(message.contains("no/such/world.toml"), "{message}");
    }

    #[test]
    fn an_unknown_fetcher_has_the_role_of_its_position() {
        let text = SHIPPED[0].1.replacen("name = \"playwright_stealth\"", "name = \"ghost\"", 1);
        let world = parse(&text).unwrap();
        assert_eq!(
            [world.role(0), world.role(2), world.role(9)],
            [Role::Direct, Role::Stealth, Role::Downloader]
        );
    }
}
