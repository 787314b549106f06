//! From a site and a request to an answer. No state of its own: what changes over time depends on the request's number, and for a
//! quota on what the ledger has of the running window.

use std::time::Instant;

use bytes::Bytes;
use hyper::Response;
use hyper::header::{CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH, HeaderName, LOCATION, RETRY_AFTER, SERVER};
use tokio::io::AsyncWriteExt;
use url::form_urlencoded;
use xxhash_rust::xxh3::xxh3_64;

use super::body::{Body, HTML, broken_after, drip, endless, gzip_bomb, response, status, text, whole, with_header};
use super::files;
use super::ledger::{Ledger, RENDERED, Shown, is_page};
use super::site::{Coding, Site};
use crate::pages::article::Article;
use crate::pages::html::{self, Wall};
use crate::pages::{pdf, shell};
use fetchwise::response::{Header, header};

/// A request as a site sees it.
pub(super) struct Asked<'a> {
    /// The host's name.
    pub(super) host: &'a str,
    /// Path and query.
    pub(super) path: &'a str,
    /// All headers.
    pub(super) headers: &'a [Header],
    /// Page requests to the host so far, this one included.
    pub(super) number: u64,
    /// When it arrived.
    pub(super) at: Instant,
    /// What the host was asked so far.
    pub(super) ledger: &'a Ledger,
}

/// What becomes of a request.
pub(super) enum Answer {
    /// A response, whole or not.
    Response(Response<Body>),
    /// The connection is reset.
    Reset,
}

/// Asks `site`.
pub(super) async fn answer(site: &Site, asked: &Asked<'_>) -> Answer {
    // Sites made of other sites lead to the one that answers.
    let (mut site, mut is_watched) = (site, false);
    loop {
        site = match site {
            Site::Watched(behind) => {
                if asked.path.starts_with(RENDERED) {
                    let script = whole(200, "text/javascript; charset=utf-8", Bytes::new());
                    return Answer::Response(with_header(script, CACHE_CONTROL, "no-store"));
                }
                is_watched = true;
                behind
            }
            Site::Slow { wait, behind } => {
                tokio::time::sleep(*wait).await;
                behind
            }
            Site::Captcha { admits: Some(marker), behind, .. }
                if header(asked.headers, "user-agent").is_some_and(|agent| agent.contains(marker.as_str())) =>
            {
                behind
            }
            Site::Flaky { every, failing, otherwise } => {
                if *every > 0 && is_page(asked.path) && asked.number.is_multiple_of(*every) {
                    failing
                } else {
                    otherwise
                }
            }
            Site::Drifting { after, first, then } => {
                if asked.number <= *after {
                    first
                } else {
                    then
                }
            }
            Site::Quota { pages, window, behind } => {
                let (asked_for, left) = asked.ledger.in_window(*window, asked.at);
                if asked_for > *pages {
                    let seconds = left.as_secs_f64().ceil().max(1.0);
                    return Answer::Response(with_header(status(429), RETRY_AFTER, &format!("{seconds:.0}")));
                }
                behind
            }
            Site::Mixed(parts) => {
                let matching = parts.iter().filter(|(prefix, _)| asked.path.starts_with(prefix.as_str()));
                match matching.max_by_key(|(prefix, _)| prefix.len()) {
                    Some((_, part)) => part,
                    None => &Site::NOT_FOUND,
                }
            }
            Site::Reset => return Answer::Reset,
            Site::Silent => std::future::pending().await,
            Site::Files(root) => return Answer::Response(files::serve(root, asked.path).await),
            Site::Compressed(coding) => return Answer::Response(compressed(*coding, asked).await),
            plain => return Answer::Response(page(plain, asked, is_watched)),
        }
    }
}

/// The answer of a site that needs neither time nor other sites.
fn page(site: &Site, asked: &Asked<'_>, is_watched: bool) -> Response<Body> {
    match site {
        Site::ReactShell => react_shell(asked),
        Site::Captcha { wall, status, .. } => challenge(*wall, *status, asked, is_watched),
        Site::RateLimited { retry_after, free } if asked.number > *free => {
            with_header(status(429), RETRY_AFTER, retry_after)
        }
        Site::Html(text) => whole(200, HTML, text.clone()),
        Site::Pdf => whole(200, "application/pdf", pdf::article(&article(asked))),
        Site::Drip { every, bytes } => response(200, HTML, drip(article_html(asked), *bytes, *every)),
        Site::GzipBomb => bomb(asked),
        Site::RedirectOut => redirect(302, outside(asked.path)),
        Site::Redirect { status, to } => redirect(*status, to),
        Site::RedirectLoop => redirect(302, &next_turn(asked.path)),
        Site::NonUtf8(charset) => whole(200, charset.content_type(), charset.page(asked.path)),
        Site::Empty => whole(200, HTML, Bytes::new()),
        Site::Status(code) => status(*code),
        Site::Truncated => truncated(asked),
        Site::EndlessBody => endless_html(),
        Site::HugeHeader { bytes } => {
            with_header(static_page(asked, is_watched), HeaderName::from_static("x-filler"), &"f".repeat(*bytes))
        }
        Site::QueueRoom => whole(200, HTML, html::waiting_room()),
        Site::LoginWall => login_wall(asked),
        Site::Short if is_page(asked.path) => shown(asked.path, whole(200, HTML, html::short(&article(asked)))),
        Site::HtmlRedirect if is_page(asked.path) && !asked.path.starts_with("/now/") => {
            whole(200, HTML, html::refresh(&format!("/now{}", asked.path)))
        }
        Site::Trap if asked.path == "/robots.txt" => text(200, "User-agent: *\nDisallow: /deeper/\n"),
        Site::Trap if is_page(asked.path) => {
            let page = html::article(&article(asked).leading_to(&deeper(asked.path)));
            shown(asked.path, whole(200, HTML, watched(page, asked, is_watched)))
        }
        // The others are led on by `answer` and never come here; an article is what a site has when nothing else is said.
        _ => static_page(asked, is_watched),
    }
}

fn article(asked: &Asked<'_>) -> Article {
    Article::at(asked.host, asked.path)
}

fn article_html(asked: &Asked<'_>) -> Bytes {
    html::article(&article(asked)).into()
}

/// Below a page that leads ever deeper.
fn deeper(path: &str) -> Vec<String> {
    let below = if path.starts_with("/deeper/") { path.to_owned() } else { format!("/deeper{path}") };
    (1..=5).map(|n| format!("{}/{n}", below.trim_end_matches('/'))).collect()
}

/// The page, with a script that says when it runs.
fn watched(page: String, asked: &Asked<'_>, is_watched: bool) -> String {
    if !is_watched {
        return page;
    }
    let query: String = form_urlencoded::Serializer::new(String::new()).append_pair("path", asked.path).finish();
    page.replace("</body>", &format!("<script src=\"{RENDERED}{query}\" async></script>\n</body>"))
}

/// The response, which shows the content of `path`.
fn shown(path: &str, mut response: Response<Body>) -> Response<Body> {
    response.extensions_mut().insert(Shown::Content(path.to_owned()));
    response
}

fn static_page(asked: &Asked<'_>, is_watched: bool) -> Response<Body> {
    let path = asked.path.split('?').next().unwrap_or_default();
    if path != "/robots.txt" && is_page(asked.path) {
        return shown(asked.path, article_page(path, asked, is_watched));
    }
    article_page(path, asked, is_watched)
}

fn article_page(path: &str, asked: &Asked<'_>, is_watched: bool) -> Response<Body> {
    let page = if path.ends_with(".pdf") {
        whole(200, "application/pdf", pdf::article(&article(asked)))
    } else if path.ends_with(".json") {
        whole(200, "application/json", article(asked).to_json().to_string())
    } else if path == "/robots.txt" {
        whole(200, "text/plain; charset=utf-8", "User-agent: *\nAllow: /\n")
    } else if path.ends_with(".txt") {
        let article = article(asked);
        whole(200, "text/plain; charset=utf-8", format!("{}\n\n{}\n", article.title, article.summary))
    } else {
        whole(200, HTML, watched(html::article(&article(asked)), asked, is_watched))
    };
    with_header(page, SERVER, "nginx")
}

fn react_shell(asked: &Asked<'_>) -> Response<Body> {
    let (path, query) = asked.path.split_once('?').unwrap_or((asked.path, ""));
    let page = if path == "/api/page" {
        let of = form_urlencoded::parse(query.as_bytes()).find(|(key, _)| key == "path").map(|(_, value)| value);
        match of {
            Some(of) => {
                let page = whole(200, "application/json", Article::at(asked.host, &of).to_json().to_string());
                shown(&of, page)
            }
            None => status(400),
        }
    } else if path.starts_with("/assets/") {
        shell::asset(path).map_or_else(|| status(404), |(kind, bytes)| whole(200, kind, bytes))
    } else {
        whole(200, HTML, shell::INDEX)
    };
    with_header(page, SERVER, "nginx")
}

fn challenge(wall: Wall, code: u16, asked: &Asked<'_>, is_watched: bool) -> Response<Body> {
    let ray = format!("{:016x}", xxh3_64(format!("{}{}", asked.host, asked.path).as_bytes()));
    let mut page = whole(code, HTML, watched(html::challenge(wall, &ray), asked, is_watched));
    page.extensions_mut().insert(Shown::Wall);
    match wall {
        Wall::Cloudflare => {
            let page = with_header(page, SERVER, "cloudflare");
            let page = with_header(page, HeaderName::from_static("cf-ray"), &format!("{ray}-LHR"));
            // A real challenge says so in a header, and the sly kind that answers 200 does not.
            if code == 200 { page } else { with_header(page, HeaderName::from_static("cf-mitigated"), "challenge") }
        }
        Wall::DataDome => {
            let page = with_header(page, HeaderName::from_static("x-datadome"), "protected");
            if code == 200 { page } else { with_header(page, HeaderName::from_static("x-dd-b"), "1") }
        }
        Wall::Unlisted => page,
    }
}

fn bomb(asked: &Asked<'_>) -> Response<Body> {
    match gzip_bomb(&article_html(asked)) {
        Ok(body) => with_header(response(200, HTML, body), CONTENT_ENCODING, Coding::Gzip.name()),
        Err(_) => status(500),
    }
}

fn truncated(asked: &Asked<'_>) -> Response<Body> {
    let mut html = article_html(asked);
    let announced = html.len();
    html.truncate(announced / 2);
    with_header(response(200, HTML, broken_after(html)), CONTENT_LENGTH, &announced.to_string())
}

fn endless_html() -> Response<Body> {
    let first =
        Bytes::from_static(b"<!doctype html>\n<html lang=\"en\">\n<head><title>Tide table</title></head>\n<body>\n");
    let line = "<p>The tide came in at six and went out again before noon, and so it did the day after.</p>\n";
    response(200, HTML, endless(first, line.repeat(200).into()))
}

fn login_wall(asked: &Asked<'_>) -> Response<Body> {
    match asked.path.strip_prefix("/login") {
        Some(query) if query.is_empty() || query.starts_with('?') => {
            let next = form_urlencoded::parse(query.trim_start_matches('?').as_bytes()).find(|(key, _)| key == "next");
            whole(200, HTML, html::login(&next.map_or_else(|| "/".into(), |(_, value)| value)))
        }
        _ => {
            let query = form_urlencoded::Serializer::new(String::new()).append_pair("next", asked.path).finish();
            redirect(302, &format!("/login?{query}"))
        }
    }
}

fn redirect(code: u16, to: &str) -> Response<Body> {
    with_header(status(code), LOCATION, to)
}

/// Where [`Site::RedirectOut`] sends a path: addresses that a crawler must not dial.
fn outside(path: &str) -> &'static str {
    if path.starts_with("/metadata") {
        "http://169.254.169.254/latest/meta-data/"
    } else if path.starts_with("/mapped") {
        "http://[::ffff:169.254.169.254]/latest/meta-data/"
    } else {
        "http://10.255.255.1/"
    }
}

/// The path that comes after `path` in an endless row: `/a`, `/a?turn=1`, `/a?turn=2`, ...
fn next_turn(path: &str) -> String {
    let (start, turn) = path.split_once("?turn=").unwrap_or((path, "0"));
    format!("{start}?turn={}", turn.parse::<u64>().unwrap_or(0).wrapping_add(1))
}

/// An article in a content coding.
async fn compressed(coding: Coding, asked: &Asked<'_>) -> Response<Body> {
    use async_compression::tokio::write::{BrotliEncoder, DeflateEncoder, GzipEncoder, ZlibEncoder, ZstdEncoder};

    macro_rules! encoded {
        ($encoder:ident) => {{
            let mut encoder = $encoder::new(Vec::new());
            let written = encoder.write_all(&article_html(asked)).await;
            let ended = encoder.shutdown().await;
            written.and(ended).map(|()| encoder.into_inner())
        }};
    }
    let bytes = match coding {
        Coding::Gzip => encoded!(GzipEncoder),
        Coding::Brotli => encoded!(BrotliEncoder),
        Coding::Zstd => encoded!(ZstdEncoder),
        Coding::Deflate => encoded!(ZlibEncoder),
        Coding::RawDeflate => encoded!(DeflateEncoder),
    };
    match bytes {
        Ok(bytes) => with_header(whole(200, HTML, bytes), CONTENT_ENCODING, coding.name()),
        Err(_) => status(500),
    }
}
