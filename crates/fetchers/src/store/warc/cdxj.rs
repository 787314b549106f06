//! A CDXJ index of an archive: one line per page, sorted by URL and time, for lookups by pywb and
//! similar tools.
//!
//! Owns: the lines, and the form of a URL by which they are sorted (SURT). An index is built from
//! the archive itself, from the end of the part that it already covers, so a killed crawl omits
//! nothing.
//!
//! Invariants: an update replaces the index atomically by another sorted one. A file counts as
//! indexed only if it still has the record of its last line: the name of an archive may be that of
//! another one by now.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader, BufWriter};
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use url::Url;

use super::is_gzip;
use super::parsed_heads::ParsedHeads;
use super::tail::{Record, Records};
use crate::store::readable_by_umask;

/// The fields of a line besides URL and time. Numbers are strings, as the tools for such files
/// expect.
#[derive(Debug, Serialize, Deserialize)]
struct IndexFields {
    url: String,
    mime: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    status: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    digest: String,
    length: String,
    offset: String,
    filename: String,
}

/// Updates the index at `index` from the files of an archive. Returns the number of new lines. A
/// file that is no longer the one that was indexed is indexed from its start. Cost: reading the new
/// part of the archive, or all of it if it is compressed; memory for the new lines.
///
/// # Errors
/// Fails if a file cannot be read or written, or if `index` is not a CDXJ file.
pub fn update(archive: &[PathBuf], index: &Path) -> io::Result<usize> {
    let old = match File::open(index) {
        Ok(file) => Some(file),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    let indexed = old.as_ref().map(last_lines).transpose()?.unwrap_or_default();
    let (mut lines, mut replaced) = (Vec::new(), HashSet::new());
    for path in archive {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let from = match indexed.get(&name) {
            Some(last) if last.is_in(path, &name)? => last.end,
            Some(_) => {
                replaced.insert(name.clone());
                0
            }
            None => 0,
        };
        collect(path, &name, from, &mut lines)?;
    }
    if lines.is_empty() && replaced.is_empty() && old.is_some() {
        return Ok(0);
    }
    lines.sort_unstable();
    let folder = index.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::create_dir_all(folder)?;
    let mut builder = tempfile::Builder::new();
    readable_by_umask(&mut builder);
    let mut file = builder.tempfile_in(folder)?;
    let old = old.map(|_| File::open(index)).transpose()?;
    merge((old, &replaced), &lines, &mut BufWriter::new(file.as_file_mut()))?;
    file.persist(index).map_err(|error| error.error)?;
    Ok(lines.len())
}

/// The last line of an indexed file.
struct LastLine {
    text: String,
    /// The record's first byte, and the byte after it.
    begin: u64,
    end: u64,
}

impl LastLine {
    /// Returns whether the file at `path` has the record of the line.
    fn is_in(&self, path: &Path, name: &str) -> io::Result<bool> {
        let file = File::open(path)?;
        let Some(record) = Records::of(&file, is_gzip(path), self.begin)?.next()? else {
            return Ok(false);
        };
        Ok(line_of(&record, name)?.as_ref() == Some(&self.text))
    }
}

/// Returns the last line of each indexed file.
fn last_lines(file: &File) -> io::Result<HashMap<String, LastLine>> {
    let mut lasts: HashMap<String, LastLine> = HashMap::new();
    for text in BufReader::new(file).lines() {
        let text = text?;
        let invalid =
            || io::Error::new(io::ErrorKind::InvalidData, format!("invalid CDXJ line: {text:.80}"));
        let fields = fields_of(&text).ok_or_else(invalid)?;
        let begin = fields.offset.parse::<u64>().map_err(|_| invalid())?;
        let len = fields.length.parse().map_err(|_| invalid())?;
        let end = begin.checked_add(len).ok_or_else(invalid)?;
        if lasts.get(&fields.filename).is_none_or(|known| known.end < end) {
            lasts.insert(fields.filename, LastLine { text, begin, end });
        }
    }
    Ok(lasts)
}

/// Returns the fields of a line besides URL and time.
fn fields_of(line: &str) -> Option<IndexFields> {
    serde_json::from_str(line.splitn(3, ' ').nth(2)?).ok()
}

/// Collects the lines of the file at `path` from byte `from` on.
fn collect(path: &Path, name: &str, from: u64, lines: &mut Vec<String>) -> io::Result<()> {
    let file = File::open(path)?;
    let mut records = Records::of(&file, is_gzip(path), from)?;
    while let Some(record) = records.next()? {
        lines.extend(line_of(&record, name)?);
    }
    Ok(())
}

/// Returns the line of a record in the file `name`; `None` for one that is no page.
fn line_of(record: &Record, name: &str) -> io::Result<Option<String>> {
    let head = ParsedHeads::of(&record.head);
    let kind = head.warc("warc-type").unwrap_or_default();
    let (true, Some(url)) = (matches!(kind, "response" | "revisit"), head.warc("warc-target-uri"))
    else {
        return Ok(None);
    };
    let Ok(parsed) = Url::parse(url) else { return Ok(None) };
    let time = head
        .warc("warc-date")
        .and_then(|date| DateTime::parse_from_rfc3339(date).ok())
        .unwrap_or_default();
    let digest = head.warc("warc-payload-digest").unwrap_or_default();
    let fields = IndexFields {
        url: url.to_owned(),
        mime: if kind == "revisit" { "warc/revisit".to_owned() } else { head.mime() },
        status: head.status().unwrap_or_default().to_owned(),
        digest: digest.strip_prefix("sha1:").unwrap_or(digest).to_owned(),
        length: (record.end - record.start).to_string(),
        offset: record.start.to_string(),
        filename: name.to_owned(),
    };
    let json = serde_json::to_string(&fields).map_err(io::Error::other)?;
    Ok(Some(format!(
        "{} {} {json}",
        surt(&parsed),
        time.with_timezone(&Utc).format("%Y%m%d%H%M%S")
    )))
}

/// Writes the old and the new lines, sorted, without the old ones of the files in `replaced`.
fn merge(
    (old, replaced): (Option<File>, &HashSet<String>),
    new: &[String],
    out: &mut impl io::Write,
) -> io::Result<()> {
    let is_replaced = |line: &str| {
        !replaced.is_empty()
            && fields_of(line).is_some_and(|fields| replaced.contains(&fields.filename))
    };
    let mut new = new.iter().peekable();
    if let Some(old) = old {
        for line in BufReader::new(old).lines() {
            let line = line?;
            if is_replaced(&line) {
                continue;
            }
            while let Some(next) = new.next_if(|next| **next < line) {
                writeln!(out, "{next}")?;
            }
            writeln!(out, "{line}")?;
        }
    }
    for line in new {
        writeln!(out, "{line}")?;
    }
    out.flush()
}

/// Returns the form of a URL that sorts by its host from the right: `http://www.example.com/a?b`
/// becomes `com,example)/a?b`. As in other tools, `www.`, letter case, the order of the query's
/// parts, and the usual session ids in it make no difference.
///
/// ```
/// use fetchwise_fetchers::store::warc::cdxj::surt;
/// assert_eq!(surt(&"http://www.Example.com:80/A/?b=2&a=1".parse().unwrap()), "com,example)/a?a=1&b=2");
/// ```
pub fn surt(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default().to_ascii_lowercase();
    let host = without_www(&host);
    let is_ipv6 = host
        .trim_start_matches('[')
        .trim_end_matches(']')
        .parse::<IpAddr>()
        .is_ok_and(|ip| ip.is_ipv6());
    let mut surt: String = match is_ipv6 {
        true => host.trim_start_matches('[').trim_end_matches(']').to_owned(),
        false => host.rsplit('.').collect::<Vec<_>>().join(","),
    };
    if let Some(port) = url.port() {
        surt.push_str(&format!(":{port}"));
    }
    surt.push_str(")/");
    let path = unescaped(url.path()).to_ascii_lowercase();
    surt.push_str(&path.split('/').filter(|part| !part.is_empty()).collect::<Vec<_>>().join("/"));
    if let Some(query) = url.query().filter(|query| !query.is_empty()) {
        let query = unescaped(query).to_ascii_lowercase();
        let mut parts: Vec<&str> = query.split('&').filter(|part| !is_session(part)).collect();
        parts.sort_unstable();
        if !parts.is_empty() {
            surt.push('?');
            surt.push_str(&parts.join("&"));
        }
    }
    surt.replace(' ', "%20")
}

/// Returns the host without `www.`, `www2.` and the like.
fn without_www(host: &str) -> &str {
    let rest =
        host.strip_prefix("www").map(|rest| rest.trim_start_matches(|c: char| c.is_ascii_digit()));
    rest.and_then(|rest| rest.strip_prefix('.')).filter(|rest| !rest.is_empty()).unwrap_or(host)
}

/// Returns whether a part of a query is a session id, which differs from visit to visit.
fn is_session(part: &str) -> bool {
    let Some((name, value)) = part.split_once('=') else { return false };
    matches!(name, "jsessionid" | "phpsessid" | "sid")
        && value.len() == 32
        && value.bytes().all(|b| b.is_ascii_alphanumeric())
}

/// Resolves the escapes of printable ASCII characters without a meaning in a URL. [`surt`] keeps
/// the others, in lower case.
fn unescaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('%') {
        out.push_str(&rest[..at]);
        let byte = rest.get(at + 1..at + 3).and_then(|hex| u8::from_str_radix(hex, 16).ok());
        match byte.filter(|byte| (0x21..0x7f).contains(byte) && !matches!(byte, b'%' | b'#')) {
            Some(byte) => {
                out.push(char::from(byte));
                rest = &rest[at + 3..];
            }
            None => {
                out.push('%');
                rest = &rest[at + 1..];
            }
        }
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn urls_sort_by_their_hosts_from_the_right() {
        // The results of the Python package `surt`, except for path parameters that it takes for
        // sessions.
        for (url, want) in [
            ("http://127.0.0.1:8080/a/b.html", "1,0,0,127:8080)/a/b.html"),
            ("http://www.Example.com/A/?b=2&a=1&C", "com,example)/a?a=1&b=2&c"),
            ("http://www2.example.com/", "com,example)/"),
            ("https://example.com:443/x/", "com,example)/x"),
            ("http://e.org/a%20b/%C3%A9?q=%41%2f", "org,e)/a%20b/%c3%a9?q=a/"),
            ("http://e.org/?", "org,e)/"),
            ("http://e.org/?phpsessid=0123456789abcdef0123456789abcdef&x=1", "org,e)/?x=1"),
            ("http://[::1]:80/x", "::1)/x"),
            ("http://e.org//a//b", "org,e)/a/b"),
            ("http://e.org/?a=1&&b", "org,e)/?&a=1&b"),
        ] {
            assert_eq!(surt(&Url::parse(url).unwrap()), want, "{url}");
        }
    }

    proptest! {
        #[test]
        fn any_url_has_a_key_without_spaces(text in "https?://[a-zA-Z0-9.\\[\\]:%-]{1,30}(/\\PC{0,40})?") {
            if let Ok(url) = Url::parse(&text) {
                prop_assert!(!surt(&url).contains(char::is_whitespace));
            }
        }
    }
}
