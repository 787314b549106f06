//! A line of a list: a URL or a JSON object, and the link that it stands for.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde::Deserialize;
use xxhash_rust::xxh3::xxh3_64;

use fetchwise::heuristic::Heuristic;
use fetchwise::heuristic::url::{domain_of, identity, parse, without_user};
use fetchwise::pipeline::Link;

/// The maximum length of an input line in bytes: enough for a message about any URL.
pub const MAX_LINE_BYTES: usize = 1 << 20;

/// A line with a JSON object.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LinkJson {
    url: String,
    #[serde(default)]
    id: Option<String>,
    #[serde(default)]
    learning: Option<bool>,
    #[serde(default)]
    prefer: Option<String>,
    #[serde(default)]
    tags: BTreeMap<String, String>,
}

/// Returns the link of a line; none for an empty line or a comment.
pub fn link(line: &str, base: &Link) -> Option<Result<Link, String>> {
    let line = line.trim();
    if line.is_empty() || line.starts_with('#') {
        return None;
    }
    if !line.starts_with('{') {
        // A URL would lose them, and become another one.
        if let Some(found) = line.chars().find(|char| matches!(char, '\t' | '\r')) {
            let message = format!("{found:?} inside: expected one URL a line, or a JSON object");
            return Some(Err(message));
        }
        return Some(Ok(Link { url: line.to_owned(), ..base.clone() }));
    }
    let expected = r#"{"url", "id", "learning", "prefer", "tags"}"#;
    let read: Result<LinkJson, _> = serde_json::from_str(line);
    Some(
        read.map_err(|error| format!("not a JSON object {expected}: {error}"))
            .and_then(|json| of_json(json, base)),
    )
}

/// Returns the link of a JSON line; its own fields take precedence over the common ones.
fn of_json(json: LinkJson, base: &Link) -> Result<Link, String> {
    let prefer = json.prefer.or_else(|| base.prefer.clone());
    let mut heuristics = Vec::new();
    for (kind, value) in &json.tags {
        heuristics.push(Heuristic::of_caller(kind, value).map_err(|error| error.to_string())?);
    }
    heuristics
        .extend(base.heuristics.iter().filter(|tag| !json.tags.contains_key(&*tag.kind)).cloned());
    Ok(Link {
        url: json.url,
        id: json.id,
        learning: json.learning,
        prefer,
        heuristics,
        ..base.clone()
    })
}

/// Returns the host of a URL in the form of pauses and paces; an empty one for an invalid URL.
pub fn host_of(url: &str) -> Box<str> {
    parse(url)
        .ok()
        .and_then(|url| url.host_str().map(|host| domain_of(host).into()))
        .unwrap_or_default()
}

/// Returns the hash of all that a link consists of. `text` is a buffer. Addresses that lead to the
/// same request are one: fragments, users and the case of a host reach no server.
pub fn hash(link: &Link, text: &mut String) -> u64 {
    let Link { url, id, learning, prefer, heuristics, robots } = link;
    text.clear();
    match parse(url) {
        Ok(parsed) => text.push_str(&without_user(identity(&parsed))),
        Err(_) => text.push_str(url),
    }
    let written = write!(text, "\0{learning:?}{robots:?}\0{id:?}\0{prefer:?}");
    // Most links have none, and their text takes long.
    let written = written
        .and_then(|()| if heuristics.is_empty() { Ok(()) } else { write!(text, "{heuristics:?}") });
    debug_assert!(written.is_ok(), "writing to a string does not fail");
    xxh3_64(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use fetchwise::robots::RobotsUse;

    #[test]
    fn a_line_is_a_url_or_a_json_object() {
        let base =
            Link { prefer: Some("f".to_owned()), robots: RobotsUse::Obey, ..Link::default() };
        assert!(link("  ", &base).is_none() && link("# later", &base).is_none());
        assert_eq!(
            link(" http://e.org/ ", &base).unwrap().unwrap(),
            Link { url: "http://e.org/".to_owned(), ..base.clone() }
        );
        for columns in ["http://e.org/\tBread shop", "http://e.org/a\rhttp://e.org/b"] {
            assert!(link(columns, &base).unwrap().is_err(), "{columns:?}");
        }
        let line = r#"{"url":"http://e.org/","id":"7","learning":false,"prefer":"g","tags":{"video_platform":"vimeo"}}"#;
        let read = link(line, &base).unwrap().unwrap();
        let want = Link {
            url: "http://e.org/".to_owned(),
            id: Some("7".to_owned()),
            learning: Some(false),
            prefer: Some("g".to_owned()),
            heuristics: vec![Heuristic::new("video_platform", "vimeo")],
            robots: RobotsUse::Obey,
        };
        assert_eq!(read, want);
        for bad in [
            "{",
            r#"{"id":"7"}"#,
            r#"{"url":"http://e.org/","ulr":1}"#,
            r#"{"url":"x","tags":{"domain":"x"}}"#,
        ] {
            assert!(link(bad, &base).unwrap().is_err(), "{bad}");
        }
    }

    #[test]
    fn links_that_differ_have_another_hash() {
        let base = Link::new("http://e.org/");
        let tags = vec![Heuristic::new("video_platform", "vimeo")];
        let links = [
            base.clone(),
            Link { id: Some("7".to_owned()), ..base.clone() },
            Link { learning: Some(false), ..base.clone() },
            Link { prefer: Some("7".to_owned()), ..base.clone() },
            Link { heuristics: tags, ..base.clone() },
            Link { robots: RobotsUse::Obey, ..base.clone() },
        ];
        let mut text = String::new();
        let hashes: std::collections::HashSet<u64> =
            links.iter().map(|link| hash(link, &mut text)).collect();
        assert_eq!(
            (hashes.len(), hash(&base, &mut text)),
            (6, hash(&Link::new("http://e.org/"), &mut text))
        );
    }

    #[test]
    fn addresses_that_lead_to_the_same_request_are_one_link() {
        let of = |url: &str| hash(&Link::new(url), &mut String::new());
        let one = of("http://e.org/a?b");
        for same in [
            "http://e.org/a?b#top",
            "http://e.org/a?b#",
            "HTTP://E.ORG:80/a?b",
            "http://e.org/x/../a?b",
            "http://me:secret@e.org/./a?b",
        ] {
            assert_eq!(of(same), one, "{same}");
        }
        for other in [
            "https://e.org/a?b",
            "http://e.org/A?b",
            "http://e.org/a?b=",
            "http://e.org/a",
            "http://e.org:8080/a?b",
        ] {
            assert_ne!(of(other), one, "{other}");
        }
        assert_ne!(of("no url#a"), of("no url#b"), "an invalid line is reported as it is");
    }
}
