//! The reason of a detector's verdict, as an attempt keeps it: the rule, the cues and the visible
//! characters.
//!
//! Owns: the names under which the reason is among the headers of an attempt, and its form there.
//!
//! Invariants: an attempt that delivered content for no special reason has none, so most attempts
//! keep nothing.
//!
//! Must not know: how a page is read.

use std::fmt;

use crate::response::{Header, header};
#[cfg(feature = "json")]
use serde::{Deserialize, Serialize};

/// The name under which an attempt stores the rule and the cues of its verdict, among the response
/// headers.
pub const VERDICT_HEADER: &str = ":verdict";
/// The name under which an attempt stores the visible characters of its page.
pub const CHARS_HEADER: &str = ":chars";
/// The most cues that an attempt keeps.
pub const MAX_CUES: usize = 6;

/// The reason of a verdict on one response.
///
/// ```
/// use fetchwise_types::attempt::verdict_reason::VerdictReason;
///
/// let reason = VerdictReason::new(Some("cues"), &["prove-human", "refused"], Some(212));
/// assert_eq!(reason.to_string(), "rule cues (prove-human, refused), 212 visible characters");
/// let headers: Vec<_> = reason.headers().collect();
/// assert_eq!(VerdictReason::of(&headers), Some(reason));
/// assert_eq!(VerdictReason::of(&[]), None);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "json", derive(Serialize, Deserialize))]
#[non_exhaustive]
pub struct VerdictReason {
    /// The id of the rule that decided; `cues` if a sum of cues did. `None` if the status or the
    /// amount of text did.
    pub rule: Option<Box<str>>,
    /// The ids of the strongest cues, if they decided.
    #[cfg_attr(feature = "json", serde(default))]
    pub cues: Vec<Box<str>>,
    /// The visible characters of the page, if it is HTML. A lower bound, because counting stops in
    /// a page with much text.
    pub visible_chars: Option<u32>,
}

impl VerdictReason {
    /// Returns the reason with these parts, and with the first [`MAX_CUES`] of the cues.
    pub fn new<C: AsRef<str>>(rule: Option<&str>, cues: &[C], visible_chars: Option<u32>) -> Self {
        let cues = cues.iter().take(MAX_CUES).map(|cue| cue.as_ref().into()).collect();
        Self { rule: rule.map(Into::into), cues, visible_chars }
    }

    /// Returns the reason that is among the headers of an attempt.
    pub fn of(headers: &[Header]) -> Option<Self> {
        let (verdict, chars) = (header(headers, VERDICT_HEADER), header(headers, CHARS_HEADER));
        if verdict.is_none() && chars.is_none() {
            return None;
        }
        let (rule, cues) = match verdict {
            Some(text) => {
                text.split_once(": ").map_or((Some(text), ""), |(rule, cues)| (Some(rule), cues))
            }
            None => (None, ""),
        };
        let cues =
            cues.split(", ").filter(|cue| !cue.is_empty()).take(MAX_CUES).map(Into::into).collect();
        Some(Self {
            rule: rule.map(Into::into),
            cues,
            visible_chars: chars.and_then(|chars| chars.parse().ok()),
        })
    }

    /// Returns the reason as headers of an attempt, in the order of their names.
    pub fn headers(&self) -> impl Iterator<Item = Header> {
        let chars = self.visible_chars.map(|chars| Header::new(CHARS_HEADER, chars.to_string()));
        let verdict = self.rule.as_deref().map(|rule| {
            let cues = self.cues.join(", ");
            Header::new(
                VERDICT_HEADER,
                if cues.is_empty() { rule.to_owned() } else { format!("{rule}: {cues}") },
            )
        });
        chars.into_iter().chain(verdict)
    }

    /// Returns whether there is no reason to keep.
    pub fn is_empty(&self) -> bool {
        self.rule.is_none() && self.visible_chars.is_none()
    }
}

impl fmt::Display for VerdictReason {
    /// Writes the reason for people.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(rule) = &self.rule {
            write!(f, "rule {rule}")?;
        }
        if !self.cues.is_empty() {
            write!(f, " ({})", self.cues.join(", "))?;
        }
        if let Some(chars) = self.visible_chars {
            write!(f, "{}{chars} visible characters", if self.rule.is_some() { ", " } else { "" })?;
        }
        Ok(())
    }
}
