//! Limits of the parts of an attempt, and the adjustment of an attempt to them.
//!
//! Owns: the limits that recording and importing share.
//!
//! Invariants: [`Attempt::bounded`] returns an attempt that can be exported as a line which
//! `import` accepts and reads back unchanged. A log therefore holds nothing that could not be
//! carried to another log.
//!
//! Must not know: how an attempt is written.

use std::borrow::Cow;
use std::net::Ipv4Addr;

use xxhash_rust::xxh3::xxh3_64;

use super::{Attempt, ErrorType, STORED_HEADERS, Tag, id};
use crate::heuristic::Heuristic;
use crate::heuristic::url::{MAX_URL_BYTES, UrlError, UrlFeatures, identity, parse};
use crate::registry::canonical;
use crate::response::Header;
use crate::time::Timestamp;

/// The longest name (fetcher, error type, source, rule, type of a heuristic, name of a header), in
/// bytes.
pub const MAX_NAME_BYTES: usize = 128;
/// The longest link, in bytes: as long as the longest URL.
pub const MAX_LINK_BYTES: usize = MAX_URL_BYTES;
/// The longest value of a heuristic, in bytes.
pub const MAX_VALUE_BYTES: usize = 4 << 10;
/// The longest value of a response header, in bytes.
pub const MAX_HEADER_BYTES: usize = 16 << 10;
/// The maximum number of heuristics, or of response headers, of one attempt.
pub const MAX_ITEMS: usize = 256;
/// The most bytes of all heuristics of one recorded attempt together. Even if each byte takes six
/// bytes of JSON, the attempt's line stays within the limit of `import`.
pub const MAX_TAGS_BYTES: usize = 256 << 10;
/// The longest duration, in milliseconds: up to here, `f64` is exact.
pub const MAX_DURATION_MS: u64 = (1 << 53) - 1;
/// The last time that RFC 3339 can write: the end of the year 9999.
pub const MAX_TIME: Timestamp = Timestamp::from_millis(253_402_300_799_999);

/// The reason why an attempt cannot be recorded in any form.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unrecordable {
    /// Its URL cannot be fetched.
    #[error("its URL cannot be fetched: {0}")]
    Url(#[from] UrlError),
    /// It does not name its fetcher.
    #[error("missing fetcher")]
    NoFetcher,
}

impl Attempt {
    /// Returns this attempt adjusted to all limits; borrowed if it already meets them. Long texts
    /// are cut. Values that a line cannot express are left out. Headers of one name are joined.
    /// Fields that contradict the outcome are made to agree with it. A link that is too long keeps
    /// its beginning and a hash of the rest, so that two such links stay different.
    ///
    /// # Errors
    /// [`Unrecordable`] if there is no URL that can be fetched, or no fetcher.
    pub fn bounded(&self) -> Result<Cow<'_, Self>, Unrecordable> {
        if self.fetcher.is_empty() {
            return Err(Unrecordable::NoFetcher);
        }
        if self.is_bounded() {
            return Ok(Cow::Borrowed(self));
        }
        self.made_to_fit().map(Cow::Owned)
    }

    /// Returns whether [`bounded`](Self::bounded) would return it unchanged. May return `false` for
    /// such an attempt.
    fn is_bounded(&self) -> bool {
        let is_share = |share: f64| (0.0..=1.0).contains(&share);
        let error_fits = match &self.error_type {
            None => !(self.success && self.is_banned),
            Some(ErrorType::Known(kind)) => !self.success && self.is_banned == kind.is_banned(),
            // A name that this release knows is a known kind.
            Some(ErrorType::Other(name)) => {
                !self.success && is_name(name) && ErrorType::from_name(name).kind().is_none()
            }
        };
        let headers = &self.response_headers;
        let is_alone = |(index, header): (usize, &Header)| {
            headers[..index].iter().all(|other| !other.name.eq_ignore_ascii_case(&header.name))
        };
        let headers_fit = headers.len() <= STORED_HEADERS.len()
            && headers
                .iter()
                .all(|header| is_stored(header) && is_text(&header.value, MAX_HEADER_BYTES))
            && headers.is_sorted_by(|a, b| a.name <= b.name)
            && headers.iter().enumerate().all(is_alone);
        let tag_fits = |(index, tag): (usize, &Tag)| {
            let Heuristic { kind, value } = &tag.heuristic;
            let is_new =
                || self.heuristics[..index].iter().all(|other| other.heuristic != tag.heuristic);
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
            // Last, since it may have to parse.
            && (is_plain_url(&self.url) || parse(&self.url).is_ok_and(|url| identity(&url) == self.url))
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
            // The same default as in `import`.
            heuristics = made_tags(
                &UrlFeatures::extract(&url)?
                    .heuristics()
                    .into_iter()
                    .map(Tag::from)
                    .collect::<Vec<_>>(),
            );
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
            // NaN teaches nothing.
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

/// Returns the name under which a link is recorded, borrowed if it is `link` itself.
///
/// A URL loses its user info and fragment, as the URL of an attempt does. Any other name is the
/// caller's: NUL characters are replaced, and a name beyond [`MAX_LINK_BYTES`] keeps its beginning
/// and a hash.
///
/// ```
/// use fetchwise_types::attempt::bounds::link_name; assert_eq!(link_name("https://me:secret@example.org/a#top"),
/// "https://example.org/a"); assert_eq!(link_name("article 7"), "article 7");
/// ```
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
    // A name that was too long for a URL may be one now.
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

/// Returns whether parsing `url` would return it unchanged. May return `false` for such a URL;
/// decides the frequent cases quickly.
fn is_plain_url(url: &str) -> bool {
    let (rest, usual_port) = match (url.strip_prefix("https://"), url.strip_prefix("http://")) {
        (Some(rest), _) => (rest, "443"),
        (_, Some(rest)) => (rest, "80"),
        _ => return false,
    };
    let Some((authority, path)) = rest.split_once('/') else { return false };
    let (host, port) =
        authority.split_once(':').map_or((authority, None), |(host, port)| (host, Some(port)));
    let is_label = |label: &str| {
        let is_plain =
            label.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
        !label.is_empty() && is_plain && !label.starts_with("xn--")
    };
    // Other hosts that end with a digit are numbers, in one spelling or another.
    let is_name = host.len() <= 253
        && host.split('.').all(is_label)
        && host.rsplit('.').next().is_some_and(|last| last.bytes().all(|b| b.is_ascii_lowercase()));
    let is_port = |port: &str| {
        port != usual_port
            && port.starts_with(|first: char| matches!(first, '1'..='9'))
            && port.parse::<u16>().is_ok()
    };
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"-_~/?=&+,;:!*()$@.%".contains(&b);
    // A segment that begins with a dot, escaped or not, may be a relative one.
    let begins_with_dot = |segment: &str| segment.starts_with('.') || segment.starts_with("%2");
    url.len() <= MAX_URL_BYTES
        && (is_name || host.parse::<Ipv4Addr>().is_ok())
        && port.is_none_or(is_port)
        && path.bytes().all(is_plain)
        && !path.split('/').any(begins_with_dot)
}

fn cut(text: &str, max: usize) -> &str {
    &text[..text.floor_char_boundary(max)]
}

fn without_nul(text: &str) -> Cow<'_, str> {
    if text.contains('\0') {
        Cow::Owned(text.replace('\0', "\u{fffd}"))
    } else {
        Cow::Borrowed(text)
    }
}

/// Returns `text`, cut to fit.
fn made_text(text: &str, max: usize) -> String {
    cut(&without_nul(text), max).to_owned()
}

/// Returns `name`, cut to fit; `None` if nothing is left of it.
fn made_name(name: &str) -> Option<String> {
    let clean: String = name.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
    let name = cut(&clean, MAX_NAME_BYTES);
    (!name.is_empty()).then(|| name.to_owned())
}

fn made_fetcher(name: &str) -> Option<String> {
    made_name(name).map(|name| canonical(&name).to_owned())
}

/// Returns one header per name, in the order of names: a JSON object can hold that.
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

/// Returns each heuristic once, up to the limits.
fn made_tags(tags: &[Tag]) -> Vec<Tag> {
    let (mut made, mut bytes): (Vec<Tag>, usize) = (Vec::new(), 0);
    for Tag { heuristic: Heuristic { kind, value }, importance } in
        tags.iter().filter(|t| !t.heuristic.kind.is_empty())
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
