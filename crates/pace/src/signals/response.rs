//! Responses as pace sees them, and what it returns for them.
//!
//! Owns: the mapping from an [`Outcome`] to its meaning for a host's pace.
//!
//! Must not know: how a pace is learned.

use std::time::Duration;

use fetchwise_types::fetch_result::Outcome;
use fetchwise_types::registry::FetcherId;
use fetchwise_types::time::Timestamp;

use super::headers::RateLimit;
use crate::limiter::permit::Permit;

/// The host's reaction to a request, as far as its pace is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Signal {
    /// A page of any kind, as expected.
    Content,
    /// A quick negative response: 404, 410, 401 and other 4xx. Its latency does not count.
    ClientError,
    /// Too many requests: 429.
    Limited,
    /// Temporarily unavailable: 503.
    Unavailable,
    /// A block: 403, a captcha, a challenge.
    Block,
    /// A broken connection, or no response in time.
    Broken,
    /// Another 5xx status.
    ServerError,
    /// The request did not reach the host, or its end says nothing about the host: DNS,
    /// certificate, proxy, this machine.
    NotAsked,
}

impl Signal {
    /// Returns the meaning of an outcome for the host's pace; `status` is that of the response, if
    /// there was one.
    /// ```
    /// use fetchwise_pace::fetch_result::{Block, Outcome};
    /// use fetchwise_pace::Signal;
    /// assert_eq!(Signal::of(&Outcome::Content, Some(200)), Signal::Content);
    /// assert_eq!(Signal::of(&Outcome::Blocked(Block::refusal()), Some(429)), Signal::Limited);
    /// assert_eq!(Signal::of(&Outcome::Blocked(Block::refusal()), Some(403)), Signal::Block);
    /// assert_eq!(Signal::of(&Outcome::Http(503), None), Signal::Unavailable);
    /// ```
    pub fn of(outcome: &Outcome, status: Option<u16>) -> Self {
        match outcome {
            Outcome::Content
            | Outcome::NotModified
            | Outcome::Redirect { .. }
            | Outcome::Shell { .. }
            | Outcome::Empty
            | Outcome::RedirectLoop
            | Outcome::Undecoded
            | Outcome::TooLarge => Self::Content,
            Outcome::Blocked(_) => match status {
                Some(429) => Self::Limited,
                Some(503) => Self::Unavailable,
                _ => Self::Block,
            },
            Outcome::RateLimited => Self::Limited,
            Outcome::Http(status) => Self::of_status(*status),
            // The page says that the server failed; with a status of success, too.
            Outcome::ServerError => match status {
                Some(status @ 500..) => Self::of_status(status),
                _ => Self::ServerError,
            },
            Outcome::LoginWall => Self::Content,
            // The host has read the request and has said no to it, whatever the speed.
            Outcome::PaymentRequired | Outcome::Declined | Outcome::IdentityRejected => {
                Self::ClientError
            }
            // The page came; its terms withhold it.
            Outcome::Reserved => Self::Content,
            Outcome::Timeout | Outcome::Network | Outcome::Truncated => Self::Broken,
            // A waiting room controls its own rate; the pace makes no difference to it. Everything
            // else did not reach the host, or says nothing about its pace.
            _ => Self::NotAsked,
        }
    }

    fn of_status(status: u16) -> Self {
        match status {
            429 => Self::Limited,
            503 => Self::Unavailable,
            403 => Self::Block,
            407 | 511 => Self::NotAsked,
            // RFC 9110, section 15: an unknown class is treated as a 5xx.
            408 | 500.. => Self::ServerError,
            400..=499 => Self::ClientError,
            200..=399 => Self::Content,
            0..=199 => Self::Broken,
        }
    }
}

/// The response to one request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Response {
    /// The host's reaction.
    pub signal: Signal,
    /// The fetcher that made the request.
    pub fetcher: FetcherId,
    /// The time that the host asks to wait.
    pub retry_after: Option<Duration>,
    /// Latency, up to the first byte if that is known.
    pub latency: Option<Duration>,
    /// The part of the latency that this machine caused, if it is measured: the time from the
    /// response's arrival until it was handled. It does not count as the host's.
    pub local_delay: Option<Duration>,
    /// Actual number of requests to the host, if known: redirects on the host, and the page's own
    /// requests.
    pub cost: Option<u16>,
    /// The fetcher renders pages, so its cost is remembered for the next page.
    pub renders: bool,
    /// The rate limit in the response's headers.
    pub policy: Option<RateLimit>,
}

impl Response {
    /// Creates a response without further details.
    pub fn new(signal: Signal, fetcher: FetcherId) -> Self {
        Self {
            signal,
            fetcher,
            retry_after: None,
            latency: None,
            local_delay: None,
            cost: None,
            renders: false,
            policy: None,
        }
    }
}

/// Whether a request may go out.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub enum Admit {
    /// The request may go out now. Pass the permit to
    /// [`Pace::record_response`](crate::Pace::record_response) or
    /// [`Pace::cancel`](crate::Pace::cancel).
    Go(Permit),
    /// Not before this time.
    Wait(Timestamp),
    /// The maximum number of requests is in flight; request again when one of them has ended.
    AtCapacity,
}

/// The effect of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum ResponseEffect {
    /// Nothing for the caller to do.
    Nothing,
    /// A block that may concern the page or the pace. The host is held briefly, and another URL of
    /// it will decide: [`Pace::doubt_verdict`](crate::Pace::doubt_verdict).
    Doubt {
        /// The end of the hold.
        hold_until: Timestamp,
        /// The number of this host's doubt.
        doubt: u32,
    },
    /// The request was refused because of the pace, and the pace knows of that limit already: the
    /// request went out before the last limit hit, or its refusal is one of a few at the limit. The
    /// page can be asked for again from then on.
    Refused {
        /// The end of the hold, or the present.
        until: Timestamp,
    },
    /// The host limits requests. Its responses to requests sent before now belong to this limit
    /// hit.
    LimitHit {
        /// The end of the hold.
        hold_until: Timestamp,
        /// The level that is blamed.
        level: Level,
    },
}

/// The result of a doubt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DoubtVerdict {
    /// Undecided.
    Pending,
    /// The block concerns the page: another fetcher may try it.
    Page,
    /// The host limits requests; see its hold.
    Pace,
}

/// The level of a pace.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, strum::Display, strum::FromRepr,
)]
#[strum(serialize_all = "lowercase")]
#[repr(u8)]
pub enum Level {
    /// One host.
    Host = 0,
    /// All hosts of one registrable domain.
    Site = 1,
    /// All hosts at one address.
    Address = 2,
}

/// The reason of a change to a pace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, strum::Display, strum::FromRepr)]
#[repr(u8)]
pub enum Cause {
    /// The rate grew or shrank by itself.
    #[default]
    #[strum(to_string = "growth")]
    Growth = 0,
    /// A 429.
    #[strum(to_string = "429")]
    Limited = 1,
    /// A 503 with a time, or several without.
    #[strum(to_string = "503")]
    Unavailable = 2,
    /// Blocks.
    #[strum(to_string = "a block")]
    Block = 3,
    /// Errors.
    #[strum(to_string = "errors")]
    Errors = 4,
    /// A ceiling probe passed and cleared a window.
    #[strum(to_string = "a ceiling probe that passed")]
    WindowCleared = 5,
    /// The host declared its limit in headers.
    #[strum(to_string = "its headers")]
    Declared = 6,
    /// The crawl ended.
    #[strum(to_string = "close")]
    Close = 7,
    /// Blocks of some pages, more of them at higher rates.
    #[strum(to_string = "blocks of some pages")]
    SomeBlocks = 9,
    /// An operator ended the hold.
    #[strum(to_string = "unpause")]
    Unpaused = 8,
}
