//! Signed requests on the wire, held against a verifier that shares no code with the signer.

use std::collections::{HashMap, HashSet};
use std::convert::Infallible;
use std::io::Write as _;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use fetchwise::fetch::host_headers::HostHeaders;
use fetchwise::fetch::http::{HttpFetcher, HttpFetcherBuilder};
use fetchwise::identity::{Form, FormSetting, Signer, ToSign};
use fetchwise::robots::location;
use fetchwise::time::Timestamp;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::PrivateKeyDer;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use url::Url;
use web_bot_auth::keyring::KeyRing;

use super::harness::*;
use crate::signed::{ReceivedRequest, keyring, see_wrong_clock, signer};

impl ReceivedRequest {
    fn with_header(&self, name: &str, change: impl Fn(&str) -> String) -> Self {
        let headers = self.headers.iter().map(|(known, value)| {
            (known.clone(), if known == name { change(value) } else { value.clone() })
        });
        Self { headers: headers.collect(), ..self.clone() }
    }

    /// Returns the request with one bit of its signature changed.
    fn with_bit(&self, bit: usize) -> Self {
        use base64::Engine as _;
        use base64::engine::general_purpose::STANDARD;
        self.with_header("signature", |value| {
            let mut bytes =
                STANDARD.decode(value.trim_start_matches("sig1=:").trim_end_matches(':')).unwrap();
            bytes[bit / 8] ^= 1 << (bit % 8);
            format!("sig1=:{}:", STANDARD.encode(bytes))
        })
    }

    /// Returns the request with its price, or else everything but the price, changed in one place
    /// each.
    fn changed(&self, number: usize) -> Vec<Self> {
        if self.header(PRICE).is_some() {
            return vec![self.with_header(PRICE, |price| price.replace("USD 0.", "USD 1."))];
        }
        vec![
            Self { authority: format!("x{}", self.authority), ..self.clone() },
            Self { method: "HEAD".to_owned(), ..self.clone() },
            Self { path: format!("{}x", self.path), ..self.clone() },
            self.with_bit(number % 512),
            self.with_header("signature-agent", |value| value.replace("bot.", "bad.")),
            self.with_header("signature-input", |value| value.replace(";created=1", ";created=2")),
        ]
    }

    /// Returns the same request with a price that its new signature covers.
    fn with_price(&self, signer: &Signer, number: usize) -> Self {
        let price = format!("USD 0.{number:03}");
        let url = self.url();
        let request =
            ToSign { method: &self.method, header: Some((PRICE, &price)), ..ToSign::get(&url) };
        let signed = signer.sign(&request, Timestamp::now().as_millis() / 1000).unwrap();
        let mut headers = vec![(PRICE.to_owned(), price.clone())];
        headers.extend(
            signed.iter().map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned())),
        );
        Self { headers, ..self.clone() }
    }

    fn url(&self) -> Url {
        let query = self.query.as_ref().map_or_else(String::new, |query| format!("?{query}"));
        format!("https://{}{}{query}", self.authority, self.path).parse().unwrap()
    }

    /// Returns the request and the public keys for another verifier.
    fn json(&self, form: Form, signer: &Signer) -> serde_json::Value {
        let keys = signer.keys();
        let keys =
            keys.entries().iter().map(|entry| (entry.key.kid().to_owned(), entry.key.x().into()));
        let headers =
            self.headers.iter().map(|(name, value)| (name.clone(), value.as_str().into()));
        serde_json::json!({
            "form": format!("{form:?}"),
            "version": format!("{:?}", self.version),
            "method": self.method,
            "url": self.url().as_str(),
            "headers": headers.collect::<serde_json::Map<_, _>>(),
            "keys": keys.collect::<serde_json::Map<_, _>>(),
        })
    }
}

/// Servers over TLS for three names and two addresses, with HTTP/1.1 or HTTP/2. They follow a plan
/// of redirects, and keep every request.
struct Sites {
    /// Host and port of each authority.
    authorities: Vec<(&'static str, u16)>,
    root: Vec<u8>,
    plan: Arc<Mutex<HashMap<String, String>>>,
    seen: Arc<Mutex<Vec<ReceivedRequest>>>,
}

const NAMES: [&str; 3] = ["one.example", "two.sub.example", "xn--mnchen-3ya.example"];

impl Sites {
    async fn start() -> Self {
        let names =
            NAMES.into_iter().chain(["127.0.0.1", "::1"]).map(str::to_owned).collect::<Vec<_>>();
        let key = rcgen::generate_simple_self_signed(names).unwrap();
        let root = key.cert.der().to_vec();
        let (plan, seen) = (Arc::new(Mutex::default()), Arc::new(Mutex::default()));
        let mut authorities = Vec::new();
        for (ip, protocol) in [("127.0.0.1", "h2"), ("127.0.0.1", "http/1.1"), ("::1", "h2")] {
            let private = PrivateKeyDer::try_from(key.signing_key.serialize_der()).unwrap();
            let provider = Arc::new(rustls::crypto::ring::default_provider());
            let config = rustls::ServerConfig::builder_with_provider(provider);
            let config =
                config.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
            let mut config =
                config.with_single_cert(vec![key.cert.der().clone()], private).unwrap();
            config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
            let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
            let listener = tokio::net::TcpListener::bind((ip, 0)).await;
            let listener = match listener {
                Ok(listener) => listener,
                // A machine without IPv6.
                Err(_) if ip == "::1" => continue,
                Err(error) => panic!("{error}"),
            };
            let port = listener.local_addr().unwrap().port();
            match ip {
                "::1" => authorities.push(("[::1]", port)),
                _ => authorities
                    .extend(NAMES.into_iter().chain(["127.0.0.1"]).map(|name| (name, port))),
            }
            let (plan, seen) = (Arc::clone(&plan), Arc::clone(&seen));
            tokio::spawn(async move {
                while let Ok((stream, _)) = listener.accept().await {
                    tokio::spawn(serve(
                        stream,
                        acceptor.clone(),
                        protocol,
                        Arc::clone(&plan),
                        Arc::clone(&seen),
                    ));
                }
            });
        }
        Self { authorities, root, plan, seen }
    }

    fn builder(&self) -> HttpFetcherBuilder {
        let names =
            Names::of(&NAMES.map(|name| (name, &[&["127.0.0.1"] as &[&str]] as &[&[&str]])));
        let builder = HttpFetcher::builder().guard(opened(&["127.0.0.1", "::1"]));
        builder.resolver(names).root_certificate(self.root.clone())
    }

    /// Returns an address on the server number `number`.
    fn url(&self, number: usize, path: &str) -> Url {
        let (name, port) = self.authorities[number];
        format!("https://{name}:{port}{path}").parse().unwrap()
    }
}

async fn serve(
    stream: TcpStream,
    acceptor: tokio_rustls::TlsAcceptor,
    protocol: &str,
    plan: Arc<Mutex<HashMap<String, String>>>,
    seen: Arc<Mutex<Vec<ReceivedRequest>>>,
) {
    let Ok(stream) = acceptor.accept(stream).await else { return };
    let service = service_fn(move |request| {
        let response = answer(&request, &plan, &seen);
        async move { Ok::<_, Infallible>(response) }
    });
    let io = TokioIo::new(stream);
    if protocol == "h2" {
        let _ = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
            .serve_connection(io, service)
            .await;
    } else {
        let _ = hyper::server::conn::http1::Builder::new().serve_connection(io, service).await;
    }
}

fn answer(
    request: &http::Request<Incoming>,
    plan: &Mutex<HashMap<String, String>>,
    seen: &Mutex<Vec<ReceivedRequest>>,
) -> http::Response<Full<Bytes>> {
    let got = ReceivedRequest::of(request);
    let query = request.uri().query().map_or_else(String::new, |query| format!("?{query}"));
    let address = format!("https://{}{}{query}", got.authority, got.path);
    seen.lock().unwrap().push(got);
    match plan.lock().unwrap().get(&address) {
        Some(next) => redirect(302, next),
        None => response(200, "page"),
    }
}

/// Random numbers that are the same in each run.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound as u64) as usize
    }

    fn path(&mut self) -> String {
        const PARTS: [&str; 12] = [
            "a",
            "b%20c",
            "%E4%B8%AD",
            "ü",
            "x+y",
            "~u",
            "%2F",
            "a;v=1",
            "q=1,2",
            "(x)",
            "*",
            "A-Z_0.9",
        ];
        let parts: Vec<&str> = (0..self.below(5)).map(|_| PARTS[self.below(PARTS.len())]).collect();
        let slash = ["", "/"][self.below(2)];
        let query = ["", "?", "?q=1", "?a=%26&b=c%20d", "?u=https://x.example/?y"][self.below(5)];
        format!("/{}{slash}{query}", parts.join("/"))
    }
}

/// The number of requests that are checked with each form of `Signature-Agent`.
const REQUESTS_OF_A_FORM: usize = 500;
/// The header that names the highest price, which a signature covers.
const PRICE: &str = "crawler-max-price";
/// Names a file that gets the requests as lines of JSON, for a verifier in another language.
const RECORD: &str = "FETCHWISE_RECORD_SIGNED_REQUESTS";

/// Fetches pages over random chains of redirects, and returns the requests that the servers got.
async fn fetch_random_chains(
    sites: &Sites,
    fetcher: &HttpFetcher,
    random: &mut Random,
) -> Vec<ReceivedRequest> {
    let (mut expected, mut number) = (0, 0);
    while expected < REQUESTS_OF_A_FORM {
        let mut chain = Vec::new();
        for hop in 0..=random.below(6) {
            let path = random.path();
            let mark = if path.contains('?') { "&" } else { "?" };
            let site = random.below(sites.authorities.len());
            chain.push(sites.url(site, &format!("{path}{mark}n={number}.{hop}")));
        }
        let plan = chain.windows(2).map(|pair| (pair[0].to_string(), pair[1].to_string()));
        *sites.plan.lock().unwrap() = plan.collect();
        let fetched = get_with(fetcher, &chain[0], &limits()).await;
        let response = fetched.unwrap_or_else(|error| panic!("{chain:?}: {error}"));
        assert_eq!(response.final_url, chain[chain.len() - 1]);
        expected += chain.len();
        number += 1;
    }
    let seen = std::mem::take(&mut *sites.seen.lock().unwrap());
    assert_eq!(seen.len(), expected);
    seen
}

#[tokio::test]
async fn a_thousand_random_requests_verify_and_changed_ones_do_not() {
    let test = async {
        let sites = Sites::start().await;
        let mut random = Random(0x9e37_79b9_7f4a_7c15);
        let mut record = std::env::var_os(RECORD).map(|file| std::fs::File::create(file).unwrap());
        for form in [Form::Dictionary, Form::String] {
            let signer = Arc::new(signer(FormSetting::Always(form)));
            let keys = keyring(&signer.keys());
            let fetcher = sites.builder().signer(Arc::clone(&signer)).build().unwrap();
            let mut requests = fetch_random_chains(&sites, &fetcher, &mut random).await;
            for version in [http::Version::HTTP_11, http::Version::HTTP_2] {
                assert!(requests.iter().any(|request| request.version == version), "{version:?}");
            }
            // No fetcher sends a price. Therefore the signer signs the same requests with one.
            let priced: Vec<_> =
                (0..).zip(&requests).map(|(n, request)| request.with_price(&signer, n)).collect();
            requests.extend(priced);
            let nonces: HashSet<String> = requests.iter().map(ReceivedRequest::nonce).collect();
            assert_eq!(nonces.len(), requests.len());
            for (number, request) in requests.iter().enumerate() {
                assert!(request.is_valid(&keys), "{request:?}");
                for changed in request.changed(number) {
                    assert!(!changed.is_valid(&keys), "{request:?}, as {changed:?}");
                }
                if let Some(file) = &mut record {
                    writeln!(file, "{}", request.json(form, &signer)).unwrap();
                }
            }
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(300), test).await.expect("the test hangs");
}

#[tokio::test]
async fn without_a_signer_and_over_plain_http_no_header_is_added() {
    bounded(async {
        let sites = Sites::start().await;
        let plain_seen: Arc<Mutex<Vec<ReceivedRequest>>> = Arc::default();
        let kept = Arc::clone(&plain_seen);
        let plain = Server::http(move |request| {
            kept.lock().unwrap().push(ReceivedRequest::of(&request));
            response(200, "plain")
        })
        .await;
        let https = sites.url(0, "/up");
        sites.plan.lock().unwrap().insert(https.to_string(), plain.url("/down").to_string());
        let is_signed = |seen: &Mutex<Vec<ReceivedRequest>>| {
            let last = seen.lock().unwrap().pop().unwrap();
            let signed = ["signature", "signature-input", "signature-agent"]
                .map(|name| last.header(name).is_some());
            assert!(signed[0] == signed[1] && signed[1] == signed[2], "{last:?}");
            signed[0]
        };
        // From https to http and back: the signed hop's headers do not stay.
        let signing = sites.builder().signer(Arc::new(signer(FormSetting::Auto))).build().unwrap();
        get_with(&signing, &https, &limits()).await.unwrap();
        assert!(is_signed(&sites.seen) && !is_signed(&plain_seen));
        let loopback = Arc::new(signer(FormSetting::Auto).sign_loopback(true));
        get_with(&sites.builder().signer(loopback).build().unwrap(), &plain.url("/"), &limits())
            .await
            .unwrap();
        assert!(is_signed(&plain_seen));
        get_with(&sites.builder().build().unwrap(), &https, &limits()).await.unwrap();
        assert!(!is_signed(&sites.seen) && !is_signed(&plain_seen));
    })
    .await;
}

#[tokio::test]
async fn robots_txt_is_signed_and_the_kept_request_has_no_signature() {
    bounded(async {
        let sites = Sites::start().await;
        let signer = signer(FormSetting::Auto);
        let keys = keyring(&signer.keys());
        let fetcher = sites.builder().keep_exchange(true).signer(Arc::new(signer)).build().unwrap();
        let page = sites.url(5, "/a");
        let (_, robots) = location(&page).unwrap();
        let response = get_with(&fetcher, &robots, &limits()).await.unwrap();
        let seen = sites.seen.lock().unwrap().pop().unwrap();
        assert!(seen.path == "/robots.txt" && seen.is_valid(&keys));
        let names: Vec<&str> =
            response.exchange[0].request.iter().map(|header| &*header.name).collect();
        assert!(names.contains(&"Signature-Input") && !names.contains(&"Signature"), "{names:?}");
    })
    .await;
}

/// A server that closes an idle connection gets the request again. The second one has its own
/// signature: a verifier that refuses repeated nonces would refuse a copy.
#[tokio::test]
async fn a_request_that_is_sent_again_has_a_new_nonce() {
    bounded(async {
        let heads: Arc<Mutex<Vec<String>>> = Arc::default();
        let kept = Arc::clone(&heads);
        let server = Server::raw(move |mut stream| {
            let kept = Arc::clone(&kept);
            async move {
                for number in 0.. {
                    let mut head = Vec::new();
                    while !head.ends_with(b"\r\n\r\n") {
                        match tokio::io::AsyncReadExt::read_u8(&mut stream).await {
                            Ok(byte) => head.push(byte),
                            Err(_) => return,
                        }
                    }
                    kept.lock().unwrap().push(String::from_utf8(head).unwrap());
                    if number == 1 {
                        return;
                    }
                    stream
                        .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
                        .await
                        .unwrap();
                }
            }
        })
        .await;
        let signer = Arc::new(signer(FormSetting::Auto).sign_loopback(true));
        let fetcher = builder().signer(signer).build().unwrap();
        let url = server.url("/");
        get_with(&fetcher, &url, &limits()).await.unwrap();
        let response = get_with(&fetcher, &url, &limits()).await.unwrap();
        assert_eq!(response.unanswered.len(), 1);
        let heads = heads.lock().unwrap();
        let nonces: HashSet<&str> =
            heads.iter().map(|head| head.split_once(";nonce=").unwrap().1).collect();
        assert_eq!((heads.len(), nonces.len()), (3, 3));
    })
    .await;
}

/// A site that refuses requests, with headers of the refusal by their number; without headers it
/// serves the page.
struct Refusing {
    server: Server,
    seen: Arc<Mutex<Vec<ReceivedRequest>>>,
}

type Refusal = (u16, &'static [(&'static str, &'static str)]);

impl Refusing {
    async fn start(refusal: impl Fn(usize) -> Option<Refusal> + Send + Sync + 'static) -> Self {
        let seen: Arc<Mutex<Vec<ReceivedRequest>>> = Arc::default();
        let kept = Arc::clone(&seen);
        let server = Server::http(move |request| {
            let mut seen = kept.lock().unwrap();
            seen.push(ReceivedRequest::of(&request));
            let Some((status, headers)) = refusal(seen.len()) else { return response(200, "page") };
            let mut refused = response(status, "a signature, please");
            for (name, value) in headers {
                refused.headers_mut().append(*name, value.parse().unwrap());
            }
            refused
        })
        .await;
        Self { server, seen }
    }

    /// Fetches a page, and returns its status and whether the response rejects the signature.
    async fn rejects(&self, fetcher: &HttpFetcher) -> (u16, bool) {
        let response = get_with(fetcher, &self.server.url("/a?q=1"), &limits()).await.unwrap();
        (response.status, response.is_signature_rejected)
    }

    /// Fetches a page, and returns its status, the number of its requests if the response has one,
    /// and the requests.
    async fn get(&self, fetcher: &HttpFetcher) -> (u16, Option<u16>, Vec<ReceivedRequest>) {
        let response = get_with(fetcher, &self.server.url("/a?q=1"), &limits()).await.unwrap();
        (response.status, response.requests, std::mem::take(&mut *self.seen.lock().unwrap()))
    }
}

const ASKS: &[(&str, &str)] =
    &[("accept-signature", r#"sig9=("@authority" "@query");nonce="c2VydmVy";tag="web-bot-auth""#)];

fn signing(form: FormSetting) -> (HttpFetcher, KeyRing) {
    let signer = signer(form).sign_loopback(true);
    let keys = keyring(&signer.keys());
    (builder().signer(Arc::new(signer)).build().unwrap(), keys)
}

#[tokio::test]
async fn a_refused_request_is_signed_once_more_as_the_server_asks() {
    bounded(async {
        for status in [403, 429] {
            let site = Refusing::start(move |number| (number == 1).then_some((status, ASKS))).await;
            let (fetcher, keys) = signing(FormSetting::Auto);
            let (got, requests, seen) = site.get(&fetcher).await;
            assert_eq!((got, requests, seen.len()), (200, Some(2), 2));
            assert!(seen.iter().all(|request| request.is_valid(&keys)), "{seen:?}");
            let input = seen[1].header("signature-input").unwrap();
            assert!(input.starts_with("sig9=(") && input.contains("\"@query\""), "{input}");
            assert_eq!(seen[1].nonce(), "c2VydmVy");
            assert!(seen[0].nonce() != seen[1].nonce());
        }
    })
    .await;
}

#[tokio::test]
async fn a_host_that_refuses_the_second_signature_gets_no_further_one() {
    bounded(async {
        let site = Refusing::start(|_| Some((403, ASKS))).await;
        let (fetcher, _) = signing(FormSetting::Auto);
        let (status, requests, seen) = site.get(&fetcher).await;
        assert_eq!((status, requests, seen.len()), (403, Some(2), 2));
        let (status, requests, seen) = site.get(&fetcher).await;
        assert_eq!((status, requests, seen.len()), (403, None, 1));
    })
    .await;
}

#[tokio::test]
async fn a_refusal_rejects_the_signature_once_the_one_that_it_asked_for_was_in_vain() {
    bounded(async {
        let site = Refusing::start(|number| (number < 4).then_some((403, ASKS))).await;
        let (fetcher, _) = signing(FormSetting::Auto);
        assert_eq!(site.rejects(&fetcher).await, (403, true), "after the second signature");
        assert_eq!(
            site.rejects(&fetcher).await,
            (403, true),
            "within the hour, without a second one"
        );
        assert_eq!(site.rejects(&fetcher).await, (200, false));
        // An unsigned request has no signature to reject.
        let site = Refusing::start(|_| Some((403, ASKS))).await;
        assert_eq!(site.rejects(&builder().build().unwrap()).await, (403, false));
        // The second request had the other form, and nobody asked for it.
        let site = Refusing::start(|number| {
            Some((403, if number < 3 { &[("cf-ray", "1")] } else { ASKS }))
        })
        .await;
        let (fetcher, _) = signing(FormSetting::Auto);
        assert_eq!(site.rejects(&fetcher).await, (403, false));
        assert_eq!(site.rejects(&fetcher).await, (403, false), "what it asks for was never sent");
    })
    .await;
}

#[tokio::test]
async fn a_response_that_no_other_signature_would_change_is_final() {
    bounded(async {
        const LONG: &str = concat!(
            r#"sig1=("@authority");nonce=""#,
            "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
            "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
            r#"";tag="web-bot-auth""#
        );
        let refusals: [Refusal; 7] = [
            (403, &[]),
            (401, ASKS),
            (503, ASKS),
            (403, &[("accept-signature", r#"sig1=("@authority" "@path");tag="web-bot-auth""#)]),
            (403, &[("accept-signature", r#"sig1=("content-digest");nonce="a";tag="web-bot-auth""#)]),
            (403, &[("accept-signature", LONG)]),
            // A hostile wish is not met in part either.
            (403, &[("accept-signature", "((("), ("cf-ray", "1")]),
        ];
        for refusal in refusals {
            let site = Refusing::start(move |_| Some(refusal)).await;
            let (status, requests, seen) = site.get(&signing(FormSetting::Auto).0).await;
            assert_eq!((status, requests, seen.len()), (refusal.0, None, 1), "{refusal:?}");
        }
        // Nothing is signed, so nothing can be signed once more.
        let site = Refusing::start(|_| Some((403, ASKS))).await;
        let unsigned = builder().signer(Arc::new(signer(FormSetting::Auto))).build().unwrap();
        assert_eq!(site.get(&unsigned).await.2.len(), 1);
        assert_eq!(site.get(&builder().build().unwrap()).await.2.len(), 1);
    })
    .await;
}

#[tokio::test]
async fn a_refusal_that_shows_another_form_gets_that_form() {
    bounded(async {
        let site =
            Refusing::start(|number| (number == 1).then_some((403, &[("cf-ray", "1")]))).await;
        let (fetcher, keys) = signing(FormSetting::Auto);
        let (status, _, seen) = site.get(&fetcher).await;
        let agents: Vec<&str> =
            seen.iter().filter_map(|request| request.header("signature-agent")).collect();
        let directory =
            "sig1=\"https://bot.example/.well-known/http-message-signatures-directory\"";
        assert_eq!((status, agents), (200, vec![directory, "\"https://bot.example\""]));
        assert!(seen.iter().all(|request| request.is_valid(&keys)));
        // From now on the first request has it.
        let (_, requests, seen) = site.get(&fetcher).await;
        assert_eq!(
            (requests, seen.len(), seen[0].header("signature-agent")),
            (None, 1, Some("\"https://bot.example\""))
        );
        // A form that is set stays.
        let site = Refusing::start(|_| Some((403, &[("cf-ray", "1")]))).await;
        assert_eq!(site.get(&signing(FormSetting::Always(Form::Dictionary)).0).await.2.len(), 1);
    })
    .await;
}

/// The bug: such a request went out without a signature, and was evidence about requests that have
/// one.
#[tokio::test]
async fn a_request_that_cannot_be_signed_is_not_made_unless_the_fetcher_may() {
    bounded(async {
        let sites = Sites::start().await;
        let signer = Arc::new(signer(FormSetting::Auto));
        let fetcher = sites.builder().signer(Arc::clone(&signer)).build().unwrap();
        get_with(&fetcher, &sites.url(0, "/a"), &limits()).await.unwrap();
        assert_eq!(std::mem::take(&mut *sites.seen.lock().unwrap()).len(), 1);
        see_wrong_clock(&signer);
        let error = get_with(&fetcher, &sites.url(0, "/b"), &limits()).await.unwrap_err();
        assert!(
            error.unavailable && error.local && error.message.contains("clock is 1"),
            "{error:?}"
        );
        assert!(sites.seen.lock().unwrap().is_empty());
        // Plain http is never signed, and so needs no clock. What it leads to does.
        let to = sites.url(0, "/c").to_string();
        let plain = Server::http(move |_| redirect(302, &to)).await;
        let error = get_with(&fetcher, &plain.url("/"), &limits()).await.unwrap_err();
        assert!(error.unavailable && sites.seen.lock().unwrap().is_empty(), "{error:?}");
        let robots = sites.builder().signer(signer).require_signature(false).build().unwrap();
        get_with(&robots, &sites.url(0, "/robots.txt"), &limits()).await.unwrap();
        assert!(sites.seen.lock().unwrap().pop().unwrap().header("signature").is_none());
    })
    .await;
}

#[tokio::test]
async fn the_headers_of_a_host_go_to_each_hop_on_it_and_replace_a_signature() {
    bounded(async {
        let sites = Sites::start().await;
        let mut headers = HostHeaders::default();
        headers.set(NAMES[0], "Signature: sig=:AAAA:\nX-Shop: hunter2").unwrap();
        let way = [sites.url(0, "/1"), sites.url(1, "/2"), sites.url(0, "/3")];
        for (from, to) in way.iter().zip(&way[1..]) {
            sites.plan.lock().unwrap().insert(from.to_string(), to.to_string());
        }
        let signer = Arc::new(signer(FormSetting::Auto));
        let keys = keyring(&signer.keys());
        let builder = sites.builder().keep_exchange(true).signer(signer).host_headers(headers);
        let response = get_with(&builder.build().unwrap(), &way[0], &limits()).await.unwrap();
        let seen = std::mem::take(&mut *sites.seen.lock().unwrap());
        for (number, request) in seen.iter().enumerate() {
            let got = [request.header("x-shop"), request.header("signature-input")];
            match number {
                1 => assert!(got[0].is_none() && request.is_valid(&keys), "{request:?}"),
                _ => assert_eq!(
                    (got, request.header("signature")),
                    ([Some("hunter2"), None], Some("sig=:AAAA:"))
                ),
            }
        }
        assert_eq!(seen.len(), 3);
        let kept = format!("{:?}", response.exchange);
        assert!(
            !kept.contains("hunter2") && !kept.contains("AAAA") && !kept.contains("X-Shop"),
            "{kept}"
        );
    })
    .await;
}
