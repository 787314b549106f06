//! `nytime_searcher` and its like: asks a search interface with a key for an article's record, by configuration.
//!
//! Invariant: the key goes to the interface and nowhere else: it is in no message, no address, no attempt, and no redirect is
//! followed with it. What comes back is the record of the very page that was asked for, as JSON, and says who gave it
//! ([`Response::elsewhere`]); what the interface does wrong is `proxy_error`, that it has no record is `not_held`. Requests go
//! out by the plain fetcher and so under its guard and limits.

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

/// An interface that refuses the key is left alone so long: it will not like it better at the next page.
const KEY_REFUSED: Duration = Duration::from_secs(600);

/// How a [`SearchFetcher`] is set up. Places in an answer are JSON pointers (RFC 6901).
#[derive(Clone)]
pub struct SearchOptions {
    /// The name that attempts are logged under.
    pub name: String,
    /// The address that is asked: `{url}` stands for the page's address, `{key}` for the key, both escaped as a query needs it.
    pub url: String,
    /// The key, for interfaces that want one.
    pub key: Option<String>,
    /// The header that the key goes into, where it is none of the address.
    pub key_header: Option<String>,
    /// The sites that it knows, by registrable domain or host; every site where it is empty.
    pub hosts: Vec<String>,
    /// Where the records are in an answer: a list, or a single one.
    pub records: String,
    /// Where the address of its page is in a record; a record of another page is none. Without it the first record is taken.
    pub address: Option<String>,
    /// Where the title is in a record. A record without one is none.
    pub title: String,
    /// Where the abstract is.
    pub summary: Option<String>,
    /// Where the text is.
    pub body: Option<String>,
    /// Where the date is.
    pub date: Option<String>,
    /// Requests under way at a time.
    pub max_in_flight: usize,
}

impl SearchOptions {
    /// The New York Times' Article Search, with the user's key.
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
        // Neither the key nor an address that somebody may have written it into.
        f.debug_struct("SearchOptions").field("name", &self.name).field("hosts", &self.hosts).finish_non_exhaustive()
    }
}

/// Gets the records of articles from a search interface. See the [module](self).
pub struct SearchFetcher {
    options: SearchOptions,
    http: HttpFetcher,
    rest: Rest,
}

/// What is delivered.
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

/// Why there is no record.
enum Trouble {
    NotHeld(String),
    Fault { why: String, asked: Option<Duration> },
    Ours(Box<FetchError>),
}

impl SearchFetcher {
    /// A fetcher that asks the interface of `options` by requests as `http` makes them.
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
            return Err(FetchError::unavailable(format!("it knows pages of {hosts} only")));
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

    /// Whether the interface knows the site.
    fn knows(&self, url: &Url) -> bool {
        let host = url.host_str().unwrap_or_default();
        let is_of = |known: &String| {
            host.strip_suffix(known.as_str()).is_some_and(|before| before.is_empty() || before.ends_with('.'))
        };
        self.options.hosts.is_empty() || self.options.hosts.iter().any(is_of)
    }

    async fn ask(&self, request: Request<'_>) -> Result<Response, Trouble> {
        let address = self.address(request.url)?;
        // A redirect would take the key along.
        let limits = Limits { max_redirects: 0, ..request.limits.clone() };
        let response =
            self.http.fetch(Request { url: &address, limits: &limits }).await.map_err(|error| match error.local {
                true => Trouble::Ours(Box::new(error)),
                false => Trouble::Fault { why: format!("it cannot be asked ({})", error.message), asked: None },
            })?;
        match response.status {
            200..=299 => {}
            404 | 410 => return Err(Trouble::NotHeld("it has no record of the page".to_owned())),
            401 | 403 => {
                let why = format!("it refuses the key (status {})", response.status);
                return Err(Trouble::Fault { why, asked: Some(KEY_REFUSED) });
            }
            status => {
                let asked = asked_rest(status, &response.headers);
                return Err(Trouble::Fault { why: format!("it answered with status {status}"), asked });
            }
        }
        if response.body.spill().is_some() || response.truncated {
            return Err(Trouble::Fault { why: "its answer is too long or was cut".to_owned(), asked: None });
        }
        let answer: Value = serde_json::from_slice(response.body.head())
            .map_err(|error| Trouble::Fault { why: format!("its answer is no JSON: {error}"), asked: None })?;
        let record = self.record(&answer, request.url)?;
        self.delivered(request.url, record, &address)
    }

    /// The address that is asked for `page`.
    fn address(&self, page: &Url) -> Result<Url, Trouble> {
        let escaped = |text: &str| form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
        // The key comes last, so that a page's address cannot ask for it.
        let (page, key) = (escaped(page.as_str()), escaped(self.options.key.as_deref().unwrap_or_default()));
        let parts: Vec<String> = self.options.url.split("{url}").map(|part| part.replace("{key}", &key)).collect();
        let address = parts.join(&page);
        Url::parse(&address)
            .map_err(|error| Trouble::Fault { why: format!("its address is no URL: {error}"), asked: None })
    }

    /// The record of `page` in an answer.
    fn record<'a>(&self, answer: &'a Value, page: &Url) -> Result<&'a Value, Trouble> {
        let none = || Trouble::NotHeld("it has no record of the page".to_owned());
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
            .ok_or_else(|| Trouble::NotHeld("its record of the page has no title".to_owned()))?;
        let some = |place: &Option<String>| place.as_deref().and_then(text);
        let (summary, body, date) = (some(&self.options.summary), some(&self.options.body), some(&self.options.date));
        let json = RecordJson { url: page.as_str(), title, summary, body, date, record };
        let bytes =
            serde_json::to_vec(&json).map_err(|error| Trouble::Fault { why: error.to_string(), asked: None })?;
        let headers = vec![Header::new("content-type", "application/json")];
        let provenance = Some(Provenance::record(asked.host_str().unwrap_or_default()));
        Ok(Response { provenance, ..Response::new(200, headers, Body::in_memory(bytes), page.clone()) })
    }

    /// `text` without the key, should something have put it there.
    fn without_key(&self, text: &str) -> String {
        let Some(key) = self.options.key.as_deref().filter(|key| !key.is_empty()) else { return text.to_owned() };
        let escaped: String = form_urlencoded::byte_serialize(key.as_bytes()).collect();
        text.replace(key, "(key)").replace(&escaped, "(key)")
    }
}

/// Whether two addresses are those of one page: scheme, `www.`, query and fragment aside.
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
