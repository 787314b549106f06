//! Upstream proxies, HTTP and SOCKS5, on loopback: pages through them, and the distinction of their
//! failures from the site's.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use fetchwise::attempt::error_kind::ErrorKind;
use fetchwise::fetch::address_guard::AddressGuard;
use fetchwise::fetch::dial::{Dialer, LookupFuture, Resolve};
use fetchwise::fetch::http::HttpFetcher;
use fetchwise::fetch::proxy::FilteringProxy;
use fetchwise::fetch::upstream::Upstream;
use fetchwise::fetch::{FetchError, Fetcher, Limits, Request, Response};
use fetchwise_testsite::origin::{Origin, Site};
use fetchwise_testsite::services::proxy::{ForwardProxy, ProxyOptions};

const WORLD: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 21));
const PROXY: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 22));
const SCHEMES: [&str; 2] = ["http", "socks5"];

/// A resolver without any name.
struct NoNames;

impl Resolve for NoNames {
    fn lookup<'a>(&'a self, _: &'a str) -> LookupFuture<'a> {
        Box::pin(async { Ok(Vec::new()) })
    }
}

fn proxy(user: Option<(&str, &str)>, refuses: bool) -> ForwardProxy {
    let user = user.map(|(user, password)| (user.to_owned(), password.to_owned()));
    ForwardProxy::start(PROXY, ProxyOptions { upstream: WORLD, credentials: user, refuses })
        .unwrap()
}

fn through(
    scheme: &str,
    proxy: &ForwardProxy,
    user: Option<&str>,
    guard: AddressGuard,
) -> HttpFetcher {
    let upstream = Upstream::parse(&format!("{scheme}://{}", proxy.address()), user).unwrap();
    let http = HttpFetcher::builder().guard(guard).resolver(Arc::new(NoNames)).upstream(upstream);
    http.name("by_proxy").build().unwrap()
}

async fn get(fetcher: &HttpFetcher, url: &str) -> Result<Response, FetchError> {
    fetcher.fetch(Request::new(&url.parse().unwrap(), &Limits::default())).await
}

fn open() -> AddressGuard {
    AddressGuard::new([], true)
}

#[tokio::test]
async fn only_the_proxy_needs_to_resolve_the_name() {
    // A named site is served on 127.0.0.1, so this proxy's upstream address is that.
    let origin = Origin::start([("pages.example", Site::Static)]).unwrap();
    let world = IpAddr::V4(Ipv4Addr::LOCALHOST);
    for scheme in SCHEMES {
        let user = Some(("me".to_owned(), "secret".to_owned()));
        let proxy = ForwardProxy::start(
            PROXY,
            ProxyOptions { upstream: world, credentials: user, refuses: false },
        )
        .unwrap();
        // The guard allows public addresses only. It checks neither the proxy's own address nor an
        // unknown name.
        let one = through(scheme, &proxy, Some("me:secret"), AddressGuard::default());
        let url = origin.url("pages.example", "/a");
        for _ in 0..2 {
            let response = get(&one, &url).await.unwrap();
            assert_eq!(
                (response.status, response.final_url.as_str()),
                (200, url.as_str()),
                "{scheme}"
            );
        }
        let served = proxy.requests();
        let want = if scheme == "http" {
            format!("GET {url}")
        } else {
            format!("SOCKS pages.example:{}", origin.port())
        };
        assert_eq!(served[0], want, "{served:?}");
    }
    assert_eq!(origin.hits("pages.example"), 4);
}

#[tokio::test]
async fn a_refused_destination_never_reaches_the_proxy() {
    for scheme in SCHEMES {
        let proxy = proxy(None, false);
        let one = through(scheme, &proxy, None, AddressGuard::default());
        let error = get(&one, "http://127.0.0.1:9/").await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::RefusedAddress, "{scheme}: {error}");
        assert!(proxy.requests().is_empty());
    }
}

#[tokio::test]
async fn faults_of_the_proxy_are_proxy_errors() {
    for scheme in SCHEMES {
        for (user, sent) in
            [(Some(("me", "secret")), Some("me:wrong-secret")), (Some(("me", "secret")), None)]
        {
            let proxy = proxy(user, false);
            for url in ["http://127.0.0.21:9/", "https://127.0.0.21:9/"] {
                let error = get(&through(scheme, &proxy, sent, open()), url).await.unwrap_err();
                assert_eq!(error.kind, ErrorKind::ProxyError, "{scheme} {url}: {error}");
                assert!(!error.message.contains("secret"), "{error}");
            }
        }
        let refusing = proxy(None, true);
        let error = get(&through(scheme, &refusing, None, open()), "https://127.0.0.21:9/")
            .await
            .unwrap_err();
        assert_eq!(error.kind, ErrorKind::ProxyError, "{scheme}: {error}");
        let gone = through(scheme, &refusing, None, open());
        drop(refusing);
        let error = get(&gone, "http://127.0.0.21:9/").await.unwrap_err();
        assert_eq!((error.kind, error.local), (ErrorKind::ProxyError, false), "{scheme}: {error}");
    }
}

#[tokio::test]
async fn an_unreachable_host_behind_the_proxy_is_the_hosts_fault() {
    let proxy = proxy(None, false);
    let error =
        get(&through("socks5", &proxy, None, open()), "http://127.0.0.21:9/").await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::NetworkError, "{error}");
}

#[tokio::test]
async fn the_browsers_proxy_uses_it_too() {
    let origin = Origin::start([("127.0.0.21", Site::Static)]).unwrap();
    let url = origin.url("127.0.0.21", "/a");
    for scheme in SCHEMES {
        let proxy = proxy(Some(("me", "secret")), false);
        let upstream =
            Upstream::parse(&format!("{scheme}://{}", proxy.address()), Some("me:secret")).unwrap();
        let filtering =
            FilteringProxy::start_with(Dialer::new(open()).through(upstream)).await.unwrap();
        let (user, password) = filtering.credentials();
        let own = Upstream::parse(
            &format!("http://{}", filtering.addr()),
            Some(&format!("{user}:{password}")),
        )
        .unwrap();
        let http = HttpFetcher::builder().guard(open()).upstream(own).build().unwrap();
        let response = get(&http, &url).await.unwrap();
        assert_eq!(response.status, 200, "{scheme}");
        assert_eq!(proxy.requests().len(), 1, "{:?}", proxy.requests());
    }
    assert_eq!(origin.hits("127.0.0.21"), 2);
}
