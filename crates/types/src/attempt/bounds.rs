//! How large the parts of an attempt may be, and an attempt made to fit.
//!
//! Owns: the limits that recording and importing share. Invariant: what [`Attempt::bounded`] returns is exported as a line that
//! `import` takes, and is read back as the same attempt. So nothing gets into a log that could not be carried to another one.
//! Must not know: how an attempt is written.

use std::borrow::Cow;

use xxhash_rust::xxh3::xxh3_64;

use super::{Attempt, ErrorType, STORED_HEADERS, Tag, id};
use crate::heuristic::Heuristic;
use crate::heuristic::url::{MAX_URL_BYTES, UrlError, UrlFeatures, identity, parse};
use crate::registry::canonical;
use crate::response::Header;
use crate::time::Timestamp;

/// The longest name (fetcher, error type, source, rule, type of a heuristic, name of a header), in bytes.
pub const MAX_NAME_BYTES: usize = 128;
/// The longest link, in bytes: as long as the longest URL.
pub const MAX_LINK_BYTES: usize = MAX_URL_BYTES;
/// The longest value of a heuristic, in bytes.
pub const MAX_VALUE_BYTES: usize = 4 << 10;
/// The longest value of a response header, in bytes.
pub const MAX_HEADER_BYTES: usize = 16 << 10;
/// The most heuristics or response headers of one attempt.
pub const MAX_ITEMS: usize = 256;
/// The most bytes of all heuristics of one recorded attempt together. Even when each of them takes six bytes of JSON, the
/// attempt's line is no longer than `import` reads.
pub const MAX_TAGS_BYTES: usize = 256 << 10;
/// The longest duration, in milliseconds: up to here `f64` counts exactly.
pub const MAX_DURATION_MS: u64 = (1 << 53) - 1;
/// The last moment that RFC 3339 can write, the end of the year 9999.
pub const MAX_TIME: Timestamp = Timestamp::from_millis(253_402_300_799_999);

/// Why an attempt cannot be recorded, in any form.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unrecordable {
    /// Its URL is not one that can be fetched.
    #[error("its URL cannot be fetched: {0}")]
    Url(#[from] UrlError),
    /// It does not say which fetcher made it.
    #[error("it names no fetcher")]
    NoFetcher,
}

impl Attempt {
    /// This attempt within all limits, itself where it is. Texts that are too long are cut, what cannot be said in a line is
    /// left out, headers of one name are joined, and what contradicts the outcome is made to agree with it. A link that is too
    /// long keeps its beginning and a hash of the rest, so that two of them stay two.
    ///
    /// # Errors
    /// [`Unrecordable`] when there is no URL that can be fetched, or no fetcher.
    pub fn bounded(&self) -> Result<Cow<'_, Self>, Unrecordable> {
        if self.fetcher.is_empty() {
            return Err(Unrecordable::NoFetcher);
        }
        if self.is_bounded() {
            return Ok(Cow::Borrowed(self));
        }
        self.made_to_fit().map(Cow::Owned)
    }

    /// Whether it is as [`bounded`](Self::bounded) would return it. May say no of one that is.
    fn is_bounded(&self) -> bool {
        let is_share = |share: f64| (0.0..=1.0).contains(&share);
        let error_fits = match &self.error_type {
            None => !(self.success && self.is_banned),
            Some(ErrorType::Known(kind)) => !self.success && self.is_banned == kind.is_banned(),
            // A name that this release knows is that kind.
            Some(ErrorType::Other(name)) => {
                !self.success && is_name(name) && ErrorType::from_name(name).kind().is_none()
            }
        };
        let headers = &self.response_headers;
        let is_alone = |(index, header): (usize, &Header)| {
            headers[..index].iter().all(|other| !other.name.eq_ignore_ascii_case(&header.name))
        };
        let headers_fit = headers.len() <= STORED_HEADERS.len()
            && headers.iter().all(|header| is_stored(header) && is_text(&header.value, MAX_HEADER_BYTES))
            && headers.is_sorted_by(|a, b| a.name <= b.name)
            && headers.iter().enumerate().all(is_alone);
        let tag_fits = |(index, tag): (usize, &Tag)| {
            let Heuristic { kind, value } = &tag.heuristic;
            let is_new = || self.heuristics[..index].iter().all(|other| other.heuristic != tag.heuristic);
            !kind.is_empty()
                && is_text(kind, MAX_NAME_BYTES)
                && is_text(value, MAX_VALUE_BYTES)
                && tag.importance.is_none_or(|importance| is_share(f64::from(importance)))
                && is_new()
        };
        error_fits
            && headers_fit
            && !self.heuristics.is_empty()
            && self.heuristics.len() * (MAX_NAME_BYTES + MAX_VALUE_BYTES) <= MAX_TAGS_BYTES
            && self.heuristics.iter().enumerate().all(tag_fits)
            && !self.id.is_nil()
            && is_plain_url(&self.url)
            && (self.link == self.url || !self.link.is_empty() && matches!(link_name(&self.link), Cow::Borrowed(_)))
            && [Some(&self.fetcher), self.shadow_fetcher.as_ref()].into_iter().flatten().all(is_fetcher)
            && [&self.source, &self.rule].into_iter().flatten().all(|name| is_name(name))
            && self.confidence.is_none_or(is_share)
            && self.http_status.is_none_or(|status| (100..1000).contains(&status))
            && self.duration_ms <= MAX_DURATION_MS
            && (0..=MAX_TIME.as_millis()).contains(&self.attempted_at.as_millis())
            && self.propensity.is_none_or(|p| is_share(p) && p > 0.0)
            && is_share(self.weight)
            && self.try_no > 0
    }

    fn made_to_fit(&self) -> Result<Self, Unrecordable> {
        let url = parse(&self.url)?;
        let error_type = match &self.error_type {
            Some(ErrorType::Other(name)) => made_name(name).map(|name| ErrorType::from_name(&name)),
            known => known.clone(),
        };
        let error_type = error_type.filter(|_| !self.success);
        let kind = error_type.as_ref().and_then(ErrorType::kind);
        let is_banned = kind.map_or(self.is_banned && !self.success, |kind| kind.is_banned());
        let mut heuristics = made_tags(&self.heuristics);
        if heuristics.is_empty() {
            // As `import` fills them in.
            heuristics =
                made_tags(&UrlFeatures::extract(&url)?.heuristics().into_iter().map(Tag::from).collect::<Vec<_>>());
        }
        let link = match self.link.as_str() {
            "" => identity(&url).to_owned(),
            link => link_name(link).into_owned(),
        };
        Ok(Self {
            id: if self.id.is_nil() { id::new() } else { self.id },
            link,
            url: identity(&url).to_owned(),
            fetcher: made_fetcher(&self.fetcher).ok_or(Unrecordable::NoFetcher)?,
            success: self.success,
            is_banned,
            error_type,
            http_status: self.http_status.filter(|status| (100..1000).contains(status)),
            response_headers: made_headers(&self.response_headers),
            duration_ms: self.duration_ms.min(MAX_DURATION_MS),
            attempted_at: self.attempted_at.clamp(Timestamp::from_millis(0), MAX_TIME),
            source: self.source.as_deref().and_then(made_name).map(Cow::Owned),
            propensity: self.propensity.filter(|p| *p > 0.0 && *p <= 1.0),
            hint: self.hint,
            // What is no number teaches nothing.
            weight: if self.weight.is_nan() { 0.0 } else { self.weight.clamp(0.0, 1.0) },
            try_no: self.try_no.max(1),
            shadow_fetcher: self.shadow_fetcher.as_deref().and_then(made_fetcher),
            heuristics,
            rule: self.rule.as_deref().and_then(made_name).map(Cow::Owned),
            confidence: self.confidence.filter(|confidence| (0.0..=1.0).contains(confidence)),
            arm: self.arm,
        })
    }
}

/// The name under which a link is recorded: a URL loses its user info and fragment, as the URL of an attempt does; any other
/// name is the caller's, made to fit.
pub fn link_name(link: &str) -> Cow<'_, str> {
    if let Ok(url) = parse(link) {
        let text = identity(&url);
        return if text == link { Cow::Borrowed(link) } else { Cow::Owned(text.to_owned()) };
    }
    if is_text(link, MAX_LINK_BYTES) {
        return Cow::Borrowed(link);
    }
    let text = without_nul(link);
    if text.len() <= MAX_LINK_BYTES {
        return text;
    }
    let hash = format!("~{:016x}", xxh3_64(link.as_bytes()));
    let made = format!("{}{hash}", cut(&text, MAX_LINK_BYTES - hash.len()));
    // What was too long for a URL may be one now.
    Cow::Owned(parse(&made).map_or(made, |url| identity(&url).to_owned()))
}

fn is_text(text: &str, max: usize) -> bool {
    text.len() <= max && !text.contains('\0')
}

fn is_name(name: &str) -> bool {
    !name.is_empty() && name.len() <= MAX_NAME_BYTES && !name.chars().any(char::is_control)
}

fn is_fetcher(name: &String) -> bool {
    is_name(name) && canonical(name) == name
}

fn is_stored(header: &Header) -> bool {
    STORED_HEADERS.iter().any(|name| header.name.eq_ignore_ascii_case(name))
}

/// Whether parsing `url` would give it back unchanged, for the many of which that can be told at a glance.
fn is_plain_url(url: &str) -> bool {
    let Some(rest) = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://")) else { return false };
    let Some((host, path)) = rest.split_once('/') else { return false };
    let is_label = |label: &str| {
        let is_plain = label.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
        !label.is_empty() && is_plain && !label.starts_with("xn--")
    };
    // Hosts that end with a digit are numbers, in one spelling or another.
    let host_is_plain = host.len() <= 253
        && host.split('.').all(is_label)
        && host.rsplit('.').next().is_some_and(|last| last.bytes().all(|b| b.is_ascii_lowercase()));
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"-_~/?=&+,;:!*()$@.".contains(&b);
    // Dots may be steps up or down.
    url.len() <= MAX_URL_BYTES
        && host_is_plain
        && path.bytes().all(is_plain)
        && !path.starts_with('.')
        && !path.contains("/.")
}

fn cut(text: &str, max: usize) -> &str {
    &text[..text.floor_char_boundary(max)]
}

fn without_nul(text: &str) -> Cow<'_, str> {
    if text.contains('\0') { Cow::Owned(text.replace('\0', "\u{fffd}")) } else { Cow::Borrowed(text) }
}

/// Text that fits.
fn made_text(text: &str, max: usize) -> String {
    cut(&without_nul(text), max).to_owned()
}

/// A name that fits; none when there is nothing of it.
fn made_name(name: &str) -> Option<String> {
    let clean: String = name.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
    let name = cut(&clean, MAX_NAME_BYTES);
    (!name.is_empty()).then(|| name.to_owned())
}

fn made_fetcher(name: &str) -> Option<String> {
    made_name(name).map(|name| canonical(&name).to_owned())
}

/// One header a name, in the order of names: that is what a JSON object can hold.
fn made_headers(headers: &[Header]) -> Vec<Header> {
    let mut made: Vec<Header> = Vec::new();
    for header in headers.iter().filter(|header| is_stored(header)) {
        match made.iter_mut().find(|known| known.name.eq_ignore_ascii_case(&header.name)) {
            Some(known) => known.value = format!("{}, {}", known.value, header.value),
            None => made.push(header.clone()),
        }
    }
    for header in &mut made {
        header.value = made_text(&header.value, MAX_HEADER_BYTES);
    }
    made.sort_by(|a, b| a.name.cmp(&b.name));
    made
}

/// Each heuristic once, as many as fit.
fn made_tags(tags: &[Tag]) -> Vec<Tag> {
    let (mut made, mut bytes): (Vec<Tag>, usize) = (Vec::new(), 0);
    for Tag { heuristic: Heuristic { kind, value }, importance } in tags.iter().filter(|t| !t.heuristic.kind.is_empty())
    {
        let kind = made_text(kind, MAX_NAME_BYTES);
        let heuristic = Heuristic::new(kind, made_text(value, MAX_VALUE_BYTES));
        bytes += heuristic.kind.len() + heuristic.value.len();
        if made.len() == MAX_ITEMS || bytes > MAX_TAGS_BYTES {
            break;
        }
        let importance = importance.filter(|importance| (0.0..=1.0).contains(importance));
        if made.iter().all(|known| known.heuristic != heuristic) {
            made.push(Tag { heuristic, importance });
        }
    }
    made
}
