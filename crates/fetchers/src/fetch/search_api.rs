//! A fetcher that gets an article's record from a search API with a key, such as `nytime_searcher`.
//!
//! Invariants: the key goes to the API and nowhere else: it is in no message, address or attempt, and no redirect is
//! followed with it. A response is the record of exactly the requested page, as JSON, with its provenance
//! ([`Response::elsewhere`]). A fault of the API is `proxy_error`; a missing record is `not_held`. Requests go through
//! the plain fetcher, and so under its guard and limits.

use std::borrow::Cow;
use std::fmt;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::Value;
use url::{Url, form_urlencoded};

use super::body::Body;
use super::http::{BuildError, HttpFetcher, HttpFetcherBuilder};
use super::{FetchError, FetchFuture, Fetcher, Limits, Request, Response};
use crate::fetch::cooldown::{Rest, asked_rest};
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
    /// Address of the API: `{url}` stands for the page's address, `{key}` for the key, both escaped for a query.
    pub url: String,
    /// Key, for APIs that need one.
    pub key: Option<String>,
    /// Header for the key, if it is not in the address.
    pub key_header: Option<String>,
    /// Sites that the API covers, by registrable domain or host; empty for every site.
    pub hosts: Vec<String>,
    /// Pointer to the records in a response: a list, or a single record.
    pub records: String,
    /// Pointer to the page's address in a record; a record of another page is skipped. `None` takes the first record.
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
        f.debug_struct("SearchOptions").field("name", &self.name).field("hosts", &self.hosts).finish_non_exhaustive()
    }
}

/// A fetcher of article records from a search API. See the [module](self).
pub struct SearchFetcher {
    options: SearchOptions,
    http: HttpFetcher,
    rest: Rest,
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
enum Trouble {
    NotHeld(String),
    Fault { why: String, asked: Option<Duration> },
    Ours(Box<FetchError>),
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
        Ok(Self { http: http.build()?, options, rest: Rest::default() })
    }

    async fn search(&self, request: Request<'_>) -> Result<Response, FetchError> {
        if !self.knows(request.url) {
            let hosts = self.options.hosts.join(", ");
            return Err(FetchError::unavailable(format!("not a page of {hosts}")));
        }
        if let Some(why) = self.rest.why_not() {
            return Err(FetchError::unavailable(why));
        }
        let started = Instant::now();
        let error = match self.ask(request).await {
            Ok(response) => {
                self.rest.answered();
                return Ok(Response { duration: started.elapsed(), ..response });
            }
            Err(Trouble::Ours(error)) => *error,
            Err(Trouble::NotHeld(why)) => {
                self.rest.answered();
                FetchError::new(ErrorKind::NotHeld, why, Duration::ZERO)
            }
            Err(Trouble::Fault { why, asked }) => {
                let why = self.without_key(&why);
                self.rest.failed(asked, &why);
                FetchError::new(ErrorKind::ProxyError, why, Duration::ZERO)
            }
        };
        let message = self.without_key(&error.message);
        Err(FetchError { duration: started.elapsed(), message, ..error })
    }

    /// Returns whether the API covers the site.
    fn knows(&self, url: &Url) -> bool {
        let host = url.host_str().unwrap_or_default();
        let is_of = |known: &String| {
            host.strip_suffix(known.as_str()).is_some_and(|before| before.is_empty() || before.ends_with('.'))
        };
        self.options.hosts.is_empty() || self.options.hosts.iter().any(is_of)
    }

    async fn ask(&self, request: Request<'_>) -> Result<Response, Trouble> {
        let address = self.address(request.url)?;
        // A redirect would carry the key along.
        let limits = Limits { max_redirects: 0, ..request.limits.clone() };
        let response =
            self.http.fetch(Request { url: &address, limits: &limits }).await.map_err(|error| match error.local {
                true => Trouble::Ours(Box::new(error)),
                false => Trouble::Fault { why: format!("request failed: {}", error.message), asked: None },
            })?;
        match response.status {
            200..=299 => {}
            404 | 410 => return Err(Trouble::NotHeld("no record of the page".to_owned())),
            401 | 403 => {
                let why = format!("the API refused the key (status {})", response.status);
                return Err(Trouble::Fault { why, asked: Some(KEY_REFUSED) });
            }
            status => {
                let asked = asked_rest(status, &response.headers);
                return Err(Trouble::Fault { why: format!("unexpected status {status}"), asked });
            }
        }
        if response.body.spill().is_some() || response.truncated {
            return Err(Trouble::Fault { why: "response too long or truncated".to_owned(), asked: None });
        }
        let answer: Value = serde_json::from_slice(response.body.head())
            .map_err(|error| Trouble::Fault { why: format!("invalid JSON: {error}"), asked: None })?;
        let record = self.record(&answer, request.url)?;
        self.delivered(request.url, record, &address)
    }

    /// Returns the address of the API request for `page`.
    fn address(&self, page: &Url) -> Result<Url, Trouble> {
        let escaped = |text: &str| form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
        // The key is inserted last, so a page's address cannot contain its placeholder.
        let (page, key) = (escaped(page.as_str()), escaped(self.options.key.as_deref().unwrap_or_default()));
        let parts: Vec<String> = self.options.url.split("{url}").map(|part| part.replace("{key}", &key)).collect();
        let address = parts.join(&page);
        Url::parse(&address).map_err(|error| Trouble::Fault { why: format!("invalid API URL: {error}"), asked: None })
    }

    /// Returns the record of `page` in a response.
    fn record<'a>(&self, answer: &'a Value, page: &Url) -> Result<&'a Value, Trouble> {
        let none = || Trouble::NotHeld("no record of the page".to_owned());
        let records = match answer.pointer(&self.options.records) {
            None | Some(Value::Null) => return Err(none()),
            Some(Value::Array(records)) => records.as_slice(),
            Some(record) => std::slice::from_ref(record),
        };
        let is_of_page = |record: &&Value| match &self.options.address {
            None => true,
            Some(place) => {
                let address = record.pointer(place).and_then(Value::as_str).and_then(|text| Url::parse(text).ok());
                address.is_some_and(|address| is_same_page(&address, page))
            }
        };
        records.iter().find(is_of_page).ok_or_else(none)
    }

    fn delivered(&self, page: &Url, record: &Value, asked: &Url) -> Result<Response, Trouble> {
        let text = |place: &str| match record.pointer(place)? {
            Value::String(text) if !text.trim().is_empty() => Some(Cow::Borrowed(text.as_str())),
            Value::Number(number) => Some(Cow::Owned(number.to_string())),
            _ => None,
        };
        let title = text(&self.options.title)
            .ok_or_else(|| Trouble::NotHeld("the record of the page has no title".to_owned()))?;
        let some = |place: &Option<String>| place.as_deref().and_then(text);
        let (summary, body, date) = (some(&self.options.summary), some(&self.options.body), some(&self.options.date));
        let json = RecordJson { url: page.as_str(), title, summary, body, date, record };
        let bytes =
            serde_json::to_vec(&json).map_err(|error| Trouble::Fault { why: error.to_string(), asked: None })?;
        let headers = vec![Header::new("content-type", "application/json")];
        let provenance = Some(Provenance::record(asked.host_str().unwrap_or_default()));
        Ok(Response { provenance, ..Response::new(200, headers, Body::in_memory(bytes), page.clone()) })
    }

    /// Returns `text` with every occurrence of the key removed.
    fn without_key(&self, text: &str) -> String {
        let Some(key) = self.options.key.as_deref().filter(|key| !key.is_empty()) else { return text.to_owned() };
        let escaped: String = form_urlencoded::byte_serialize(key.as_bytes()).collect();
        text.replace(key, "(key)").replace(&escaped, "(key)")
    }
}

/// Returns whether two addresses denote the same page, ignoring scheme, `www.`, query and fragment.
fn is_same_page(a: &Url, b: &Url) -> bool {
    let host = |url: &Url| url.host_str().map(|host| host.strip_prefix("www.").unwrap_or(host).to_owned());
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
