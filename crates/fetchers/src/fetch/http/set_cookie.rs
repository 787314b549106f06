//! `Set-Cookie` lines as browsers read them, in the form that the parser of the cookie library
//! takes.
//!
//! Owns: bytes above ASCII, cookies without a name, and the dates of RFC 6265, 5.1.1. The library
//! wants UTF-8 and a name, and knows few of the forms in which servers write dates.
//!
//! Invariants: each byte of a name and a value comes back as it was sent. A date that is none is
//! left out.
//!
//! Must not know: which cookies are kept.

use std::time::{Duration, UNIX_EPOCH};

/// The name of a cookie without one. No byte becomes this character.
const NAMELESS: &str = "\u{100}";

/// Returns the line with one character for each byte, a name, and dates in the one form of HTTP.
/// `None` if it has neither name nor value.
pub(super) fn readable(line: &[u8]) -> Option<String> {
    let text: String = line.iter().copied().map(char::from).collect();
    let mut parts = text.split(';');
    let pair = parts.next()?.trim();
    let (name, value) = pair.split_once('=').unwrap_or(("", pair));
    let (name, value) = (name.trim(), value.trim());
    if name.is_empty() && (value.is_empty() || is_reserved(value)) {
        return None;
    }
    let mut readable = format!("{}={value}", if name.is_empty() { NAMELESS } else { name });
    for part in parts {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        if !name.trim().eq_ignore_ascii_case("expires") {
            readable.extend([";", part]);
        } else if let Some(seconds) = seconds_of_date(value) {
            // Cookies that expired before the epoch have expired, too.
            let at = UNIX_EPOCH + Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
            readable.extend(["; Expires=", &httpdate::fmt_http_date(at)]);
        }
    }
    Some(readable)
}

/// Returns the bytes that a request sends of a cookie that was read from such a line.
pub(super) fn sent(name: &str, value: &str) -> Vec<u8> {
    let name = if name == NAMELESS { None } else { Some([name, "="].concat()) };
    let characters = name.iter().flat_map(|name| name.chars()).chain(value.chars());
    characters.map(|character| u8::try_from(character).unwrap_or(b'?')).collect()
}

/// Returns whether a value would make a cookie without a name look like one with a prefix that
/// promises something.
fn is_reserved(value: &str) -> bool {
    ["__secure-", "__host-"].iter().any(|prefix| value.to_ascii_lowercase().starts_with(prefix))
}

/// Returns the seconds since 1970 of a cookie's date (RFC 6265, 5.1.1): the first tokens that can
/// be time, day, month and year, in any order.
fn seconds_of_date(text: &str) -> Option<i64> {
    let is_delimiter = |c: char| matches!(c, '\t' | ' '..='/' | ';'..='@' | '['..='`' | '{'..='~');
    let (mut time, mut day, mut month, mut year) = (None, None, None, None);
    for token in text.split(is_delimiter).filter(|token| !token.is_empty()) {
        if time.is_none()
            && let Some(found) = time_of(token)
        {
            time = Some(found);
        } else if day.is_none()
            && let Some(found) = number(token, 1..=2)
        {
            day = Some(found);
        } else if month.is_none()
            && let Some(found) = month_of(token)
        {
            month = Some(found);
        } else if year.is_none()
            && let Some(found) = number(token, 2..=4)
        {
            year = Some(found);
        }
    }
    let ((hour, minute, second), day, month) = (time?, day?, month?);
    let year = match year? {
        year @ 70..=99 => year + 1900,
        year @ 0..=69 => year + 2000,
        year => year,
    };
    let is_valid = (1..=days_of_month(year, month)).contains(&day)
        && year >= 1601
        && hour < 24
        && minute < 60
        && second < 60;
    is_valid
        .then(|| ((days_before(year, month) + day - 1) * 24 + hour) * 3600 + minute * 60 + second)
}

/// Returns the number at the beginning of a token, if it has that many digits and no digit follows.
fn number(token: &str, digits: std::ops::RangeInclusive<usize>) -> Option<i64> {
    let end = token.bytes().position(|byte| !byte.is_ascii_digit()).unwrap_or(token.len());
    if digits.contains(&end) { token[..end].parse().ok() } else { None }
}

fn time_of(token: &str) -> Option<(i64, i64, i64)> {
    let mut parts = token.splitn(3, ':');
    let mut whole = || parts.next().filter(|part| part.bytes().all(|byte| byte.is_ascii_digit()));
    let (hour, minute) = (number(whole()?, 1..=2)?, number(whole()?, 1..=2)?);
    Some((hour, minute, number(parts.next()?, 1..=2)?))
}

/// Returns the month, from 0, that the first three letters name.
fn month_of(token: &str) -> Option<i64> {
    const MONTHS: [&str; 12] =
        ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
    let start = token.get(..3)?.to_ascii_lowercase();
    MONTHS.iter().zip(0..).find_map(|(name, number)| (*name == start).then_some(number))
}

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

fn days_of_month(year: i64, month: i64) -> i64 {
    match month {
        1 => 28 + i64::from(is_leap(year)),
        3 | 5 | 8 | 10 => 30,
        _ => 31,
    }
}

/// Returns the days from 1970 to the beginning of a month.
fn days_before(year: i64, month: i64) -> i64 {
    let leap_days = |year: i64| year / 4 - year / 100 + year / 400;
    let of_years = (year - 1970) * 365 + leap_days(year - 1) - leap_days(1969);
    of_years + (0..month).map(|earlier| days_of_month(year, earlier)).sum::<i64>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_read_in_all_the_forms_that_servers_write() {
        for date in [
            "Thu, 01 Jan 2015 01:02:03 GMT",
            "Thu, 1 Jan 2015 1:2:3 GMT",
            "Thu, 01 Jan 2015 01:02:03 UTC",
            "Thu, 01 Jan 2015 01:02:03",
            "Thu, 01 January 2015 01:02:03 +0000",
            "Thursday, 01-Jan-15 01:02:03 GMT",
            "Thu Jan  1 01:02:03 2015",
            "Thu, 01-JAN-2015 01:02:03 -0700",
            "2015 Jan 01 01:02:03",
            "01:02:03 1 jan 15",
            "01 Jan 2015th 01:02:03pm",
            "Do, 01/Jan/2015 (01:02:03)",
        ] {
            assert_eq!(seconds_of_date(date), Some(1_420_074_123), "{date}");
        }
        assert_eq!(seconds_of_date("Thu, 1 Jan 1970 00:00:00 GMT"), Some(0));
        assert_eq!(seconds_of_date("29 Feb 2000 00:00:00"), Some(951_782_400));
        assert_eq!(seconds_of_date("31 Dec 1969 23:59:59"), Some(-1));
        assert_eq!(seconds_of_date("1 Jan 69 00:00:00"), seconds_of_date("1 Jan 2069 00:00:00"));
        for none in [
            "",
            "soon",
            "0",
            "1jan 2015 01:02:03",
            "2015-01-01T01:02:03Z",
            "Thu, 01 Jan 2015",
            "Thu, 32 Jan 2015 01:02:03",
            "30 Feb 2015 01:02:03",
            "29 Feb 1900 01:02:03",
            "Thu, 01 Foo 2015 01:02:03",
            "Thu, 01 Jan 1600 01:02:03",
            "Thu, 01 Jan 20150 01:02:03",
            "Thu, 01 Jan 2015 24:00:00",
            "Thu, 01 Jan 2015 01:60:00",
            "Thu, 01 Jan 2015 001:02:03",
            "Thu, 01 Jan 2015 01:02",
        ] {
            assert_eq!(seconds_of_date(none), None, "{none}");
        }
    }

    #[test]
    fn a_line_is_read_byte_by_byte_and_with_a_name() {
        assert_eq!(
            readable(b"a=b; Path=/; expires=1 Jan 1970 0:0:1").as_deref(),
            Some("a=b; Path=/; Expires=Thu, 01 Jan 1970 00:00:01 GMT")
        );
        assert_eq!(readable(b"a=b; EXPIRES=soon;Secure").as_deref(), Some("a=b;Secure"));
        assert_eq!(readable(b" a = b=c ").as_deref(), Some("a=b=c"));
        for none in [&b""[..], b"=", ";Path=/".as_bytes(), b"__Host-a", b"=__secure-a=b"] {
            assert_eq!(readable(none), None, "{none:?}");
        }
        for line in [&b"s=\xe4\xf6"[..], "gr\u{fc}n=\u{e4}".as_bytes(), b"no name", b"token="] {
            let read = readable(line).unwrap_or_default();
            let (name, value) = read.split_once('=').unwrap_or_default();
            assert_eq!(sent(name, value), line);
        }
        assert_eq!(sent(NAMELESS, "x"), b"x");
    }
}
