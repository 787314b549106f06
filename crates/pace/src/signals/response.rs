//! What pace is told of an answer, in its own few words, and what it says back.
//!
//! Owns the mapping from an [`Outcome`] to what it means for a host's pace. Must not know what a host's pace is.

use std::time::Duration;

use fetchwise_types::fetch_result::Outcome;
use fetchwise_types::registry::FetcherId;
use fetchwise_types::time::Timestamp;

use super::headers::RateLimit;
use crate::limiter::permit::Permit;

/// What the host said, as far as its pace is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Signal {
    /// It answered as it should, with a page of any kind.
    Content,
    /// It answered at once that there is nothing: 404, 410, 401 and other statuses of the 400s. Says nothing of latency.
    Nothing,
    /// "Too many requests": 429.
    Limited,
    /// "Not now": 503.
    Unavailable,
    /// A wall: 403, a captcha, a challenge.
    Wall,
    /// The connection broke or the answer did not come in time.
    Broken,
    /// Another status of the 500s.
    ServerError,
    /// The host was not asked, or what came says nothing of it: name, certificate, proxy, this machine.
    NotAsked,
}

impl Signal {
    /// What an outcome means for the host's pace; `status` is the response's, when there was one.
    ///
    /// ```
    /// use fetchwise_types::fetch_result::{Block, Outcome};
    /// use fetchwise_pace::Signal;
    /// assert_eq!(Signal::of(&Outcome::Content, Some(200)), Signal::Content);
    /// assert_eq!(Signal::of(&Outcome::Blocked(Block::refusal()), Some(429)), Signal::Limited);
    /// assert_eq!(Signal::of(&Outcome::Blocked(Block::refusal()), Some(403)), Signal::Wall);
    /// assert_eq!(Signal::of(&Outcome::Http(503), None), Signal::Unavailable);
    /// ```
    pub fn of(outcome: &Outcome, status: Option<u16>) -> Self {
        match outcome {
            Outcome::Content
            | Outcome::Redirect { .. }
            | Outcome::Shell { .. }
            | Outcome::Empty
            | Outcome::RedirectLoop
            | Outcome::TooLarge => Self::Content,
            Outcome::Blocked(_) => match status {
                Some(429) => Self::Limited,
                Some(503) => Self::Unavailable,
                _ => Self::Wall,
            },
            Outcome::RateLimited => Self::Limited,
            Outcome::Http(status) => Self::of_status(*status),
            Outcome::Timeout | Outcome::Network | Outcome::Truncated => Self::Broken,
            // A waiting room counts its guests itself; whoever is let in is not slower or quicker for our pace.
            // Everything else never reached the host, or says nothing about its pace.
            _ => Self::NotAsked,
        }
    }

    fn of_status(status: u16) -> Self {
        match status {
            429 => Self::Limited,
            503 => Self::Unavailable,
            403 => Self::Wall,
            407 => Self::NotAsked,
            400..=499 | 600.. => Self::Nothing,
            500..=599 => Self::ServerError,
            200..=399 => Self::Content,
            0..=199 => Self::Broken,
        }
    }
}

/// What came of a request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Response {
    /// What the host said.
    pub heard: Signal,
    /// Who asked.
    pub fetcher: FetcherId,
    /// How long it asks to be left alone.
    pub retry_after: Option<Duration>,
    /// How long the answer took, up to its first byte where that is known.
    pub latency: Option<Duration>,
    /// How many requests it was for the host in the end, where that is known: redirects on the host, and what a page asked it for.
    pub cost: Option<u16>,
    /// A rendering fetcher asked, so that what it cost is remembered for the next one.
    pub renders: bool,
    /// What its headers say of its limit.
    pub policy: Option<RateLimit>,
}

impl Response {
    /// An answer of which nothing else is known.
    pub fn new(heard: Signal, fetcher: FetcherId) -> Self {
        Self { heard, fetcher, retry_after: None, latency: None, cost: None, renders: false, policy: None }
    }
}

/// Whether a request may go out.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub enum Admit {
    /// Now. The permit goes to [`Pace::record_response`](crate::Pace::record_response) or [`Pace::cancel`](crate::Pace::cancel).
    Go(Permit),
    /// Not before then.
    Wait(Timestamp),
    /// As many as may be are under way: when one of them has ended.
    AtCapacity,
}

/// What an answer came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Done {
    /// Nothing that the caller has to know.
    Nothing,
    /// A wall that may be the page's or the pace's. The host is held for a moment, and another URL of it will tell:
    /// [`Pace::doubt_verdict`](crate::Pace::doubt_verdict).
    Doubt {
        /// Until when nothing is asked.
        hold_until: Timestamp,
        /// Which doubt of this host it is.
        doubt: u32,
    },
    /// The host limits. Everything that it answers to requests sent before now is part of this.
    Event {
        /// Until when nothing is asked.
        hold_until: Timestamp,
        /// Whose limit it is taken for.
        level: Level,
    },
}

/// How a doubt came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DoubtVerdict {
    /// It is not known yet.
    Pending,
    /// The wall is the page's: another fetcher may try it.
    Page,
    /// The host limits; see its hold.
    Pace,
}

/// Whose pace it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, strum::Display, strum::FromRepr)]
#[strum(serialize_all = "lowercase")]
#[repr(u8)]
pub enum Level {
    /// One host's.
    Host = 0,
    /// That of all hosts of one registrable domain.
    Site = 1,
    /// That of all hosts behind one address.
    Address = 2,
}

/// Why a host's pace changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, strum::Display, strum::FromRepr)]
#[repr(u8)]
pub enum Cause {
    /// It grew or shrank by itself.
    #[default]
    #[strum(to_string = "growth")]
    Growth = 0,
    /// A 429.
    #[strum(to_string = "429")]
    Limited = 1,
    /// A 503 with a time, or several without.
    #[strum(to_string = "503")]
    Unavailable = 2,
    /// Walls.
    #[strum(to_string = "a wall")]
    Wall = 3,
    /// Errors.
    #[strum(to_string = "errors")]
    Errors = 4,
    /// A window was found not to be the one that is counted over.
    #[strum(to_string = "a look higher that passed")]
    Exonerated = 5,
    /// The host says in headers what it allows.
    #[strum(to_string = "its headers")]
    Told = 6,
    /// The crawl ends.
    #[strum(to_string = "close")]
    Close = 7,
    /// An operator ended the hold.
    #[strum(to_string = "release")]
    Released = 8,
}
