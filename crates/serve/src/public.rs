//! The public listener: what an agent publishes about itself, for everyone.
//!
//! Owns: which documents there are for a request, and how long one is served before it is read
//! again.
//!
//! Invariants: there is no other route. Only requests that address the agent's authority get a
//! document, so no signature is made for another one. Only GET and HEAD are served.
//!
//! Must not know: keys, and what a document says.

use std::fmt::{Debug, Write as _};
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State as Get};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use sha2::{Digest, Sha256};
use tokio::net::TcpListener;
use tokio::sync::Mutex;

use crate::auth::Auth;
use crate::json_response;
use crate::listener::Front;
use crate::options::Options;
use crate::problem::Problem;
use crate::request_origin;

/// Time for which a document is served before it is read again. It bounds the signatures that
/// clients cause.
const FRESH_FOR: Duration = Duration::from_millis(250);

/// A document that an agent publishes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicDocument {
    /// Its path.
    pub path: &'static str,
    /// Its media type.
    pub content_type: &'static str,
    /// Its text.
    pub body: String,
    /// Seconds for which others may cache it.
    pub max_age_s: u32,
    /// Further headers, names in lower case. Those in [`PublicDocument::refreshed`] may differ
    /// while the text stays.
    pub headers: Vec<(&'static str, String)>,
    /// Headers that a 304 has too.
    pub refreshed: Vec<(&'static str, String)>,
}

/// What an agent publishes.
pub trait Publisher: Debug + Send + Sync {
    /// Returns host and port of the agent, in lower case and without the port of https.
    fn authority(&self) -> &str;

    /// Returns all documents as of now. It may read files.
    fn documents(&self) -> Vec<PublicDocument>;
}

/// A listener for what an agent publishes.
#[derive(Clone, Debug)]
pub struct PublicSite {
    site: Arc<Site>,
    options: Options,
}

#[derive(Debug)]
struct Site {
    publisher: Arc<dyn Publisher>,
    authority: String,
    read: Mutex<Option<(Instant, Arc<[TaggedDocument]>)>>,
}

/// A document with its `ETag`.
#[derive(Debug)]
struct TaggedDocument {
    document: PublicDocument,
    etag: String,
}

impl PublicSite {
    /// Returns a site with the documents of `publisher`. Of the options, those of connections and
    /// rates apply.
    pub fn new(publisher: Arc<dyn Publisher>, options: Options) -> Self {
        let authority = publisher.authority().to_ascii_lowercase();
        Self { site: Arc::new(Site { publisher, authority, read: Mutex::default() }), options }
    }

    /// Serves `listener` until `stop` completes. Active requests then have [`Options::grace`] to
    /// finish.
    pub async fn run(self, listener: TcpListener, stop: impl Future<Output = ()>) {
        let auth = Arc::new(Auth::public(&self.options));
        let router = Router::new().fallback(respond).with_state(self.site);
        let front = Front { auth, options: Arc::new(self.options), router };
        front.run(listener, stop, || ()).await;
    }
}

impl Site {
    /// Returns the documents, read again if they are old.
    async fn documents(&self) -> Arc<[TaggedDocument]> {
        let mut read = self.read.lock().await;
        if let Some((at, documents)) = &*read
            && at.elapsed() < FRESH_FOR
        {
            return Arc::clone(documents);
        }
        let publisher = Arc::clone(&self.publisher);
        let documents = match tokio::task::spawn_blocking(move || publisher.documents()).await {
            Ok(documents) => documents.into_iter().map(TaggedDocument::of).collect(),
            // The server is stopping.
            Err(_) => read.take().map_or_else(|| Arc::from([]), |(_, documents)| documents),
        };
        *read = Some((Instant::now(), Arc::clone(&documents)));
        documents
    }

    /// Returns whether a request addresses the agent.
    fn is_addressed(&self, uri: &Uri, headers: &HeaderMap) -> bool {
        let Ok(Some(given)) = request_origin::authority(uri, headers) else { return false };
        let given = given.as_str().to_ascii_lowercase();
        given.strip_suffix(":443").unwrap_or(&given) == self.authority
    }
}

impl TaggedDocument {
    fn of(document: PublicDocument) -> Self {
        let mut etag = String::from("\"");
        for byte in Sha256::digest(document.body.as_bytes()).iter().take(16) {
            // Writing to a string cannot fail.
            let _ = write!(etag, "{byte:02x}");
        }
        etag.push('"');
        Self { document, etag }
    }

    /// Returns whether the client has this version.
    fn is_held(&self, headers: &HeaderMap) -> bool {
        let lists =
            headers.get_all(header::IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
        let mut tags = lists.flat_map(|list| list.split(',')).map(str::trim);
        tags.any(|tag| tag == "*" || tag.strip_prefix("W/").unwrap_or(tag) == self.etag)
    }

    fn response(&self, is_held: bool) -> Response {
        let PublicDocument { content_type, body, max_age_s, headers, refreshed, .. } =
            &self.document;
        let mut response = match is_held {
            true => {
                let mut response = Response::new(Body::empty());
                *response.status_mut() = StatusCode::NOT_MODIFIED;
                response
            }
            false => json_response::bytes(StatusCode::OK, body.clone(), content_type),
        };
        let own = [
            ("etag", self.etag.clone()),
            ("cache-control", format!("public, max-age={max_age_s}")),
        ];
        let further = headers.iter().filter(|_| !is_held).chain(refreshed).cloned();
        for (name, value) in own.into_iter().chain(further) {
            // The publisher's values are printable.
            if let Ok(value) = HeaderValue::try_from(value) {
                response.headers_mut().insert(name, value);
            }
        }
        response
    }
}

async fn respond(Get(site): Get<Arc<Site>>, request: Request) -> Response {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let words = format!(
            "this listener only publishes documents: {} is not supported, use GET",
            request.method()
        );
        let mut refused = Problem::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", words)
            .into_response();
        refused.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
        return refused;
    }
    if !site.is_addressed(request.uri(), request.headers()) {
        let words = format!(
            "this listener only serves {}: a proxy in front has to pass the Host on",
            site.authority
        );
        return Problem::new(StatusCode::MISDIRECTED_REQUEST, "misdirected", words).into_response();
    }
    let documents = site.documents().await;
    match documents.iter().find(|tagged| tagged.document.path == request.uri().path()) {
        Some(tagged) => tagged.response(tagged.is_held(request.headers())),
        None => {
            Problem::new(StatusCode::NOT_FOUND, "no_such_route", "no such document").into_response()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct OnePage;

    impl Publisher for OnePage {
        fn authority(&self) -> &'static str {
            "bot.example"
        }

        fn documents(&self) -> Vec<PublicDocument> {
            let headers = vec![("content-digest", "d".to_owned())];
            let refreshed = vec![("signature", "s".to_owned())];
            let (path, content_type) = ("/bot", "text/html");
            vec![PublicDocument {
                path,
                content_type,
                body: "page".to_owned(),
                max_age_s: 60,
                headers,
                refreshed,
            }]
        }
    }

    async fn ask(uri: &str, headers: &[(&str, &str)]) -> Response {
        let mut request = axum::http::Request::builder().uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let PublicSite { site, .. } = PublicSite::new(Arc::new(OnePage), Options::default());
        respond(Get(site), request.body(Body::empty()).unwrap()).await
    }

    #[tokio::test]
    async fn only_requests_to_the_agent_get_a_document() {
        for (uri, hosts, want) in [
            ("/bot", &["bot.example"] as &[&str], 200),
            ("/bot", &["BOT.example:443"], 200),
            ("/bot?a=b", &["bot.example"], 200),
            ("http://bot.example/bot", &["bot.example"], 200),
            ("http://other.example/bot", &["bot.example"], 421),
            ("/bot", &["other.example"], 421),
            ("/bot", &["bot.example:8443"], 421),
            ("/bot", &["127.0.0.1"], 421),
            ("/bot", &[], 421),
            ("/bot", &["bot.example", "other.example"], 421),
            ("/bot/", &["bot.example"], 404),
            ("/v1/stats", &["bot.example"], 404),
            ("/healthz", &["bot.example"], 404),
        ] {
            let headers: Vec<_> = hosts.iter().map(|host| ("host", *host)).collect();
            assert_eq!(ask(uri, &headers).await.status(), want, "{uri} {hosts:?}");
        }
    }

    #[tokio::test]
    async fn a_client_that_has_the_document_gets_a_304_with_a_new_signature() {
        let host = ("host", "bot.example");
        let first = ask("/bot", &[host]).await;
        assert_eq!(
            (&first.headers()["cache-control"], &first.headers()["content-digest"]),
            (&"public, max-age=60".parse().unwrap(), &"d".parse().unwrap())
        );
        let etag = first.headers()["etag"].to_str().unwrap();
        for (held, want) in
            [(etag, 304), (&format!("\"x\", W/{etag}"), 304), ("*", 304), ("\"x\"", 200)]
        {
            let again = ask("/bot", &[host, ("if-none-match", held)]).await;
            assert_eq!(
                (again.status().as_u16(), &again.headers()["signature"]),
                (want, &"s".parse().unwrap()),
                "{held}"
            );
            assert_eq!(again.headers().contains_key("content-digest"), want == 200);
        }
    }
}
