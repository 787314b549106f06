//! Admission of requests: tokens, the host that the browser addressed, and rates.
//!
//! Invariant: a request to a protected path passes only with one of the server's tokens. A request
//! is refused before its body is read.

use std::net::IpAddr;

use axum::http::request::Parts;
use axum::http::uri::Authority;
use axum::http::{HeaderMap, StatusCode, header};
use governor::clock::{Clock, DefaultClock};
use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};

use super::options::Options;
use super::problem::Problem;
use super::request_origin;
use super::token::Tokens;
use fetchwise::SweepTrigger;

/// Paths that need no token. Health reveals no data, and the dashboard's page asks its visitor for
/// a token.
const OPEN: [&str; 3] = ["/", "/healthz", "/readyz"];
/// The path of the dashboard's files.
const ASSETS: &str = "/assets/";
/// The number of clients in the rate limiter above which idle clients are dropped.
const CLIENTS_BEFORE_SWEEP: usize = 10_000;

/// Returns whether a path needs no token.
pub(crate) fn is_open(path: &str) -> bool {
    OPEN.contains(&path) || path.starts_with(ASSETS)
}

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
    /// 400 with several hosts, 401 without a known token, 403 from a page of another origin, 421 if
    /// the request line names another host, 429 above the rate, 431 with a head that is too long.
    pub(crate) fn admit(&self, parts: &Parts, from: IpAddr) -> Result<Client, Problem> {
        let path = parts.uri.path();
        let is_open = is_open(path);
        let client = match bearer(&parts.headers).map(|token| self.tokens.find(token)) {
            Some(Some(place)) => Client::Token(place),
            _ => Client::Address(from),
        };
        self.within_rate(client)?;
        request_origin::within_head_limit(parts)?;
        let authority = request_origin::authority(&parts.uri, &parts.headers)?;
        if self.is_public {
            return Ok(client);
        }
        if !self.needs_token() {
            self.is_ours(parts, authority.as_ref())?;
        } else if !is_open && matches!(client, Client::Address(_)) {
            let words = match bearer(&parts.headers) {
                None => "missing token: send it as `Authorization: Bearer TOKEN`",
                Some(_) => "invalid token: this server does not know it",
            };
            return Err(Problem::new(StatusCode::UNAUTHORIZED, "unauthorized", words));
        }
        Ok(client)
    }

    /// Checks host and origin. Any page in the operator's browser can send requests to loopback,
    /// but it cannot forge its origin or the host name that it used.
    fn is_ours(&self, parts: &Parts, authority: Option<&Authority>) -> Result<(), Problem> {
        let foreign = |what: &str| {
            let words = format!(
                "{what}: without tokens, requests must address an IP address or localhost; allow other hosts with --host, or \
                 use tokens"
            );
            Err(Problem::new(StatusCode::FORBIDDEN, "foreign_host", words))
        };
        match authority {
            Some(authority) if !self.is_own(authority.host()) => {
                foreign("the host is not this server's")
            }
            Some(authority) if request_origin::is_foreign_page(parts, authority) => {
                foreign("the request comes from a page of another origin")
            }
            // No browser sends a request without a host.
            _ => Ok(()),
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
            let problem = Problem::new(
                StatusCode::TOO_MANY_REQUESTS,
                "rate_limited",
                "too many requests per second",
            );
            problem.retry_after(wait.as_secs().max(1))
        })
    }
}

fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let value = headers.get(header::AUTHORIZATION)?.as_bytes();
    let (scheme, token) = value.split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| token.trim_ascii())
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
            assert_eq!(
                ask(&auth, "/v1/stats", &[("authorization", wrong)]),
                Err(StatusCode::UNAUTHORIZED),
                "{wrong}"
            );
        }
        assert_eq!(
            ask(&auth, "/v1/stats", &[("authorization", "bearer two")]),
            Ok(Client::Token(1))
        );
        for open in OPEN {
            assert_eq!(ask(&auth, open, &[]), Ok(Client::Address(HERE)));
        }
    }

    #[test]
    fn without_tokens_only_pages_of_this_server_are_admitted() {
        let auth = Auth::new(
            Tokens::default(),
            &Options { hosts: vec!["Crawl.lan".into()], ..Options::default() },
        );
        for host in ["localhost:80", "127.0.0.1:8080", "[::1]:8080", "10.1.2.3", "crawl.lan:80"] {
            assert_eq!(
                ask(&auth, "/v1/stats", &[("host", host)]),
                Ok(Client::Address(HERE)),
                "{host}"
            );
        }
        for host in ["evil.example", "localhost.evil.example:80"] {
            assert_eq!(
                ask(&auth, "/v1/stats", &[("host", host)]),
                Err(StatusCode::FORBIDDEN),
                "{host}"
            );
        }
        let page =
            |origin| ask(&auth, "/v1/forget", &[("host", "localhost:80"), ("origin", origin)]);
        assert_eq!(page("http://localhost:80"), Ok(Client::Address(HERE)));
        assert_eq!([page("http://evil.example"), page("null")], [Err(StatusCode::FORBIDDEN); 2]);
    }

    /// A browser sends no `Origin` with these: images, scripts, frames, links, and requests without
    /// CORS.
    #[test]
    fn without_tokens_no_request_of_another_page_is_admitted_whatever_the_page_uses() {
        let auth = Auth::new(Tokens::default(), &Options::default());
        let own = ("host", "127.0.0.1:7117");
        for path in [
            "/",
            "/v1/stats",
            "/v1/attempts?limit=9",
            "/healthz",
            "/readyz",
            "/metrics",
            "/assets/app.js",
        ] {
            for site in ["cross-site", "same-site", "x", ""] {
                for (mode, dest) in
                    [("no-cors", "image"), ("no-cors", "empty"), ("navigate", "iframe")]
                {
                    let headers = [
                        own,
                        ("sec-fetch-site", site),
                        ("sec-fetch-mode", mode),
                        ("sec-fetch-dest", dest),
                    ];
                    assert_eq!(
                        ask(&auth, path, &headers),
                        Err(StatusCode::FORBIDDEN),
                        "{path} {site} {mode}"
                    );
                }
            }
            let referer = |page| ask(&auth, path, &[own, ("referer", page)]);
            assert_eq!(
                [referer("http://evil.example/a"), referer("x")],
                [Err(StatusCode::FORBIDDEN); 2]
            );
            assert_eq!(referer("http://127.0.0.1:7117/?domain=e.org"), Ok(Client::Address(HERE)));
            for site in ["same-origin", "none"] {
                assert_eq!(
                    ask(&auth, path, &[own, ("sec-fetch-site", site)]),
                    Ok(Client::Address(HERE))
                );
            }
            let two = [own, ("sec-fetch-site", "same-origin"), ("sec-fetch-site", "cross-site")];
            assert_eq!(ask(&auth, path, &two), Err(StatusCode::FORBIDDEN));
        }
        let link = [
            own,
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-mode", "navigate"),
            ("sec-fetch-dest", "document"),
        ];
        assert_eq!(ask(&auth, "/", &link), Ok(Client::Address(HERE)), "a link to the dashboard");
        assert_eq!(ask(&auth, "/v1/stats", &link), Err(StatusCode::FORBIDDEN));
    }

    #[test]
    fn every_listener_takes_one_authority_per_request() {
        let options = Options::default();
        let with_token = ("authorization", "Bearer one");
        for auth in [
            Auth::new(Tokens::default(), &options),
            Auth::new(Tokens::from_text("one").unwrap(), &options),
            Auth::public(&options),
        ] {
            let ask = |uri, hosts: &[&'static str]| {
                let hosts = hosts.iter().map(|host| ("host", *host));
                ask(&auth, uri, &hosts.chain([with_token]).collect::<Vec<_>>()).err()
            };
            for (uri, hosts, want) in [
                ("/v1/stats", &["localhost"] as &[_], None),
                ("/v1/stats", &[], None),
                ("http://localhost:80/v1/stats", &["LOCALHOST:80"], None),
                ("/v1/stats", &["localhost", "localhost"], Some(400)),
                ("/v1/stats", &["localhost", "evil.example"], Some(400)),
                ("/v1/stats", &["localhost:80@evil.example"], Some(400)),
                ("/v1/stats", &[""], Some(400)),
                ("/v1/stats", &["local host"], Some(400)),
                ("http://evil.example/v1/stats", &["localhost"], Some(421)),
                ("http://localhost:81/v1/stats", &["localhost:80"], Some(421)),
            ] {
                assert_eq!(ask(uri, hosts).map(|status| status.as_u16()), want, "{uri} {hosts:?}");
            }
        }
    }

    #[test]
    fn a_head_has_at_most_64_kib() {
        let auth = Auth::public(&Options::default());
        for (length, is_admitted) in
            [(65_000, true), (65_480, true), (65_536, false), (120_000, false)]
        {
            let text = "x".repeat(length);
            let want = if is_admitted {
                Ok(Client::Address(HERE))
            } else {
                Err(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE)
            };
            assert_eq!(ask(&auth, "/", &[("x", &text)]), want, "{length}");
            let many: Vec<_> = text
                .as_bytes()
                .chunks(1_000)
                .map(|part| ("x", std::str::from_utf8(part).unwrap()))
                .collect();
            assert_eq!(ask(&auth, "/", &many).is_ok(), is_admitted && length < 65_200, "{length}");
        }
        let path = format!("/{}", "x".repeat(65_500));
        assert!(ask(&auth, &path, &[("a", "b")]).is_ok());
        assert!(ask(&auth, &path, &[("a", "b"), ("c", "a long value of a header")]).is_err());
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
