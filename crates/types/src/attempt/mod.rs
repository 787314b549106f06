//! Attempts: one request by one fetcher for one URL, with its result. They are the truth; evidence
//! is a cache of them.
//!
//! [`error_kind`] owns how a request can fail and what that means, [`verdict_reason`] why a
//! detector said so, [`bounds`] how large its parts may be, `json` how an attempt is written as
//! JSON, and [`id`] its id.

use std::borrow::Cow;
use std::fmt;

use uuid::Uuid;

use crate::attempt::error_kind::ErrorKind;
use crate::attempt::verdict_reason::{CHARS_HEADER, VERDICT_HEADER, VerdictReason};
use crate::heuristic::url::{UrlError, UrlFeatures, domain_of, is_of_url};
use crate::heuristic::{Heuristic, REDIRECTED_BY};
use crate::registry::canonical;
use crate::response::Header;
use crate::time::Timestamp;
use crate::unknown_name::UnknownName;

pub mod bounds;
pub mod error_kind;
pub mod id;
#[cfg(feature = "json")]
pub mod json;
pub mod verdict_reason;

/// The reason why an attempt failed: a kind that this release knows, or the text of an import.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ErrorType {
    /// A kind of the table.
    Known(ErrorKind),
    /// Any other failure; it counts as the fetcher's.
    Other(Box<str>),
}

impl ErrorType {
    /// Returns the type called `name`.
    #[inline]
    pub fn from_name(name: &str) -> Self {
        ErrorKind::from_name(name).map_or_else(|| Self::Other(name.into()), Self::Known)
    }

    /// Returns the name in JSON and in the log.
    #[inline]
    pub fn name(&self) -> &str {
        match self {
            Self::Known(kind) => kind.name(),
            Self::Other(name) => name,
        }
    }

    /// Returns the kind, if the table has it.
    #[inline]
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

/// The kind of a URL's last failure: it carries post-fetch knowledge into the next decision about
/// the URL.
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
    /// Another failure.
    Unknown = 3,
}

fn no_hint(name: &str) -> UnknownName {
    UnknownName::new("hint", name, Hint::ALL.iter().map(|hint| hint.name()))
}

impl Hint {
    /// Every hint.
    pub const ALL: &'static [Self] = <Self as strum::VariantArray>::VARIANTS;

    /// Returns the hint that a failure of `kind` gives to the next attempt.
    #[inline]
    pub const fn after(kind: ErrorKind) -> Self {
        match kind {
            ErrorKind::BlockedCaptcha | ErrorKind::Blocked403 => Self::Blocked,
            ErrorKind::WrongTool | ErrorKind::EmptyContent => Self::Empty,
            ErrorKind::Timeout => Self::Timeout,
            _ => Self::Unknown,
        }
    }

    /// Returns the name in JSON.
    #[inline]
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// Returns the hint called `name`.
    #[inline]
    pub fn from_name(name: &str) -> Option<Self> {
        name.parse().ok()
    }
}

/// The arm that served a fetch, if there is a choice: learning, or the hand-written table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Arm {
    /// The evidence of attempts.
    Learning = 0,
    /// The router table.
    Legacy = 1,
}

impl Arm {
    /// Both arms.
    pub const ALL: [Self; 2] = [Self::Learning, Self::Legacy];

    /// Returns the name in JSON.
    #[inline]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Learning => "learning",
            Self::Legacy => "legacy",
        }
    }

    /// Returns the arm called `name`.
    #[inline]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|arm| arm.name() == name)
    }
}

/// A heuristic on an attempt.
#[derive(Clone, Debug, PartialEq)]
pub struct Tag {
    /// Type and value.
    pub heuristic: Heuristic,
    /// Its predictive power from 0 to 1, once analytics have computed it.
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
/// let attempt = Attempt::new(&url, "playwright", Timestamp::date()).unwrap().delivered();
/// assert!(attempt.success && attempt.weight == 1.0);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Attempt {
    /// A UUIDv7 for a live attempt; a UUIDv8 of the content for an imported one without an id.
    pub id: Uuid,
    /// The caller's name for the link; by default the URL.
    pub link: String,
    /// The requested URL, without user info and fragment.
    pub url: String,
    /// The name of the fetcher.
    pub fetcher: String,
    /// Whether content was delivered.
    pub success: bool,
    /// Whether the site blocked it.
    pub is_banned: bool,
    /// The reason of the failure.
    pub error_type: Option<ErrorType>,
    /// The HTTP status, if a response came.
    pub http_status: Option<u16>,
    /// The response headers that are in [`STORED_HEADERS`].
    pub response_headers: Vec<Header>,
    /// Its duration, in milliseconds.
    pub duration_ms: u64,
    /// The time at which it was made.
    pub attempted_at: Timestamp,
    /// The decision that led to it: `learned`, `inferred`, `explore`, `probe`, `hard_coded` or
    /// `hinted`.
    pub source: Option<Cow<'static, str>>,
    /// The probability with which the policy chose this fetcher.
    pub propensity: Option<f64>,
    /// The kind of the URL's last failure before it.
    pub hint: Option<Hint>,
    /// Its weight as evidence: 0, 0.5 or 1.
    pub weight: f64,
    /// Its number within one fetch of the link, from 1 on.
    pub try_no: u32,
    /// The fetcher that the other arm would have chosen, in shadow mode.
    pub shadow_fetcher: Option<String>,
    /// Its heuristics, from before and after the fetch.
    pub heuristics: Vec<Tag>,
    /// The rule of the policy that chose the fetcher: the name of a [`Rule`](crate::decision::Rule)
    /// or, from an import, any other.
    pub rule: Option<Cow<'static, str>>,
    /// The fetcher's confidence when it was chosen, 0 to 1.
    pub confidence: Option<f64>,
    /// The arm that served the fetch. `None` without a choice: in mode `learning`, for a link that
    /// sets no mode.
    pub arm: Option<Arm>,
}

/// The response headers that are stored with an attempt; all others may hold private data.
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
    CONSENT_HEADER,
    ALLOWED_FOR_HEADER,
    VERDICT_HEADER,
    CHARS_HEADER,
];

/// The name under which an attempt stores the terms of its page, among the response headers. No
/// response has a header whose name begins with a colon.
pub const CONSENT_HEADER: &str = ":consent";
/// The name under which an attempt stores the purposes that those terms leave.
pub const ALLOWED_FOR_HEADER: &str = ":allowed-for";

/// Returns the headers that may be stored.
#[inline]
pub fn stored_headers(headers: &[Header]) -> Vec<Header> {
    headers
        .iter()
        .filter(|h| STORED_HEADERS.iter().any(|name| h.name.eq_ignore_ascii_case(name)))
        .cloned()
        .collect()
}

impl Attempt {
    /// Returns an attempt at `url` that has not ended yet: no success, no error, weight 1, tagged
    /// with the heuristics of the URL.
    ///
    /// # Errors
    /// [`UrlError`] if the URL cannot be fetched.
    #[inline]
    pub fn new(url: &url::Url, fetcher: &str, at: Timestamp) -> Result<Self, UrlError> {
        let features = UrlFeatures::extract(url)?;
        let heuristics = features.heuristics();
        // With room for what recording adds, so that it need not allocate.
        let mut tags = Vec::with_capacity(heuristics.len() + 3);
        tags.extend(heuristics.into_iter().map(Tag::from));
        Self::tagged(url, fetcher, at, tags)
    }

    /// Returns an attempt as [`Attempt::new`] does, but tagged with `heuristics` only. For callers
    /// that have the heuristics of the URL already: it extracts none, and does not check whether
    /// the URL can be fetched.
    ///
    /// # Errors
    /// [`UrlError`] if `url` has a user name or password and cannot be parsed without it.
    #[inline]
    pub fn tagged(
        url: &url::Url,
        fetcher: &str,
        at: Timestamp,
        heuristics: Vec<Tag>,
    ) -> Result<Self, UrlError> {
        // A log must not contain passwords.
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

    /// Returns the reason of the detector's verdict, if it was recorded.
    pub fn verdict(&self) -> Option<VerdictReason> {
        VerdictReason::of(&self.response_headers)
    }

    /// Returns the attempt as one whose URL led to `landed`, which responded. If that is another
    /// host, the attempt gets the tags of that URL in place of the requested one's, and the tag
    /// [`REDIRECTED_BY`].
    ///
    /// # Errors
    /// [`UrlError`] if a response cannot come from `landed`.
    ///
    /// ```
    /// use fetchwise_types::attempt::Attempt;
    /// use fetchwise_types::time::Timestamp;
    ///
    /// let parse = |text| url::Url::parse(text).unwrap();
    /// let attempt = Attempt::new(&parse("https://short.example/a1"), "direct_access", Timestamp::date()).unwrap();
    /// let attempt = attempt.answered_by(&parse("https://news.example/politics/1.html")).unwrap();
    /// assert_eq!(attempt.url, "https://short.example/a1");
    /// assert_eq!(attempt.heuristic("domain"), Some("news.example"));
    /// assert_eq!(attempt.heuristic("redirected_by"), Some("short.example"));
    /// ```
    #[inline]
    pub fn answered_by(mut self, landed: &url::Url) -> Result<Self, UrlError> {
        let url = crate::heuristic::url::parse(&self.url)?;
        let requested = domain_of(url.host_str().unwrap_or_default()).to_owned();
        let features = UrlFeatures::extract(landed)?;
        if features.domain == requested {
            return Ok(self);
        }
        self.heuristics
            .retain(|tag| !is_of_url(&tag.heuristic.kind) && tag.heuristic.kind != REDIRECTED_BY);
        let tags =
            features.heuristics().into_iter().chain([Heuristic::new(REDIRECTED_BY, requested)]);
        self.heuristics.splice(0..0, tags.map(Tag::from));
        Ok(self)
    }

    /// Returns the attempt ended with content.
    #[must_use]
    #[inline]
    pub fn delivered(mut self) -> Self {
        self.success = true;
        self.is_banned = false;
        self.error_type = None;
        self.weight = 1.0;
        self
    }

    /// Returns the attempt ended with a final error of `kind`; it counts as evidence by the kind's
    /// weight.
    #[must_use]
    #[inline]
    pub fn failed(mut self, kind: ErrorKind) -> Self {
        self.success = false;
        self.is_banned = kind.is_banned();
        self.error_type = Some(ErrorType::Known(kind));
        self.weight = kind.weight();
        self
    }

    /// Returns the value of the heuristic called `kind`, if the attempt has it.
    #[inline]
    pub fn heuristic(&self, kind: &str) -> Option<&str> {
        self.heuristics
            .iter()
            .find(|tag| tag.heuristic.kind == kind)
            .map(|tag| tag.heuristic.value.as_ref())
    }
}
