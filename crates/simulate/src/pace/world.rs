//! World files of `kind = "pace"`: kinds of hosts that limit how fast they may be asked.
//!
//! Owns the keys and which values make sense. Must not know how a limiter works.

use std::path::Path;

use serde::Deserialize;

use crate::rng::Stream;
use crate::world_file::{WorldError, WorldFile, is_of_kind};

/// A world of hosts with limits. `simulate/worlds/pace.toml` has every key.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PaceWorld {
    /// `"pace"`.
    pub kind: String,
    /// What it is called in results.
    pub name: String,
    /// Limiters of each class; each has its own numbers.
    pub hosts: usize,
    /// URLs of each of them.
    pub urls: u32,
    /// How long it is crawled, in hours.
    pub hours: f64,
    /// Requests at once that a crawler makes at most to one host.
    pub parallel: u8,
    /// The median latency of hosts, in seconds: from, to.
    pub latency: [f64; 2],
    /// How much the latency of single answers scatters: the standard deviation of its logarithm.
    pub sigma: f64,
    /// A crawl before, of which what was remembered is taken up.
    #[serde(default)]
    pub before: Option<Before>,
    /// The kinds of hosts.
    #[serde(rename = "class")]
    pub classes: Vec<Class>,
}

/// A crawl before the one that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Before {
    /// How long it lasted.
    pub hours: f64,
    /// How long nothing was asked after it.
    pub pause_min: f64,
}

/// A number that differs from host to host.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(untagged)]
pub enum Draw {
    /// From, to; orders of magnitude are as likely.
    Range([f64; 2]),
    /// One of these.
    Any {
        /// These.
        any: Vec<f64>,
    },
}

/// What decides whether a request is let through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LimiterKind {
    /// Everything is.
    None,
    /// `n` in each window that begins with the clock; 429 until it ends.
    Window,
    /// `n` within any `window_s`; then 429 for `penalty_s`.
    Mitigate,
    /// A bucket of `burst` that runs out at `rate`; `status` when it is full.
    Bucket,
    /// More than `n` within any `window_s`, looked at every ten seconds, refused ones counted too; 403 while that is so.
    Waf,
    /// The same, and what is let through on top waits until its turn has come.
    Leaky,
    /// `n` at once; else 503.
    Parallel,
    /// More than `rate` over `window_s`; then captchas for `penalty_s`.
    Captcha,
    /// More than `rate` over `window_s`; then refused for `penalty_s`, twice as long each time, and ten seconds more for each try.
    Escalate,
    /// Everything is, and answered one after the other, `capacity` a second.
    Queue,
}

/// One limiter, or some of which each host has one.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(untagged)]
pub enum Limiters {
    /// This one.
    One(LimiterKind),
    /// One of these.
    Any {
        /// These.
        any: Vec<LimiterKind>,
    },
}

impl Limiters {
    /// All that a host may have.
    pub(super) fn all(&self) -> &[LimiterKind] {
        match self {
            Self::One(kind) => std::slice::from_ref(kind),
            Self::Any { any } => any,
        }
    }

    /// The limiter of one host.
    pub(super) fn draw(&self, chance: &mut Stream) -> LimiterKind {
        match self.all() {
            [only] => *only,
            all => all.get(chance.below(all.len())).copied().unwrap_or(LimiterKind::None),
        }
    }
}

/// A kind of hosts.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Class {
    /// What it is called in results.
    pub name: String,
    /// What limits it.
    pub limiter: Limiters,
    /// Requests that are allowed, by count.
    #[serde(default)]
    pub n: Option<Draw>,
    /// The window that is counted over, in seconds.
    #[serde(default)]
    pub window_s: Option<Draw>,
    /// Requests a second that are allowed.
    #[serde(default)]
    pub rate: Option<Draw>,
    /// How many are let through at once all the same.
    #[serde(default)]
    pub burst: Option<Draw>,
    /// How long nothing is let through.
    #[serde(default)]
    pub penalty_s: Option<Draw>,
    /// Requests a second that can be answered.
    #[serde(default)]
    pub capacity: Option<Draw>,
    /// What a full bucket answers.
    #[serde(default)]
    pub status: Option<Draw>,
    /// The share of hosts that say for how long.
    #[serde(default)]
    pub retry_after: f64,
    /// The share of answers that are a 500 for no reason.
    #[serde(default)]
    pub stray_5xx: Option<Draw>,
    /// The share of pages that are a 403 for everybody.
    #[serde(default)]
    pub stray_403: Option<Draw>,
    /// By how much the limit goes down and up again, and in how many hours.
    #[serde(default)]
    pub day: Option<[f64; 2]>,
    /// When the limit changes, in hours, and by what factor.
    #[serde(default)]
    pub change: Option<[f64; 2]>,
    /// Hosts that share a limiter, and a registrable domain.
    #[serde(default = "one")]
    pub hosts_a_site: usize,
    /// As the world's.
    #[serde(default)]
    pub latency: Option<[f64; 2]>,
    /// Whether it counts in the means.
    #[serde(default = "yes")]
    pub in_mean: bool,
}

fn one() -> usize {
    1
}

fn yes() -> bool {
    true
}

impl Draw {
    /// A number for one host.
    pub(super) fn draw(&self, chance: &mut Stream) -> f64 {
        match self {
            Self::Range([from, to]) => from * (to / from).powf(chance.unit()),
            Self::Any { any } => any.get(chance.below(any.len())).copied().unwrap_or(0.0),
        }
    }

    fn is_sound(&self) -> bool {
        match self {
            Self::Range([from, to]) => *from > 0.0 && from <= to && *to <= 1e9,
            Self::Any { any } => !any.is_empty() && any.iter().all(|value| (0.0..=1e9).contains(value)),
        }
    }
}

impl PaceWorld {
    /// Whether a file is of this kind, whatever else is wrong with it.
    pub fn is_one(text: &str) -> bool {
        is_of_kind(text, "pace")
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
}

impl WorldFile for PaceWorld {
    fn called(&self) -> &str {
        &self.name
    }

    fn check(&self) -> Result<(), WorldError> {
        self.expect("kind", &self.kind, self.kind == "pace", "\"pace\"")?;
        self.expect("hosts", self.hosts, (1..=10_000).contains(&self.hosts), "1 to 10,000")?;
        self.expect("urls", self.urls, (1..=10_000_000).contains(&self.urls), "1 to 10 million")?;
        self.expect("hours", self.hours, self.hours > 0.0 && self.hours <= 1000.0, "more than 0 and at most 1000")?;
        self.expect("parallel", self.parallel, self.parallel > 0, "at least 1")?;
        self.expect("sigma", self.sigma, (0.0..=3.0).contains(&self.sigma), "0 to 3")?;
        self.expect("class", self.classes.len(), !self.classes.is_empty(), "at least one")?;
        let latency = |range: [f64; 2]| range[0] > 0.0 && range[0] <= range[1] && range[1] <= 60.0;
        self.expect("latency", format_args!("{:?}", self.latency), latency(self.latency), "two times, in order")?;
        if let Some(before) = self.before {
            let is_sound = (0.0..=1000.0).contains(&before.hours) && (0.0..=1e6).contains(&before.pause_min);
            self.expect("before", format_args!("{before:?}"), is_sound, "hours and minutes that are not negative")?;
        }
        for class in &self.classes {
            self.check_class(class)?;
            let range = class.latency.unwrap_or(self.latency);
            self.expect("class.latency", format_args!("{range:?}"), latency(range), "two times, in order")?;
        }
        Ok(())
    }
}

impl PaceWorld {
    fn check_class(&self, class: &Class) -> Result<(), WorldError> {
        let given = [
            ("class.n", &class.n),
            ("class.window_s", &class.window_s),
            ("class.rate", &class.rate),
            ("class.burst", &class.burst),
            ("class.penalty_s", &class.penalty_s),
            ("class.capacity", &class.capacity),
            ("class.status", &class.status),
            ("class.stray_5xx", &class.stray_5xx),
            ("class.stray_403", &class.stray_403),
        ];
        for (key, draw) in given {
            let is_sound = draw.as_ref().is_none_or(Draw::is_sound);
            self.expect(key, format_args!("{draw:?}"), is_sound, "numbers above 0, in order")?;
        }
        self.expect("class.limiter", "none", !class.limiter.all().is_empty(), "a limiter, or some")?;
        for kind in class.limiter.all() {
            let needed = needed(*kind);
            for (key, draw) in given {
                let is_there = !needed.contains(&key) || draw.is_some();
                self.expect(key, "nothing", is_there, "a number: this limiter needs it")?;
            }
        }
        self.expect("class.retry_after", class.retry_after, (0.0..=1.0).contains(&class.retry_after), "a share")?;
        let hosts = class.hosts_a_site;
        self.expect("class.hosts_a_site", hosts, (1..=100).contains(&hosts), "1 to 100")?;
        if let Some([depth, hours]) = class.day {
            self.expect("class.day", depth, (0.0..1.0).contains(&depth) && hours > 0.0, "a share below 1, and hours")?;
        }
        if let Some([at, factor]) = class.change {
            self.expect("class.change", at, at >= 0.0 && factor > 0.0 && factor < 1e6, "hours, and a factor")?;
        }
        Ok(())
    }
}

/// The keys that a limiter needs.
fn needed(kind: LimiterKind) -> &'static [&'static str] {
    match kind {
        LimiterKind::None => &[],
        LimiterKind::Window | LimiterKind::Waf => &["class.n", "class.window_s"],
        LimiterKind::Mitigate => &["class.n", "class.window_s", "class.penalty_s"],
        LimiterKind::Bucket | LimiterKind::Leaky => &["class.rate", "class.burst", "class.status"],
        LimiterKind::Parallel => &["class.n"],
        LimiterKind::Captcha | LimiterKind::Escalate => &["class.rate", "class.window_s", "class.penalty_s"],
        LimiterKind::Queue => &["class.capacity"],
    }
}
