//! Who may come in: tokens, the address that a browser believes to be at, and rates.
//!
//! Invariant: a request that wants a token is let through with one of ours only; what is refused is refused before its body is read.

use std::net::IpAddr;

use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, Uri, header};
use governor::clock::{Clock, DefaultClock};
use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};

use super::options::Options;
use super::problem::Problem;
use super::token::Tokens;

/// Paths that need no token: whether the server lives says nothing of what it knows, and the dashboard's page has its visitor enter
/// one.
const OPEN: [&str; 3] = ["/", "/healthz", "/readyz"];
/// Where the dashboard's files are.
const ASSETS: &str = "/assets/";
/// With so many clients known to the limiter, those who have been quiet are dropped.
const CLIENTS_BEFORE_SWEEP: usize = 10_000;

/// Whose request it is, as far as shares and rates are concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Client {
    /// The token in this place.
    Token(usize),
    /// Whoever asks from this address.
    Address(IpAddr),
}

/// Lets requests in.
#[derive(Debug)]
pub(crate) struct Gate {
    tokens: Tokens,
    hosts: Vec<String>,
    limiter: Option<DefaultKeyedRateLimiter<Client>>,
}

impl Gate {
    pub(crate) fn new(tokens: Tokens, options: &Options) -> Self {
        Self {
            tokens,
            hosts: options.hosts.iter().map(|host| host.to_ascii_lowercase()).collect(),
            limiter: options.rate.map(|rate| RateLimiter::keyed(Quota::per_second(rate))),
        }
    }

    /// Whether every client is to show a token.
    pub(crate) fn wants_tokens(&self) -> bool {
        !self.tokens.is_empty()
    }

    /// Lets a request in, or says why not.
    ///
    /// # Errors
    /// 401 without a token that is known, 403 from a page of somebody else's, 429 above the rate.
    pub(crate) fn admit(&self, parts: &Parts, from: IpAddr) -> Result<Client, Problem> {
        let path = parts.uri.path();
        let is_open = OPEN.contains(&path) || path.starts_with(ASSETS);
        let client = match bearer(&parts.headers).map(|token| self.tokens.find(token)) {
            Some(Some(place)) => Client::Token(place),
            _ => Client::Address(from),
        };
        self.within_rate(client)?;
        if !self.wants_tokens() {
            self.is_ours(&parts.headers, &parts.uri)?;
        } else if !is_open && matches!(client, Client::Address(_)) {
            let words = match bearer(&parts.headers) {
                None => "this server wants a token: send it as `Authorization: Bearer TOKEN`",
                Some(_) => "the token is none of this server's",
            };
            return Err(Problem::new(StatusCode::UNAUTHORIZED, "unauthorized", words));
        }
        Ok(client)
    }

    /// A page in the operator's browser may send requests to loopback as well as the operator may. It cannot lie about its origin, nor
    /// about the name by which it has reached this server.
    fn is_ours(&self, headers: &HeaderMap, uri: &Uri) -> Result<(), Problem> {
        let foreign = |what: &str| {
            let words = format!(
                "{what}: without tokens only requests to an address or to localhost are answered; name other hosts with --host, or \
                 use tokens"
            );
            Err(Problem::new(StatusCode::FORBIDDEN, "foreign_host", words))
        };
        let authority = match headers.get(header::HOST).map(|host| host.to_str()) {
            Some(Ok(host)) => Some(host.to_owned()),
            Some(Err(_)) => return foreign("the host is no name"),
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
            Some(_) => foreign("a page of another origin asks"),
        }
    }

    fn is_own(&self, host: &str) -> bool {
        let host = host.to_ascii_lowercase();
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        host == "localhost" || bare.parse::<IpAddr>().is_ok() || self.hosts.contains(&host)
    }

    fn within_rate(&self, client: Client) -> Result<(), Problem> {
        let Some(limiter) = &self.limiter else { return Ok(()) };
        if limiter.len() > CLIENTS_BEFORE_SWEEP {
            limiter.retain_recent();
        }
        limiter.check_key(&client).map_err(|until| {
            let wait = until.wait_time_from(DefaultClock::default().now());
            let problem = Problem::new(StatusCode::TOO_MANY_REQUESTS, "rate_limited", "too many requests a second");
            problem.retry_after(wait.as_secs().max(1))
        })
    }
}

fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let value = headers.get(header::AUTHORIZATION)?.as_bytes();
    let (scheme, token) = value.split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| token.trim_ascii())
}

/// The host of `host:port`.
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

    fn ask(gate: &Gate, path: &str, headers: &[(&str, &str)]) -> Result<Client, StatusCode> {
        let mut request = axum::http::Request::builder().uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (parts, ()) = request.body(()).unwrap().into_parts();
        gate.admit(&parts, HERE).map_err(|problem| problem.status())
    }

    #[test]
    fn with_tokens_a_request_needs_one() {
        let gate = Gate::new(Tokens::from_text("one two").unwrap(), &Options::default());
        assert_eq!(ask(&gate, "/v1/stats", &[]), Err(StatusCode::UNAUTHORIZED));
        for wrong in ["Bearer three", "Bearer ", "bearer one two", "Basic one", "one"] {
            assert_eq!(ask(&gate, "/v1/stats", &[("authorization", wrong)]), Err(StatusCode::UNAUTHORIZED), "{wrong}");
        }
        assert_eq!(ask(&gate, "/v1/stats", &[("authorization", "bearer two")]), Ok(Client::Token(1)));
        for open in OPEN {
            assert_eq!(ask(&gate, open, &[]), Ok(Client::Address(HERE)));
        }
    }

    #[test]
    fn without_tokens_only_ones_own_pages_may_ask() {
        let gate = Gate::new(Tokens::default(), &Options { hosts: vec!["Crawl.lan".into()], ..Options::default() });
        for host in ["localhost:80", "127.0.0.1:8080", "[::1]:8080", "10.1.2.3", "crawl.lan:80"] {
            assert_eq!(ask(&gate, "/v1/stats", &[("host", host)]), Ok(Client::Address(HERE)), "{host}");
        }
        for host in ["evil.example", "localhost.evil.example:80"] {
            assert_eq!(ask(&gate, "/v1/stats", &[("host", host)]), Err(StatusCode::FORBIDDEN), "{host}");
        }
        let page = |origin| ask(&gate, "/v1/forget", &[("host", "localhost:80"), ("origin", origin)]);
        assert_eq!(page("http://localhost:80"), Ok(Client::Address(HERE)));
        assert_eq!([page("http://evil.example"), page("null")], [Err(StatusCode::FORBIDDEN); 2]);
    }

    #[test]
    fn a_rate_holds_for_each_client() {
        let options = Options { rate: NonZeroU32::new(5), ..Options::default() };
        let gate = Gate::new(Tokens::from_text("one two").unwrap(), &options);
        let ask = |token| ask(&gate, "/v1/stats", &[("authorization", token)]);
        let let_in = (0..20).filter(|_| ask("Bearer one").is_ok()).count();
        assert!((5..20).contains(&let_in), "{let_in}");
        assert!(ask("Bearer two").is_ok());
    }
}
