//! A fetcher that gets an article's record from a search API with a key, such as `nytime_searcher`.
//!
//! Invariants: the key goes to the API and nowhere else: it is in no message, address or attempt,
//! and no redirect is followed with it. A response is the record of exactly the requested page, as
//! JSON, with its provenance ([`Response::provenance`]). A fault of the API is `proxy_error`; a
//! missing record is `not_held`. Requests go through the plain fetcher, and so under its guard and
//! limits.

use std::borrow::Cow;
use std::fmt;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::Value;
use url::{Url, form_urlencoded};

use super::body::Body;
use super::http::{BuildError, HttpFetcher, HttpFetcherBuilder};
use super::{FetchError, FetchFuture, Fetcher, Limits, Request, Response};
use crate::fetch::cooldown::{Cooldown, requested_pause};
use fetchwise_types::attempt::error_kind::ErrorKind;
use fetchwise_types::provenance::Provenance;
use fetchwise_types::response::Header;

/// Pause after the API refuses the key: the next page would not change that.
const KEY_REFUSED: Duration = Duration::from_secs(600);

/// Settings of a [`SearchFetcher`]. Locations in a response are JSON pointers (RFC 6901).
#[derive(Clone)]
pub struct SearchOptions {
    /// Name under which attempts are logged.
    pub name: String,
    /// Address of the API: `{url}` stands for the page's address, `{key}` for the key, both escaped
    /// for a query.
    pub url: String,
    /// Key, for APIs that need one.
    pub key: Option<String>,
    /// Header for the key, if it is not in the address.
    pub key_header: Option<String>,
    /// Sites that the API covers, by registrable domain or host; empty for every site.
    pub hosts: Vec<String>,
    /// Pointer to the records in a response: a list, or a single record.
    pub records: String,
    /// Pointer to the page's address in a record; a record of another page is skipped. `None` takes
    /// the first record.
    pub address: Option<String>,
    /// Pointer to the title in a record. A record without one is skipped.
    pub title: String,
    /// Pointer to the abstract.
    pub summary: Option<String>,
    /// Pointer to the text.
    pub body: Option<String>,
    /// Pointer to the date.
    pub date: Option<String>,
    /// Maximum number of concurrent requests.
    pub max_in_flight: usize,
}

impl SearchOptions {
    /// Returns the options of the New York Times' Article Search, with the user's key.
    pub fn new_york_times(key: Option<String>) -> Self {
        Self {
            name: "nytime_searcher".to_owned(),
            url: "https://api.nytimes.com/svc/search/v2/articlesearch.json?fq=web_url:(%22{url}%22)&api-key={key}"
                .to_owned(),
            key,
            key_header: None,
            hosts: vec!["nytimes.com".to_owned()],
            records: "/response/docs".to_owned(),
            address: Some("/web_url".to_owned()),
            title: "/headline/main".to_owned(),
            summary: Some("/abstract".to_owned()),
            body: Some("/lead_paragraph".to_owned()),
            date: Some("/pub_date".to_owned()),
            max_in_flight: 1,
        }
    }
}

impl fmt::Debug for SearchOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Omits the key, and the address, which may contain a key.
        f.debug_struct("SearchOptions")
            .field("name", &self.name)
            .field("hosts", &self.hosts)
            .finish_non_exhaustive()
    }
}

/// A fetcher of article records from a search API. See the [module](self).
pub struct SearchFetcher {
    options: SearchOptions,
    http: HttpFetcher,
    cooldown: Cooldown,
}

/// The delivered JSON.
#[derive(Serialize)]
struct RecordJson<'a> {
    url: &'a str,
    title: Cow<'a, str>,
    #[serde(rename = "abstract")]
    summary: Option<Cow<'a, str>>,
    body: Option<Cow<'a, str>>,
    date: Option<Cow<'a, str>>,
    record: &'a Value,
}

/// The reason why there is no record.
enum SearchError {
    NotHeld(String),
    Fault { reason: String, requested_pause: Option<Duration> },
    Local(Box<FetchError>),
}

impl SearchFetcher {
    /// Returns a fetcher that sends requests to the API of `options` with the settings of `http`.
    ///
    /// # Errors
    /// See [`HttpFetcherBuilder::build`].
    pub fn new(options: SearchOptions, http: HttpFetcherBuilder) -> Result<Self, BuildError> {
        let mut http = http.name(&*options.name).header("accept", "application/json");
        if let (Some(header), Some(key)) = (&options.key_header, &options.key) {
            http = http.header(header.as_str(), key.as_str());
        }
        Ok(Self { http: http.build()?, options, cooldown: Cooldown::default() })
    }

    async fn search(&self, request: Request<'_>) -> Result<Response, FetchError> {
        if !self.covers(request.url) {
            let hosts = self.options.hosts.join(", ");
            return Err(FetchError::unavailable(format!("not a page of {hosts}")));
        }
        if let Some(reason) = self.cooldown.pause_reason() {
            return Err(FetchError::unavailable(reason));
        }
        let started = Instant::now();
        let error = match self.request_record(request).await {
            Ok(response) => {
                self.cooldown.record_response();
                return Ok(Response { duration: started.elapsed(), ..response });
            }
            Err(SearchError::Local(error)) => *error,
            Err(SearchError::NotHeld(reason)) => {
                self.cooldown.record_response();
                FetchError::new(ErrorKind::NotHeld, reason, Duration::ZERO)
            }
            Err(SearchError::Fault { reason, requested_pause }) => {
                let reason = self.without_key(&reason);
                self.cooldown.record_failure(requested_pause, &reason);
                FetchError::new(ErrorKind::ProxyError, reason, Duration::ZERO)
            }
        };
        let message = self.without_key(&error.message);
        Err(FetchError { duration: started.elapsed(), message, ..error })
    }

    /// Returns whether the API covers the site.
    fn covers(&self, url: &Url) -> bool {
        let host = url.host_str().unwrap_or_default();
        let is_of = |known: &String| {
            host.strip_suffix(known.as_str())
                .is_some_and(|before| before.is_empty() || before.ends_with('.'))
        };
        self.options.hosts.is_empty() || self.options.hosts.iter().any(is_of)
    }

    async fn request_record(&self, request: Request<'_>) -> Result<Response, SearchError> {
        let address = self.address(request.url)?;
        // A redirect would carry the key along.
        let limits = Limits { max_redirects: 0, ..request.limits.clone() };
        let response =
            self.http.fetch(Request::new(&address, &limits)).await.map_err(|error| match error
                .local
            {
                true => SearchError::Local(Box::new(error)),
                false => SearchError::Fault {
                    reason: format!("request failed: {}", error.message),
                    requested_pause: None,
                },
            })?;
        match response.status {
            200..=299 => {}
            404 | 410 => return Err(SearchError::NotHeld("no record of the page".to_owned())),
            401 | 403 => {
                let reason = format!("the API refused the key (status {})", response.status);
                return Err(SearchError::Fault { reason, requested_pause: Some(KEY_REFUSED) });
            }
            status => {
                let requested_pause = requested_pause(status, &response.headers);
                return Err(SearchError::Fault {
                    reason: format!("unexpected status {status}"),
                    requested_pause,
                });
            }
        }
        if response.body.spill().is_some() || response.truncated {
            return Err(SearchError::Fault {
                reason: "response too long or truncated".to_owned(),
                requested_pause: None,
            });
        }
        let json: Value = serde_json::from_slice(response.body.head()).map_err(|error| {
            SearchError::Fault { reason: format!("invalid JSON: {error}"), requested_pause: None }
        })?;
        let record = self.record(&json, request.url)?;
        self.to_response(request.url, record, &address)
    }

    /// Returns the address of the API request for `page`.
    fn address(&self, page: &Url) -> Result<Url, SearchError> {
        let escaped =
            |text: &str| form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
        // The key is inserted last, so a page's address cannot contain its placeholder.
        let (page, key) =
            (escaped(page.as_str()), escaped(self.options.key.as_deref().unwrap_or_default()));
        let parts: Vec<String> =
            self.options.url.split("{url}").map(|part| part.replace("{key}", &key)).collect();
        let address = parts.join(&page);
        Url::parse(&address).map_err(|error| SearchError::Fault {
            reason: format!("invalid API URL: {error}"),
            requested_pause: None,
        })
    }

    /// Returns the record of `page` in a response.
    fn record<'a>(&self, response: &'a Value, page: &Url) -> Result<&'a Value, SearchError> {
        let none = || SearchError::NotHeld("no record of the page".to_owned());
        let records = match response.pointer(&self.options.records) {
            None | Some(Value::Null) => return Err(none()),
            Some(Value::Array(records)) => records.as_slice(),
            Some(record) => std::slice::from_ref(record),
        };
        let is_of_page = |record: &&Value| match &self.options.address {
            None => true,
            Some(pointer) => {
                let address = record
                    .pointer(pointer)
                    .and_then(Value::as_str)
                    .and_then(|text| Url::parse(text).ok());
                address.is_some_and(|address| is_same_page(&address, page))
            }
        };
        records.iter().find(is_of_page).ok_or_else(none)
    }

    fn to_response(&self, page: &Url, record: &Value, api: &Url) -> Result<Response, SearchError> {
        let text = |pointer: &str| match record.pointer(pointer)? {
            Value::String(text) if !text.trim().is_empty() => Some(Cow::Borrowed(text.as_str())),
            Value::Number(number) => Some(Cow::Owned(number.to_string())),
            _ => None,
        };
        let title = text(&self.options.title).ok_or_else(|| {
            SearchError::NotHeld("the record of the page has no title".to_owned())
        })?;
        let some = |pointer: &Option<String>| pointer.as_deref().and_then(text);
        let (summary, body, date) =
            (some(&self.options.summary), some(&self.options.body), some(&self.options.date));
        let json = RecordJson { url: page.as_str(), title, summary, body, date, record };
        let bytes = serde_json::to_vec(&json).map_err(|error| SearchError::Fault {
            reason: error.to_string(),
            requested_pause: None,
        })?;
        let headers = vec![Header::new("content-type", "application/json")];
        let provenance = Some(Provenance::record(api.host_str().unwrap_or_default()));
        Ok(Response {
            provenance,
            ..Response::new(200, headers, Body::in_memory(bytes), page.clone())
        })
    }

    /// Returns `text` with every occurrence of the key removed.
    fn without_key(&self, text: &str) -> String {
        let Some(key) = self.options.key.as_deref().filter(|key| !key.is_empty()) else {
            return text.to_owned();
        };
        let escaped: String = form_urlencoded::byte_serialize(key.as_bytes()).collect();
        text.replace(key, "(key)").replace(&escaped, "(key)")
    }
}

/// Returns whether two addresses denote the same page, ignoring scheme, `www.`, query and fragment.
fn is_same_page(a: &Url, b: &Url) -> bool {
    let host =
        |url: &Url| url.host_str().map(|host| host.strip_prefix("www.").unwrap_or(host).to_owned());
    host(a) == host(b) && a.path().trim_end_matches('/') == b.path().trim_end_matches('/')
}

impl fmt::Debug for SearchFetcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SearchFetcher").field("options", &self.options).finish_non_exhaustive()
    }
}

impl Fetcher for SearchFetcher {
    fn name(&self) -> &str {
        &self.options.name
    }

    fn renders(&self) -> bool {
        false
    }

    fn max_in_flight(&self) -> usize {
        self.options.max_in_flight.max(1)
    }

    fn fetch<'a>(&'a self, request: Request<'a>) -> FetchFuture<'a> {
        Box::pin(self.search(request))
    }
}
