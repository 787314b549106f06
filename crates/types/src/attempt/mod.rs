//! Attempts: one request by one fetcher for one URL, with how it ended. They are the truth; evidence is a cache of them.
//!
//! [`outcome`] owns how a request can end and what that means, [`bounds`] how
//! large its parts may be, `json` how an attempt is written as JSON, `id` what it is called.

use std::borrow::Cow;
use std::fmt;

use uuid::Uuid;

use crate::attempt::error_kind::ErrorKind;
use crate::heuristic::Heuristic;
use crate::heuristic::url::{UrlError, UrlFeatures};
use crate::registry::canonical;
use crate::response::Header;
use crate::time::Timestamp;
use crate::unknown_name::UnknownName;

pub mod bounds;
pub mod error_kind;
pub mod id;
#[cfg(feature = "json")]
pub mod json;

/// Why an attempt failed: a kind this release knows, or the text that an import brought.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ErrorType {
    /// One of the table.
    Known(ErrorKind),
    /// Anything else: a failure of the fetcher, nothing more is known.
    Other(Box<str>),
}

impl ErrorType {
    /// The type called `name`.
    pub fn from_name(name: &str) -> Self {
        ErrorKind::from_name(name).map_or_else(|| Self::Other(name.into()), Self::Known)
    }

    /// Its name in JSON and in the log.
    pub fn name(&self) -> &str {
        match self {
            Self::Known(kind) => kind.name(),
            Self::Other(name) => name,
        }
    }

    /// The kind, when it is one of the table.
    pub fn kind(&self) -> Option<ErrorKind> {
        match self {
            Self::Known(kind) => Some(*kind),
            Self::Other(_) => None,
        }
    }
}

impl fmt::Display for ErrorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What the last failure of a URL looked like: how post-fetch knowledge enters the next decision about it.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    strum::Display,
    strum::EnumString,
    strum::IntoStaticStr,
    strum::VariantArray,
)]
#[strum(serialize_all = "lowercase", parse_err_ty = UnknownName, parse_err_fn = no_hint)]
#[repr(u8)]
pub enum Hint {
    /// A captcha, 403 or 429.
    Blocked = 0,
    /// An SPA shell or an empty page.
    Empty = 1,
    /// The deadline passed.
    Timeout = 2,
    /// It failed in another way.
    Unknown = 3,
}

fn no_hint(name: &str) -> UnknownName {
    UnknownName::new("hint", name, Hint::ALL.iter().map(|hint| hint.name()))
}

impl Hint {
    /// Every hint.
    pub const ALL: &'static [Self] = <Self as strum::VariantArray>::VARIANTS;

    /// What a failure of `kind` tells the next attempt.
    pub const fn after(kind: ErrorKind) -> Self {
        match kind {
            ErrorKind::BlockedCaptcha | ErrorKind::Blocked403 => Self::Blocked,
            ErrorKind::WrongTool | ErrorKind::EmptyContent => Self::Empty,
            ErrorKind::Timeout => Self::Timeout,
            _ => Self::Unknown,
        }
    }

    /// Its name in JSON.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// The hint called `name`.
    pub fn from_name(name: &str) -> Option<Self> {
        name.parse().ok()
    }
}

/// Who served a fetch where there is a choice: the evidence, or the table that people wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Arm {
    /// What attempts have taught.
    Learning = 0,
    /// The router table.
    Legacy = 1,
}

impl Arm {
    /// Both arms.
    pub const ALL: [Self; 2] = [Self::Learning, Self::Legacy];

    /// Its name in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Learning => "learning",
            Self::Legacy => "legacy",
        }
    }

    /// The arm called `name`.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|arm| arm.name() == name)
    }
}

/// A heuristic as an attempt is tagged with it.
#[derive(Clone, Debug, PartialEq)]
pub struct Tag {
    /// Type and value.
    pub heuristic: Heuristic,
    /// Its predictive power from 0 to 1, once analytics have worked it out.
    pub importance: Option<f32>,
}

impl From<Heuristic> for Tag {
    fn from(heuristic: Heuristic) -> Self {
        Self { heuristic, importance: None }
    }
}

/// One request by one fetcher for one URL.
///
/// ```
/// use fetchwise_types::attempt::Attempt;
/// use fetchwise_types::time::Timestamp;
///
/// let url = url::Url::parse("https://wikipedia.org/wiki/Rust").unwrap();
/// let attempt = Attempt::new(&url, "playwright", Timestamp::now()).unwrap().delivered();
/// assert!(attempt.success && attempt.weight == 1.0);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Attempt {
    /// UUIDv7 of a live attempt; UUIDv8 made from the content of an imported one that had none.
    pub id: Uuid,
    /// The caller's name for what is fetched; the URL unless it has another.
    pub link: String,
    /// What was asked for, without user info and fragment.
    pub url: String,
    /// Who asked.
    pub fetcher: String,
    /// Whether content was delivered.
    pub success: bool,
    /// Whether the site blocked it.
    pub is_banned: bool,
    /// Why it failed.
    pub error_type: Option<ErrorType>,
    /// HTTP status, when a response came.
    pub http_status: Option<u16>,
    /// Response headers, those of [`STORED_HEADERS`] only.
    pub response_headers: Vec<Header>,
    /// How long it took, in milliseconds.
    pub duration_ms: u64,
    /// When it was made.
    pub attempted_at: Timestamp,
    /// The decision that led to it: `learned`, `inferred`, `explore`, `probe`, `hard_coded` or `hinted`.
    pub source: Option<Cow<'static, str>>,
    /// The chance that the policy gave to this fetcher.
    pub propensity: Option<f64>,
    /// What was known of the URL's last failure before it.
    pub hint: Option<Hint>,
    /// How much it counts as evidence: 0, 0.5 or 1.
    pub weight: f64,
    /// Its number within one fetch of the link, from 1 on.
    pub try_no: u32,
    /// What the other arm would have taken, in shadow mode.
    pub shadow_fetcher: Option<String>,
    /// What it is tagged with, from before and after the fetch.
    pub heuristics: Vec<Tag>,
    /// The rule of the policy that chose the fetcher, by the name of a [`Rule`](crate::decision::Rule) or, from an import, any other.
    pub rule: Option<Cow<'static, str>>,
    /// The fetcher's confidence when it was chosen, 0 to 1.
    pub confidence: Option<f64>,
    /// The arm that served the fetch. None where there was no choice: in mode `learning`, for a link without a wish of its own.
    pub arm: Option<Arm>,
}

/// The response headers that are stored with an attempt; all others may hold what is nobody's business.
pub const STORED_HEADERS: &[&str] = &[
    "server",
    "content-type",
    "content-length",
    "content-encoding",
    "cf-ray",
    "cf-mitigated",
    "retry-after",
    "via",
    "x-cache",
    "x-amzn-waf-action",
    "x-datadome",
    "x-vercel-mitigated",
    "memento-datetime",
];

/// Those of `headers` that may be stored.
pub fn stored_headers(headers: &[Header]) -> Vec<Header> {
    headers.iter().filter(|h| STORED_HEADERS.iter().any(|name| h.name.eq_ignore_ascii_case(name))).cloned().collect()
}

impl Attempt {
    /// A new attempt at `url` that has not ended yet: no success, no error, weight 1, tagged with what the URL shows.
    ///
    /// # Errors
    /// [`UrlError`] when the URL cannot be fetched.
    pub fn new(url: &url::Url, fetcher: &str, at: Timestamp) -> Result<Self, UrlError> {
        let features = UrlFeatures::extract(url)?;
        Self::tagged(url, fetcher, at, features.heuristics().into_iter().map(Tag::from).collect())
    }

    /// As [`Attempt::new`], for a URL that can be fetched and whose tags are known already.
    pub fn tagged(url: &url::Url, fetcher: &str, at: Timestamp, heuristics: Vec<Tag>) -> Result<Self, UrlError> {
        // Nobody's password belongs into a log.
        let bare = match url.username().is_empty() && url.password().is_none() {
            true => None,
            false => Some(crate::heuristic::url::parse(url.as_str())?),
        };
        let text = crate::heuristic::url::identity(bare.as_ref().unwrap_or(url));
        Ok(Self {
            id: id::new(),
            link: text.to_owned(),
            url: text.to_owned(),
            fetcher: canonical(fetcher).to_owned(),
            success: false,
            is_banned: false,
            error_type: None,
            http_status: None,
            response_headers: Vec::new(),
            duration_ms: 0,
            attempted_at: at,
            source: None,
            propensity: None,
            hint: None,
            weight: 1.0,
            try_no: 1,
            shadow_fetcher: None,
            heuristics,
            rule: None,
            confidence: None,
            arm: None,
        })
    }

    /// Ended with content.
    #[must_use]
    pub fn delivered(mut self) -> Self {
        self.success = true;
        self.is_banned = false;
        self.error_type = None;
        self.weight = 1.0;
        self
    }

    /// Ended with an error of `kind`, for good: it counts as evidence by the kind's weight.
    #[must_use]
    pub fn failed(mut self, kind: ErrorKind) -> Self {
        self.success = false;
        self.is_banned = kind.is_banned();
        self.error_type = Some(ErrorType::Known(kind));
        self.weight = kind.weight();
        self
    }

    /// The value of the heuristic called `kind`, if the attempt is tagged with it.
    pub fn heuristic(&self, kind: &str) -> Option<&str> {
        self.heuristics.iter().find(|tag| tag.heuristic.kind == kind).map(|tag| tag.heuristic.value.as_ref())
    }
}
