//! World files of `kind = "pace"`: kinds of hosts that limit the request rate.
//!
//! Owns: the keys and their valid values.
//!
//! Must not know: how a limiter works.

use std::path::Path;

use serde::Deserialize;

use crate::rng::Stream;
use crate::world_file::{WorldError, WorldFile, is_of_kind};

/// A world of hosts with limits. `lab/simulate/worlds/pace.toml` has every key.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PaceWorld {
    /// `"pace"`.
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
    /// The median latency of hosts, in seconds: from, to.
    pub latency: [f64; 2],
    /// The scatter of single latencies: the standard deviation of the logarithm.
    pub sigma: f64,
    /// An earlier crawl, whose persisted state is used.
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
    /// The duration.
    pub hours: f64,
    /// The time without requests after it.
    pub pause_min: f64,
}

/// Load of the crawler's machine: it is idle and busy in turn, and then responses of all hosts come
/// late.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Busy {
    /// The delay of a response, in milliseconds: from, to. Each busy time draws its mean.
    pub delay_ms: [f64; 2],
    /// The length of a busy time, and of the idle time before it.
    pub minutes: f64,
    /// The share of the delay that the crawler measures.
    pub measured: f64,
}

impl Busy {
    /// Returns the mean delay of responses at `now` (ms), in milliseconds.
    pub(super) fn mean_ms(&self, seed: u64, now: i64) -> f64 {
        let period = (now as f64 / (60_000.0 * self.minutes)).floor() as i64;
        if period.rem_euclid(2) == 0 {
            return 0.0;
        }
        let [from, to] = self.delay_ms;
        from * (to / from).powf(Stream::new(seed ^ 0xb059, period.cast_unsigned()).unit())
    }
}

/// A number that differs from host to host.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(untagged)]
pub enum Draw {
    /// From, to; log-uniform.
    Range([f64; 2]),
    /// One of these.
    Any {
        /// The values.
        any: Vec<f64>,
    },
}

/// The rule of a limiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LimiterKind {
    /// Allows everything.
    None,
    /// `n` in each window that begins with the clock; 429 until it ends.
    Window,
    /// `n` within any `window_s`; then 429 for `penalty_s`.
    Mitigate,
    /// A bucket of `burst` that drains at `rate`; `status` when it is full.
    Bucket,
    /// More than `n` within any `window_s`, checked every ten seconds, including refused requests;
    /// 403 meanwhile.
    Waf,
    /// The same, and requests above the rate wait for their turn.
    Leaky,
    /// `n` in parallel; else 503.
    Parallel,
    /// More than `rate` over `window_s`; then captchas for `penalty_s`.
    Captcha,
    /// More than `rate` over `window_s`; then refused for `penalty_s`, doubled each time, with ten
    /// seconds more for each try.
    Escalate,
    /// Two thresholds over `window_s`: above `rate`, `status` 429, or 200 and a delay; above `hard`
    /// times that, refused for `penalty_s`. Refused requests count, too.
    #[serde(rename = "two-threshold")]
    TwoThreshold,
    /// Allows everything, and processes it sequentially, `capacity` per second.
    Queue,
    /// `n` in a window that begins with the first request after the last one; then refused until it
    /// ends.
    Quota,
}

/// What a refusal of a limiter looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum RefusalKind {
    /// Too many requests.
    #[serde(rename = "429")]
    TooMany,
    /// Temporarily unavailable.
    #[serde(rename = "503")]
    Unavailable,
    /// An error of the server.
    #[serde(rename = "500")]
    Error,
    /// A block.
    #[serde(rename = "403")]
    Block,
    /// The connection is reset.
    #[serde(rename = "reset")]
    Reset,
    /// No response until the crawler's deadline.
    #[serde(rename = "silence")]
    Silence,
    /// An error of the server after ten seconds.
    #[serde(rename = "tarpit")]
    Tarpit,
}

/// One limiter, or several of which each host has one.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(untagged)]
pub enum Limiters {
    /// This one.
    One(LimiterKind),
    /// One of these.
    Any {
        /// The limiters.
        any: Vec<LimiterKind>,
    },
}

impl Limiters {
    /// Returns all limiters that a host may have.
    pub(super) fn all(&self) -> &[LimiterKind] {
        match self {
            Self::One(kind) => std::slice::from_ref(kind),
            Self::Any { any } => any,
        }
    }

    /// Draws the limiter of one host.
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
    /// The name in results.
    pub name: String,
    /// The limiter.
    pub limiter: Limiters,
    /// The number of requests allowed.
    #[serde(default)]
    pub n: Option<Draw>,
    /// The length of the counting window, in seconds.
    #[serde(default)]
    pub window_s: Option<Draw>,
    /// The allowed requests per second.
    #[serde(default)]
    pub rate: Option<Draw>,
    /// The size of an allowed burst.
    #[serde(default)]
    pub burst: Option<Draw>,
    /// The duration of a penalty.
    #[serde(default)]
    pub penalty_s: Option<Draw>,
    /// The requests per second that the server can process.
    #[serde(default)]
    pub capacity: Option<Draw>,
    /// The threshold of a ban, as a multiple of the one that it follows.
    #[serde(default)]
    pub hard: Option<Draw>,
    /// The status of a full bucket, or above the lower of two thresholds.
    #[serde(default)]
    pub status: Option<Draw>,
    /// What refusals look like, one kind for each host; by default what is usual for the limiter.
    #[serde(default)]
    pub refusal: Vec<RefusalKind>,
    /// The share of hosts that send `Retry-After`.
    #[serde(default)]
    pub retry_after: f64,
    /// The time that `Retry-After` states, as a multiple of the actual one.
    #[serde(default)]
    pub retry_after_times: Option<Draw>,
    /// The share of hosts with a quota that declare it in headers.
    #[serde(default)]
    pub declared: f64,
    /// URLs per host, if not the world's.
    #[serde(default)]
    pub urls: Option<u32>,
    /// The duration of the crawl in hours, if not the world's.
    #[serde(default)]
    pub hours: Option<f64>,
    /// The share of responses that are a random 500.
    #[serde(default)]
    pub stray_5xx: Option<Draw>,
    /// The share of pages that are a 403 for everyone.
    #[serde(default)]
    pub stray_403: Option<Draw>,
    /// The share of responses that are a random 503, at any rate.
    #[serde(default)]
    pub stray_503: Option<Draw>,
    /// The periods in which the crawler handles every response late.
    #[serde(default)]
    pub busy: Option<Busy>,
    /// The amount by which the limit falls and rises, and the period in hours.
    #[serde(default)]
    pub day: Option<[f64; 2]>,
    /// The time of a change of the limit, in hours, and its factor.
    #[serde(default)]
    pub change: Option<[f64; 2]>,
    /// Hosts that share a limiter and a registrable domain.
    #[serde(default = "one")]
    pub hosts_a_site: usize,
    /// Unrelated hosts that one crawl asks together, each with a limiter and a site.
    #[serde(default = "one")]
    pub hosts_a_crawl: usize,
    /// The same as the world's.
    #[serde(default)]
    pub latency: Option<[f64; 2]>,
    /// Whether the class counts in means.
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
    /// Draws a number for one host.
    pub(super) fn draw(&self, chance: &mut Stream) -> f64 {
        match self {
            Self::Range([from, to]) => from * (to / from).powf(chance.unit()),
            Self::Any { any } => any.get(chance.below(any.len())).copied().unwrap_or(0.0),
        }
    }

    fn is_sound(&self) -> bool {
        match self {
            Self::Range([from, to]) => *from > 0.0 && from <= to && *to <= 1e9,
            Self::Any { any } => {
                !any.is_empty() && any.iter().all(|value| (0.0..=1e9).contains(value))
            }
        }
    }
}

impl PaceWorld {
    /// Returns whether a file declares this kind, even if it is otherwise invalid.
    pub fn is_one(text: &str) -> bool {
        is_of_kind(text, "pace")
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
}

impl WorldFile for PaceWorld {
    fn called(&self) -> &str {
        &self.name
    }

    fn check(&self) -> Result<(), WorldError> {
        self.expect("kind", &self.kind, self.kind == "pace", "\"pace\"")?;
        self.expect("hosts", self.hosts, (1..=10_000).contains(&self.hosts), "1 to 10,000")?;
        self.expect("urls", self.urls, (1..=10_000_000).contains(&self.urls), "1 to 10 million")?;
        self.expect(
            "hours",
            self.hours,
            self.hours > 0.0 && self.hours <= 1000.0,
            "more than 0 and at most 1000",
        )?;
        self.expect("parallel", self.parallel, self.parallel > 0, "at least 1")?;
        self.expect("sigma", self.sigma, (0.0..=3.0).contains(&self.sigma), "0 to 3")?;
        self.expect("class", self.classes.len(), !self.classes.is_empty(), "at least one")?;
        let latency = |range: [f64; 2]| range[0] > 0.0 && range[0] <= range[1] && range[1] <= 60.0;
        self.expect(
            "latency",
            format_args!("{:?}", self.latency),
            latency(self.latency),
            "two times, in order",
        )?;
        if let Some(before) = self.before {
            let is_sound =
                (0.0..=1000.0).contains(&before.hours) && (0.0..=1e6).contains(&before.pause_min);
            self.expect(
                "before",
                format_args!("{before:?}"),
                is_sound,
                "hours and minutes that are not negative",
            )?;
        }
        for class in &self.classes {
            self.check_class(class)?;
            let range = class.latency.unwrap_or(self.latency);
            self.expect(
                "class.latency",
                format_args!("{range:?}"),
                latency(range),
                "two times, in order",
            )?;
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
            ("class.hard", &class.hard),
            ("class.status", &class.status),
            ("class.stray_5xx", &class.stray_5xx),
            ("class.stray_403", &class.stray_403),
            ("class.stray_503", &class.stray_503),
            ("class.retry_after_times", &class.retry_after_times),
        ];
        for (key, draw) in given {
            let is_sound = draw.as_ref().is_none_or(Draw::is_sound);
            self.expect(key, format_args!("{draw:?}"), is_sound, "numbers above 0, in order")?;
        }
        self.expect(
            "class.limiter",
            "none",
            !class.limiter.all().is_empty(),
            "a limiter, or some",
        )?;
        for kind in class.limiter.all() {
            let needed = needed(*kind);
            for (key, draw) in given {
                let is_there = !needed.contains(&key) || draw.is_some();
                self.expect(key, "nothing", is_there, "a number: this limiter needs it")?;
            }
        }
        self.expect(
            "class.retry_after",
            class.retry_after,
            (0.0..=1.0).contains(&class.retry_after),
            "a share",
        )?;
        self.expect(
            "class.declared",
            class.declared,
            (0.0..=1.0).contains(&class.declared),
            "a share",
        )?;
        let urls = class.urls.unwrap_or(1);
        self.expect("class.urls", urls, (1..=10_000_000).contains(&urls), "1 to 10 million")?;
        let hours = class.hours.unwrap_or(1.0);
        self.expect(
            "class.hours",
            hours,
            hours > 0.0 && hours <= 1000.0,
            "more than 0 and at most 1000",
        )?;
        let hosts = class.hosts_a_site;
        self.expect("class.hosts_a_site", hosts, (1..=100).contains(&hosts), "1 to 100")?;
        let unrelated = class.hosts_a_crawl;
        let is_sound = (1..=100).contains(&unrelated) && (unrelated == 1 || hosts == 1);
        self.expect("class.hosts_a_crawl", unrelated, is_sound, "1 to 100, without hosts_a_site")?;
        if let Some(busy) = class.busy {
            let [from, to] = busy.delay_ms;
            let is_sound = from > 0.0 && from <= to && to <= 60_000.0 && busy.minutes > 0.0;
            let is_sound = is_sound && (0.0..=1.0).contains(&busy.measured);
            self.expect(
                "class.busy",
                format_args!("{busy:?}"),
                is_sound,
                "two delays, minutes, and a share",
            )?;
        }
        if let Some([depth, hours]) = class.day {
            self.expect(
                "class.day",
                depth,
                (0.0..1.0).contains(&depth) && hours > 0.0,
                "a share below 1, and hours",
            )?;
        }
        if let Some([at, factor]) = class.change {
            self.expect(
                "class.change",
                at,
                at >= 0.0 && factor > 0.0 && factor < 1e6,
                "hours, and a factor",
            )?;
        }
        Ok(())
    }
}

/// Returns the keys that a limiter needs.
fn needed(kind: LimiterKind) -> &'static [&'static str] {
    match kind {
        LimiterKind::None => &[],
        LimiterKind::Window | LimiterKind::Waf | LimiterKind::Quota => {
            &["class.n", "class.window_s"]
        }
        LimiterKind::Mitigate => &["class.n", "class.window_s", "class.penalty_s"],
        LimiterKind::Bucket | LimiterKind::Leaky => &["class.rate", "class.burst", "class.status"],
        LimiterKind::Parallel => &["class.n"],
        LimiterKind::Captcha | LimiterKind::Escalate => {
            &["class.rate", "class.window_s", "class.penalty_s"]
        }
        LimiterKind::TwoThreshold => {
            &["class.rate", "class.window_s", "class.hard", "class.penalty_s", "class.status"]
        }
        LimiterKind::Queue => &["class.capacity"],
    }
}
