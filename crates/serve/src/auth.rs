//! Admission of requests: tokens, the host that the browser addressed, and rates.
//!
//! Invariant: a request to a protected path passes only with one of the server's tokens. A request is refused before
//! its body is read.

use std::net::IpAddr;

use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, Uri, header};
use governor::clock::{Clock, DefaultClock};
use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};

use super::options::Options;
use super::problem::Problem;
use super::token::Tokens;
use fetchwise::SweepTrigger;

/// Paths that need no token. Health reveals no data, and the dashboard's page asks its visitor for a token.
const OPEN: [&str; 3] = ["/", "/healthz", "/readyz"];
/// The path of the dashboard's files.
const ASSETS: &str = "/assets/";
/// The number of clients in the rate limiter above which idle clients are dropped.
const CLIENTS_BEFORE_SWEEP: usize = 10_000;

/// The client of a request, for quotas and rates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Client {
    /// The token at this index.
    Token(usize),
    /// A client without a token, by its address.
    Address(IpAddr),
}

/// The admission check of requests.
#[derive(Debug)]
pub(crate) struct Auth {
    tokens: Tokens,
    hosts: Vec<String>,
    /// Whether every client is admitted.
    is_public: bool,
    limiter: Option<DefaultKeyedRateLimiter<Client>>,
    sweep: SweepTrigger,
}

impl Auth {
    pub(crate) fn new(tokens: Tokens, options: &Options) -> Self {
        Self {
            tokens,
            hosts: options.hosts.iter().map(|host| host.to_ascii_lowercase()).collect(),
            is_public: false,
            limiter: options.rate.map(|rate| RateLimiter::keyed(Quota::per_second(rate))),
            sweep: SweepTrigger::new(CLIENTS_BEFORE_SWEEP),
        }
    }

    /// Returns the check of a listener for everyone: only rates are limited.
    pub(crate) fn public(options: &Options) -> Self {
        Self { is_public: true, ..Self::new(Tokens::default(), options) }
    }

    /// Returns whether clients need a token.
    pub(crate) fn needs_token(&self) -> bool {
        !self.tokens.is_empty()
    }

    /// Admits a request and returns its client.
    ///
    /// # Errors
    /// 401 without a known token, 403 from a page of another origin, 429 above the rate.
    pub(crate) fn admit(&self, parts: &Parts, from: IpAddr) -> Result<Client, Problem> {
        let path = parts.uri.path();
        let is_open = OPEN.contains(&path) || path.starts_with(ASSETS);
        let client = match bearer(&parts.headers).map(|token| self.tokens.find(token)) {
            Some(Some(place)) => Client::Token(place),
            _ => Client::Address(from),
        };
        self.within_rate(client)?;
        if self.is_public {
            return Ok(client);
        }
        if !self.needs_token() {
            self.is_ours(&parts.headers, &parts.uri)?;
        } else if !is_open && matches!(client, Client::Address(_)) {
            let words = match bearer(&parts.headers) {
                None => "missing token: send it as `Authorization: Bearer TOKEN`",
                Some(_) => "invalid token: this server does not know it",
            };
            return Err(Problem::new(StatusCode::UNAUTHORIZED, "unauthorized", words));
        }
        Ok(client)
    }

    /// Checks host and origin. Any page in the operator's browser can send requests to loopback, but it cannot forge
    /// its origin or the host name that it used.
    fn is_ours(&self, headers: &HeaderMap, uri: &Uri) -> Result<(), Problem> {
        let foreign = |what: &str| {
            let words = format!(
                "{what}: without tokens, requests must address an IP address or localhost; allow other hosts with --host, or \
                 use tokens"
            );
            Err(Problem::new(StatusCode::FORBIDDEN, "foreign_host", words))
        };
        let authority = match headers.get(header::HOST).map(|host| host.to_str()) {
            Some(Ok(host)) => Some(host.to_owned()),
            Some(Err(_)) => return foreign("the host is not a valid name"),
            None => uri.authority().map(|authority| authority.as_str().to_owned()),
        };
        let Some(authority) = authority else { return Ok(()) };
        if !self.is_own(host_of(&authority)) {
            return foreign("the host is not this server's");
        }
        match headers.get(header::ORIGIN).map(|origin| origin.to_str()) {
            None => Ok(()),
            Some(Ok(origin)) if origin.split_once("://").is_some_and(|(_, at)| at.eq_ignore_ascii_case(&authority)) => {
                Ok(())
            }
            Some(_) => foreign("the request comes from a page of another origin"),
        }
    }

    fn is_own(&self, host: &str) -> bool {
        let host = host.to_ascii_lowercase();
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        host == "localhost" || bare.parse::<IpAddr>().is_ok() || self.hosts.contains(&host)
    }

    fn within_rate(&self, client: Client) -> Result<(), Problem> {
        let Some(limiter) = &self.limiter else { return Ok(()) };
        if self.sweep.is_due(limiter.len()) {
            limiter.retain_recent();
            self.sweep.done(limiter.len());
        }
        limiter.check_key(&client).map_err(|until| {
            let wait = until.wait_time_from(DefaultClock::default().now());
            let problem = Problem::new(StatusCode::TOO_MANY_REQUESTS, "rate_limited", "too many requests per second");
            problem.retry_after(wait.as_secs().max(1))
        })
    }
}

fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let value = headers.get(header::AUTHORIZATION)?.as_bytes();
    let (scheme, token) = value.split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| token.trim_ascii())
}

/// Returns the host of `host:port`.
fn host_of(authority: &str) -> &str {
    match authority.rfind(']') {
        Some(end) => &authority[..=end],
        None => authority.split(':').next().unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;
    use std::num::NonZeroU32;

    const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    fn ask(auth: &Auth, path: &str, headers: &[(&str, &str)]) -> Result<Client, StatusCode> {
        let mut request = axum::http::Request::builder().uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (parts, ()) = request.body(()).unwrap().into_parts();
        auth.admit(&parts, HERE).map_err(|problem| problem.status())
    }

    #[test]
    fn with_tokens_each_protected_request_needs_one() {
        let auth = Auth::new(Tokens::from_text("one two").unwrap(), &Options::default());
        assert_eq!(ask(&auth, "/v1/stats", &[]), Err(StatusCode::UNAUTHORIZED));
        for wrong in ["Bearer three", "Bearer ", "bearer one two", "Basic one", "one"] {
            assert_eq!(ask(&auth, "/v1/stats", &[("authorization", wrong)]), Err(StatusCode::UNAUTHORIZED), "{wrong}");
        }
        assert_eq!(ask(&auth, "/v1/stats", &[("authorization", "bearer two")]), Ok(Client::Token(1)));
        for open in OPEN {
            assert_eq!(ask(&auth, open, &[]), Ok(Client::Address(HERE)));
        }
    }

    #[test]
    fn without_tokens_only_pages_of_this_server_are_admitted() {
        let auth = Auth::new(Tokens::default(), &Options { hosts: vec!["Crawl.lan".into()], ..Options::default() });
        for host in ["localhost:80", "127.0.0.1:8080", "[::1]:8080", "10.1.2.3", "crawl.lan:80"] {
            assert_eq!(ask(&auth, "/v1/stats", &[("host", host)]), Ok(Client::Address(HERE)), "{host}");
        }
        for host in ["evil.example", "localhost.evil.example:80"] {
            assert_eq!(ask(&auth, "/v1/stats", &[("host", host)]), Err(StatusCode::FORBIDDEN), "{host}");
        }
        let page = |origin| ask(&auth, "/v1/forget", &[("host", "localhost:80"), ("origin", origin)]);
        assert_eq!(page("http://localhost:80"), Ok(Client::Address(HERE)));
        assert_eq!([page("http://evil.example"), page("null")], [Err(StatusCode::FORBIDDEN); 2]);
    }

    #[test]
    fn the_rate_limit_is_per_client() {
        let options = Options { rate: NonZeroU32::new(5), ..Options::default() };
        let auth = Auth::new(Tokens::from_text("one two").unwrap(), &options);
        let ask = |token| ask(&auth, "/v1/stats", &[("authorization", token)]);
        let let_in = (0..20).filter(|_| ask("Bearer one").is_ok()).count();
        assert!((5..20).contains(&let_in), "{let_in}");
        assert!(ask("Bearer two").is_ok());
    }
}
