//! The dashboard's files, compiled into the program and served to browsers.
//!
//! Invariant: a browser runs only scripts of this server and sends requests only to it; no markup
//! is made from text. `dashboard/` has the files.
//!
//! Must not know: what they show.

use std::sync::LazyLock;

use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::Response;
use xxhash_rust::xxh3::xxh3_128;

/// The content security policy of the page. Scripts, styles and requests stay on this server,
/// strings never become markup, and no other page can frame this one.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
    base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'";

const HTML: &str = "text/html; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";

/// A file.
#[derive(Debug)]
struct File {
    name: &'static str,
    kind: &'static str,
    bytes: &'static [u8],
}

macro_rules! files {
    ($($path:literal: $kind:expr),+ $(,)?) => {
        [$(File { name: $path, kind: $kind, bytes: include_bytes!(concat!("dashboard/", $path)) }),+]
    };
}

static FILES: [File; 20] = files![
    "index.html": HTML,
    "style.css": STYLE,
    "icon.svg": "image/svg+xml",
    "address.js": SCRIPT,
    "api.js": SCRIPT,
    "app.js": SCRIPT,
    "attention.js": SCRIPT,
    "chart.js": SCRIPT,
    "crawl.js": SCRIPT,
    "domain.js": SCRIPT,
    "explain.js": SCRIPT,
    "fleet.js": SCRIPT,
    "overview.js": SCRIPT,
    "parts.js": SCRIPT,
    "rollout.js": SCRIPT,
    "table.js": SCRIPT,
    "text.js": SCRIPT,
    "vendor/uPlot.iife.min.js": SCRIPT,
    "vendor/uPlot.min.css": STYLE,
    "vendor/LICENSE-uPlot.txt": "text/plain; charset=utf-8",
];

/// The entity tags of the files, in the order of [`FILES`].
static TAGS: LazyLock<Vec<String>> = LazyLock::new(|| {
    FILES.iter().map(|file| format!("\"{:032x}\"", xxh3_128(file.bytes))).collect()
});

/// The page itself.
pub(crate) const PAGE: &str = "index.html";

/// Returns the file called `name`, or "not modified" if the client has it; none if there is no such
/// file.
pub(crate) fn answer(name: &str, headers: &HeaderMap) -> Option<Response> {
    let place = FILES.iter().position(|file| file.name == name)?;
    let (file, tag) = (&FILES[place], &TAGS[place]);
    let known =
        headers.get_all(header::IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
    let has_it = known.flat_map(|value| value.split(',')).any(|one| {
        let one = one.trim();
        one == "*" || one.strip_prefix("W/").unwrap_or(one) == tag
    });
    let mut response = match has_it {
        true => Response::new(Body::empty()),
        false => Response::new(Body::from(Bytes::from_static(file.bytes))),
    };
    if has_it {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
    }
    let of = response.headers_mut();
    let mut set =
        |name: HeaderName, value: &'static str| of.insert(name, HeaderValue::from_static(value));
    set(header::CONTENT_TYPE, file.kind);
    // The browser revalidates each time, so it sees a new release immediately. The usual response
    // is "not modified".
    set(header::CACHE_CONTROL, "no-cache");
    set(header::CONTENT_SECURITY_POLICY, POLICY);
    set(header::X_CONTENT_TYPE_OPTIONS, "nosniff");
    set(header::REFERRER_POLICY, "no-referrer");
    set(HeaderName::from_static("cross-origin-opener-policy"), "same-origin");
    set(HeaderName::from_static("cross-origin-resource-policy"), "same-origin");
    if let Ok(tag) = HeaderValue::from_str(tag) {
        of.insert(header::ETAG, tag);
    }
    Some(response)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::path::Path;

    fn on_disk(folder: &Path, prefix: &str, found: &mut BTreeSet<String>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            let name = format!("{prefix}{}", entry.file_name().to_str().unwrap());
            match entry.file_type().unwrap().is_dir() {
                true => on_disk(&entry.path(), &format!("{name}/"), found),
                false => drop(found.insert(name)),
            }
        }
    }

    #[test]
    fn every_file_in_the_folder_is_served_and_every_reference_resolves() {
        let mut found = BTreeSet::new();
        on_disk(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src/dashboard")), "", &mut found);
        let served: BTreeSet<String> = FILES.iter().map(|file| file.name.to_owned()).collect();
        assert_eq!(found, served);
        for file in &FILES {
            let text = std::str::from_utf8(file.bytes).unwrap();
            let before = if file.name == PAGE { "\"assets/" } else { "from \"./" };
            for part in text.split(before).skip(1).filter(|_| !file.name.starts_with("vendor/")) {
                let name = part.split('"').next().unwrap();
                assert!(served.contains(name), "{} wants {name}", file.name);
            }
        }
    }

    #[test]
    fn no_markup_is_made_from_text_and_nothing_is_fetched_from_other_servers() {
        let forbidden = [
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "DOMParser",
            "createContextualFragment",
            "setHTMLUnsafe",
            "srcdoc",
            "eval(",
            "new Function",
            "javascript:",
            " style=",
            "onclick=",
            "onload=",
        ];
        for file in &FILES {
            let text = std::str::from_utf8(file.bytes).unwrap();
            for word in forbidden {
                assert!(!text.contains(word), "{} has {word}", file.name);
            }
            if file.kind == HTML {
                assert!(
                    !text.contains("<style")
                        && text.matches("<script").count() == text.matches("<script src=").count()
                );
            }
            if !file.name.starts_with("vendor/") {
                let foreign = text
                    .split("http")
                    .skip(1)
                    .filter(|rest| rest.starts_with("://") || rest.starts_with("s://"));
                for rest in foreign {
                    // The name of an XML namespace, an example, and the URL of a domain's front
                    // page.
                    let is_no_request =
                        ["://www.w3.org/2000/svg", "s://example.org/", "s://${this.name}/"];
                    assert!(
                        is_no_request.iter().any(|known| rest.starts_with(known)),
                        "{}: http{rest:.60}",
                        file.name
                    );
                }
            }
        }
    }

    #[test]
    fn a_file_that_the_client_has_is_not_sent_again() {
        let first = answer("app.js", &HeaderMap::new()).unwrap();
        assert_eq!(first.status(), StatusCode::OK);
        let tag = first.headers()[header::ETAG].clone();
        let mut headers = HeaderMap::new();
        headers.insert(header::IF_NONE_MATCH, tag.clone());
        let again = answer("app.js", &headers).unwrap();
        assert_eq!(
            (again.status(), &again.headers()[header::ETAG]),
            (StatusCode::NOT_MODIFIED, &tag)
        );
        headers.insert(header::IF_NONE_MATCH, HeaderValue::from_static("\"other\", W/\"another\""));
        assert_eq!(answer("app.js", &headers).unwrap().status(), StatusCode::OK);
        for name in ["", "../assets.rs", "vendor", "no.js", "INDEX.HTML"] {
            assert!(answer(name, &headers).is_none(), "{name}");
        }
    }
}
