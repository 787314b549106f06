//! The response of a site to a request.
//!
//! Invariants: there is no state here. Changes over time depend on the request's number, and for a
//! quota on the requests that the ledger has in the current window.

use std::time::Instant;

use bytes::Bytes;
use hyper::Response;
use hyper::header::{
    CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, ETAG, HeaderName, HeaderValue,
    LAST_MODIFIED, LOCATION, RETRY_AFTER, SERVER,
};
use tokio::io::AsyncWriteExt;
use url::form_urlencoded;
use xxhash_rust::xxh3::xxh3_64;

use super::body::{
    Body, HTML, broken_after, drip, endless, gzip_bomb, response, status, text, whole, with_header,
};
use super::bots::Message;
use super::files;
use super::ledger::{Ledger, RENDER_SCRIPT, SentPage, is_page};
use super::site::{Coding, Site};
use crate::pages::article::Article;
use crate::pages::html::{self, Challenge};
use crate::pages::{pdf, shell};
use fetchwise::response::{Header, header};

/// A request as a site gets it.
pub(super) struct SiteRequest<'a> {
    /// Name of the host.
    pub(super) host: &'a str,
    /// Method.
    pub(super) method: &'a str,
    /// Host and port, as the client named them.
    pub(super) authority: &'a str,
    /// Path and query.
    pub(super) path: &'a str,
    /// All headers.
    pub(super) headers: &'a [Header],
    /// Page requests to the host so far, including this one.
    pub(super) number: u64,
    /// Time of arrival.
    pub(super) at: Instant,
    /// Ledger of the host.
    pub(super) ledger: &'a Ledger,
}

/// The reaction to a request.
pub(super) enum SiteResponse {
    /// A response, complete or not.
    Response(Response<Body>),
    /// A connection reset.
    Reset,
}

/// Responds to a request for `site`.
pub(super) async fn respond(site: &Site, request: &SiteRequest<'_>) -> SiteResponse {
    respond_counted(site, request, false).await
}

async fn respond_counted(
    site: &Site,
    request: &SiteRequest<'_>,
    mut counts_renders: bool,
) -> SiteResponse {
    // Sites made of other sites lead to the one that responds.
    let mut site = site;
    loop {
        site = match site {
            Site::CountRenders(behind) => {
                if request.path.starts_with(RENDER_SCRIPT) {
                    let script = whole(200, "text/javascript; charset=utf-8", Bytes::new());
                    return SiteResponse::Response(with_header(script, CACHE_CONTROL, "no-store"));
                }
                counts_renders = true;
                behind
            }
            Site::Slow { wait, behind } => {
                tokio::time::sleep(*wait).await;
                behind
            }
            Site::Captcha { admits: Some(marker), behind, .. }
                if header(request.headers, "user-agent")
                    .is_some_and(|agent| agent.contains(marker.as_str())) =>
            {
                behind
            }
            Site::Verified { bots, admitted, others } => {
                let SiteRequest { method, authority, path, headers, .. } = request;
                match bots.verify(&Message { method, authority, path, headers }) {
                    true => admitted,
                    false => others,
                }
            }
            Site::Flaky { every, failing, otherwise } => {
                if *every > 0 && is_page(request.path) && request.number.is_multiple_of(*every) {
                    failing
                } else {
                    otherwise
                }
            }
            Site::Drifting { after, first, then } => {
                if request.number <= *after {
                    first
                } else {
                    then
                }
            }
            Site::Quota { pages, window, behind } => {
                let (requested, left) = request.ledger.in_window(*window, request.at);
                if requested > *pages {
                    let seconds = left.as_secs_f64().ceil().max(1.0);
                    return SiteResponse::Response(with_header(
                        status(429),
                        RETRY_AFTER,
                        &format!("{seconds:.0}"),
                    ));
                }
                behind
            }
            Site::Mixed(parts) => {
                let matching =
                    parts.iter().filter(|(prefix, _)| request.path.starts_with(prefix.as_str()));
                match matching.max_by_key(|(prefix, _)| prefix.len()) {
                    Some((_, part)) => part,
                    None => &Site::NOT_FOUND,
                }
            }
            Site::WithHeaders { headers, behind } => {
                return match Box::pin(respond_counted(behind, request, counts_renders)).await {
                    SiteResponse::Response(page) => {
                        SiteResponse::Response(with_headers(page, headers))
                    }
                    SiteResponse::Reset => SiteResponse::Reset,
                };
            }
            Site::Reset => return SiteResponse::Reset,
            Site::Silent => std::future::pending().await,
            Site::Files(root) => {
                return SiteResponse::Response(files::serve(root, request.path).await);
            }
            Site::Compressed(coding) => {
                return SiteResponse::Response(compressed(*coding, request).await);
            }
            plain => return SiteResponse::Response(page(plain, request, counts_renders)),
        }
    }
}

/// Returns the response of a site that needs neither time nor other sites.
fn page(site: &Site, request: &SiteRequest<'_>, counts_renders: bool) -> Response<Body> {
    match site {
        Site::ReactShell => react_shell(request),
        Site::Captcha { challenge, status, .. } => {
            challenge_page(*challenge, *status, request, counts_renders)
        }
        Site::RateLimited { retry_after, free } if request.number > *free => {
            with_header(status(429), RETRY_AFTER, retry_after)
        }
        Site::Html(text) => whole(200, HTML, text.clone()),
        Site::Pdf => whole(200, "application/pdf", pdf::article(&article(request))),
        Site::Drip { every, bytes } => {
            response(200, HTML, drip(article_html(request), *bytes, *every))
        }
        Site::GzipBomb => bomb(request),
        Site::RedirectOut => redirect(302, outside_address(request.path)),
        Site::Redirect { status, to } => redirect(*status, to),
        Site::RedirectLoop => redirect(302, &next_turn(request.path)),
        Site::NonUtf8(charset) => whole(200, charset.content_type(), charset.page(request.path)),
        Site::Empty => whole(200, HTML, Bytes::new()),
        Site::Status(code) => status(*code),
        Site::Truncated => truncated(request),
        Site::EndlessBody => endless_html(),
        Site::HugeHeader { bytes } => with_header(
            static_page(request, counts_renders),
            HeaderName::from_static("x-filler"),
            &"f".repeat(*bytes),
        ),
        Site::Toll { price } => {
            with_header(status(402), HeaderName::from_static("crawler-price"), price)
        }
        Site::Declined => {
            with_header(status(403), HeaderName::from_static("crawler-error"), "CrawlerForbidden")
        }
        Site::Validators { max_age, version } => {
            validated(request, counts_renders, *max_age, *version)
        }
        Site::QueueRoom => whole(200, HTML, html::waiting_room()),
        Site::LoginWall => login_wall(request),
        Site::Short if is_page(request.path) => {
            mark_content(request.path, whole(200, HTML, html::short(&article(request))))
        }
        Site::HtmlRedirect if is_page(request.path) && !request.path.starts_with("/now/") => {
            whole(200, HTML, html::refresh(&format!("/now{}", request.path)))
        }
        Site::Trap if request.path == "/robots.txt" => {
            text(200, "User-agent: *\nDisallow: /deeper/\n")
        }
        Site::Trap if is_page(request.path) => {
            let page = html::article(&article(request).leading_to(&deeper(request.path)));
            mark_content(
                request.path,
                whole(200, HTML, with_render_script(page, request, counts_renders)),
            )
        }
        // `respond` resolves the other kinds of site before; an article is the default.
        _ => static_page(request, counts_renders),
    }
}

fn article(request: &SiteRequest<'_>) -> Article {
    Article::at(request.host, request.path)
}

fn article_html(request: &SiteRequest<'_>) -> Bytes {
    html::article(&article(request)).into()
}

/// Returns paths below a page that leads ever deeper.
fn deeper(path: &str) -> Vec<String> {
    let below =
        if path.starts_with("/deeper/") { path.to_owned() } else { format!("/deeper{path}") };
    (1..=5).map(|n| format!("{}/{n}", below.trim_end_matches('/'))).collect()
}

/// Returns the page, with a script that reports when scripts run.
fn with_render_script(page: String, request: &SiteRequest<'_>, counts_renders: bool) -> String {
    if !counts_renders {
        return page;
    }
    let query: String =
        form_urlencoded::Serializer::new(String::new()).append_pair("path", request.path).finish();
    page.replace(
        "</body>",
        &format!("<script src=\"{RENDER_SCRIPT}{query}\" async></script>\n</body>"),
    )
}

/// Marks the response as the content of `path`.
fn mark_content(path: &str, mut response: Response<Body>) -> Response<Body> {
    response.extensions_mut().insert(SentPage::Content(path.to_owned()));
    response
}

fn static_page(request: &SiteRequest<'_>, counts_renders: bool) -> Response<Body> {
    let path = request.path.split('?').next().unwrap_or_default();
    if path != "/robots.txt" && is_page(request.path) {
        return mark_content(request.path, article_page(path, request, counts_renders));
    }
    article_page(path, request, counts_renders)
}

fn article_page(path: &str, request: &SiteRequest<'_>, counts_renders: bool) -> Response<Body> {
    let page = if path.ends_with(".pdf") {
        whole(200, "application/pdf", pdf::article(&article(request)))
    } else if path.ends_with(".json") {
        whole(200, "application/json", article(request).to_json().to_string())
    } else if path == "/robots.txt" {
        whole(200, "text/plain; charset=utf-8", "User-agent: *\nAllow: /\n")
    } else if path.ends_with(".txt") {
        let article = article(request);
        whole(
            200,
            "text/plain; charset=utf-8",
            format!("{}\n\n{}\n", article.title, article.summary),
        )
    } else {
        whole(
            200,
            HTML,
            with_render_script(html::article(&article(request)), request, counts_renders),
        )
    };
    with_header(page, SERVER, "nginx")
}

/// Returns the response with more headers; invalid ones are left out.
fn with_headers(mut page: Response<Body>, headers: &[(String, String)]) -> Response<Body> {
    for (name, value) in headers {
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(value)) {
            match name == CONTENT_TYPE {
                true => drop(page.headers_mut().insert(name, value)),
                false => drop(page.headers_mut().append(name, value)),
            }
        }
    }
    page
}

/// Lines that a page with validators has below its article.
const REGISTER_LINES: usize = 300;
/// Time of the first version of every page with validators: 2026-01-01, at midnight.
const FIRST_VERSION: u64 = 1_767_225_600;

/// Returns an article with validators, or 304 if the client has its current version.
fn validated(
    request: &SiteRequest<'_>,
    counts_renders: bool,
    max_age: Option<u32>,
    version: u32,
) -> Response<Body> {
    if request.path == "/robots.txt" {
        return static_page(request, counts_renders);
    }
    let modified = std::time::UNIX_EPOCH
        + std::time::Duration::from_secs(FIRST_VERSION + 60 * u64::from(version));
    let modified = httpdate::fmt_http_date(modified);
    let tag = format!(
        "\"{:016x}\"",
        xxh3_64(format!("{version} {}{}", request.host, request.path).as_bytes())
    );
    let is_current = match header(request.headers, "if-none-match") {
        Some(known) => known.split(',').any(|known| known.trim().trim_start_matches("W/") == tag),
        None => header(request.headers, "if-modified-since") == Some(modified.as_str()),
    };
    let page = match is_current {
        true => {
            let mut unchanged = Response::new(Body::default());
            *unchanged.status_mut() = http::StatusCode::NOT_MODIFIED;
            unchanged
        }
        false => {
            let page = html::article(&article(request));
            // As long as an ordinary page of the web, so that what a 304 saves is not more or less
            // than there.
            let line = format!(
                "<p>Edition {version} of the register has one entry more than the one before it.</p>\n"
            );
            let page = page.replace("</body>", &format!("{}</body>", line.repeat(REGISTER_LINES)));
            mark_content(
                request.path,
                whole(200, HTML, with_render_script(page, request, counts_renders)),
            )
        }
    };
    let page = with_header(with_header(page, ETAG, &tag), LAST_MODIFIED, &modified);
    match max_age {
        Some(seconds) => with_header(page, CACHE_CONTROL, &format!("max-age={seconds}")),
        None => page,
    }
}

fn react_shell(request: &SiteRequest<'_>) -> Response<Body> {
    let (path, query) = request.path.split_once('?').unwrap_or((request.path, ""));
    let page = if path == "/api/page" {
        let wanted = form_urlencoded::parse(query.as_bytes())
            .find(|(key, _)| key == "path")
            .map(|(_, value)| value);
        match wanted {
            Some(path) => {
                let page = whole(
                    200,
                    "application/json",
                    Article::at(request.host, &path).to_json().to_string(),
                );
                mark_content(&path, page)
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

fn challenge_page(
    challenge: Challenge,
    code: u16,
    request: &SiteRequest<'_>,
    counts_renders: bool,
) -> Response<Body> {
    let ray = format!("{:016x}", xxh3_64(format!("{}{}", request.host, request.path).as_bytes()));
    let mut page = whole(
        code,
        HTML,
        with_render_script(html::challenge(challenge, &ray), request, counts_renders),
    );
    page.extensions_mut().insert(SentPage::Block);
    match challenge {
        Challenge::Cloudflare => {
            let page = with_header(page, SERVER, "cloudflare");
            let page = with_header(page, HeaderName::from_static("cf-ray"), &format!("{ray}-LHR"));
            // A real challenge has a header; the disguised kind with status 200 does not.
            if code == 200 {
                page
            } else {
                with_header(page, HeaderName::from_static("cf-mitigated"), "challenge")
            }
        }
        Challenge::DataDome => {
            let page = with_header(page, HeaderName::from_static("x-datadome"), "protected");
            if code == 200 {
                page
            } else {
                with_header(page, HeaderName::from_static("x-dd-b"), "1")
            }
        }
        Challenge::Unlisted => page,
    }
}

fn bomb(request: &SiteRequest<'_>) -> Response<Body> {
    match gzip_bomb(&article_html(request)) {
        Ok(body) => with_header(response(200, HTML, body), CONTENT_ENCODING, Coding::Gzip.name()),
        Err(_) => status(500),
    }
}

fn truncated(request: &SiteRequest<'_>) -> Response<Body> {
    let mut html = article_html(request);
    let announced = html.len();
    html.truncate(announced / 2);
    with_header(response(200, HTML, broken_after(html)), CONTENT_LENGTH, &announced.to_string())
}

fn endless_html() -> Response<Body> {
    let first = Bytes::from_static(
        b"<!doctype html>\n<html lang=\"en\">\n<head><title>Tide table</title></head>\n<body>\n",
    );
    let line = "<p>The tide came in at six and went out again before noon, and so it did the day after.</p>\n";
    response(200, HTML, endless(first, line.repeat(200).into()))
}

fn login_wall(request: &SiteRequest<'_>) -> Response<Body> {
    match request.path.strip_prefix("/login") {
        Some(query) if query.is_empty() || query.starts_with('?') => {
            let next = form_urlencoded::parse(query.trim_start_matches('?').as_bytes())
                .find(|(key, _)| key == "next");
            whole(200, HTML, html::login(&next.map_or_else(|| "/".into(), |(_, value)| value)))
        }
        _ => {
            let query = form_urlencoded::Serializer::new(String::new())
                .append_pair("next", request.path)
                .finish();
            redirect(302, &format!("/login?{query}"))
        }
    }
}

fn redirect(code: u16, to: &str) -> Response<Body> {
    with_header(status(code), LOCATION, to)
}

/// Returns where [`Site::RedirectOut`] redirects a path: addresses that a crawler must not dial.
fn outside_address(path: &str) -> &'static str {
    if path.starts_with("/metadata") {
        "http://169.254.169.254/latest/meta-data/"
    } else if path.starts_with("/mapped") {
        "http://[::ffff:169.254.169.254]/latest/meta-data/"
    } else {
        "http://10.255.255.1/"
    }
}

/// Returns the path after `path` in an endless sequence: `/a`, `/a?turn=1`, `/a?turn=2`, ...
fn next_turn(path: &str) -> String {
    let (start, turn) = path.split_once("?turn=").unwrap_or((path, "0"));
    format!("{start}?turn={}", turn.parse::<u64>().unwrap_or(0).wrapping_add(1))
}

/// Returns an article in a content coding.
async fn compressed(coding: Coding, request: &SiteRequest<'_>) -> Response<Body> {
    use async_compression::tokio::write::{
        BrotliEncoder, DeflateEncoder, GzipEncoder, ZlibEncoder, ZstdEncoder,
    };

    macro_rules! encoded {
        ($encoder:ident) => {{
            let mut encoder = $encoder::new(Vec::new());
            let written = encoder.write_all(&article_html(request)).await;
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
