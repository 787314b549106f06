//! The same scripts run by a plain visit, by the simulator's driver and by the pipeline must record
//! the same attempts.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use fetchwise::Selector;
use fetchwise::attempt::Attempt;
use fetchwise::attempt::error_kind::ErrorKind;
use fetchwise::detect::Detector;
use fetchwise::fetch::{Body, FetchError, FetchFuture, Fetcher, Request, Response};
use fetchwise::fetch_result::FetchResult;
use fetchwise::pipeline::{Link, Pipeline};
use fetchwise::registry::FetcherSpec;
use fetchwise::response::Header;
use fetchwise::selector::{Sink, SinkError};
use fetchwise::time::{Clock, Timestamp};
use fetchwise::visit::{Step, VisitOutcome};
use proptest::prelude::*;
use url::Url;

const BEGIN: Timestamp = Timestamp::from_millis(1_790_000_000_000);
const FETCHERS: [&str; 3] = ["direct_access", "playwright", "playwright_stealth"];

/// The response of the server to one request.
#[derive(Clone, Debug)]
enum ServerResponse {
    Article,
    Challenge,
    Refusal {
        retry_after: Option<u64>,
    },
    Short(u32),
    Missing,
    Broken,
    Redirect(u32),
    Fails(ErrorKind),
    /// The response of another host, to which the client followed a redirect.
    OtherHost(u32, Box<ServerResponse>),
}

fn server_response() -> impl Strategy<Value = ServerResponse> {
    let kinds = [
        ErrorKind::Timeout,
        ErrorKind::NetworkError,
        ErrorKind::DnsError,
        ErrorKind::TooLarge,
        ErrorKind::Truncated,
    ];
    let own = prop_oneof![
        4 => Just(ServerResponse::Article),
        2 => Just(ServerResponse::Challenge),
        1 => prop_oneof![3 => Just(None), 1 => (1..4000u64).prop_map(Some)].prop_map(|retry_after| ServerResponse::Refusal { retry_after }),
        2 => (0..4u32).prop_map(ServerResponse::Short),
        1 => Just(ServerResponse::Missing),
        1 => Just(ServerResponse::Broken),
        1 => (0..4u32).prop_map(ServerResponse::Redirect),
        2 => prop::sample::select(kinds.to_vec()).prop_map(ServerResponse::Fails),
    ];
    prop_oneof![
        3 => own.clone(),
        1 => (0..2u32, own).prop_map(|(host, response)| ServerResponse::OtherHost(host, Box::new(response))),
    ]
}

impl ServerResponse {
    /// Returns status, headers and body, or the error.
    fn response(&self) -> Result<(u16, Vec<Header>, String), ErrorKind> {
        let html = |status, text: String| {
            Ok((status, vec![Header::new("Content-Type", "text/html")], text))
        };
        match self {
            Self::Article => html(
                200,
                format!(
                    "<!doctype html><title>Ferries</title><p>{}",
                    "The ferry leaves. ".repeat(40)
                ),
            ),
            Self::Challenge => html(
                403,
                "<title>Just a moment...</title><script>window._cf_chl_opt={}</script>".to_owned(),
            ),
            Self::Refusal { retry_after } => {
                let mut headers = vec![Header::new("Content-Type", "text/html")];
                headers.extend(
                    retry_after.map(|seconds| Header::new("Retry-After", seconds.to_string())),
                );
                Ok((403, headers, "<h1>Forbidden</h1>".to_owned()))
            }
            Self::Short(n) => html(
                200,
                format!(
                    "<!doctype html><title>Note</title><p>Note {}<iframe></iframe>",
                    "o".repeat(*n as usize * 9)
                ),
            ),
            Self::Missing => html(404, "<h1>Not Found</h1>".to_owned()),
            Self::Broken => html(500, "<h1>Internal Server Error</h1>".to_owned()),
            Self::OtherHost(_, response) => response.response(),
            Self::Redirect(n @ 2..) => html(
                200,
                format!(
                    "<!doctype html><meta http-equiv=refresh content='0;url=https://v{n}.net/'>"
                ),
            ),
            Self::Redirect(n) => html(
                200,
                format!("<!doctype html><meta http-equiv=refresh content='0;url=/moved/{n}'>"),
            ),
            Self::Fails(kind) => Err(*kind),
        }
    }

    /// Returns the URL that responded to a request for `url`.
    fn final_url(&self, url: &Url) -> Url {
        match self {
            Self::OtherHost(host, _) => format!("https://v{host}.net/page").parse().unwrap(),
            _ => url.clone(),
        }
    }

    fn answer(&self, detector: &Detector, url: &Url) -> FetchResult {
        let answer = match self.response() {
            Ok((status, headers, body)) => {
                let headers = headers.iter().map(|header| (&header.name, &header.value));
                detector.judge(status, headers, body.as_bytes())
            }
            Err(kind) => FetchResult::from(kind),
        };
        answer.with_duration(Duration::ZERO).with_final_url(self.final_url(url))
    }
}

/// One URL: its number, its delay after the previous one, and the responses to its requests in
/// order; the last one repeats.
#[derive(Clone, Debug)]
struct Turn {
    url: u32,
    after_s: u64,
    server_response: Vec<ServerResponse>,
}

fn turn() -> impl Strategy<Value = Turn> {
    let after = prop_oneof![3 => 0..60u64, 1 => 600..5000u64];
    (0..12u32, after, prop::collection::vec(server_response(), 1..5))
        .prop_map(|(url, after_s, server_response)| Turn { url, after_s, server_response })
}

#[derive(Clone, Default)]
struct RecordingSink(Arc<Mutex<Vec<Attempt>>>);

impl Sink for RecordingSink {
    fn append(&self, attempt: &Attempt) -> Result<(), SinkError> {
        // Ids are random; everything else must be equal.
        self.0.lock().unwrap().push(Attempt { id: uuid::Uuid::nil(), ..attempt.clone() });
        Ok(())
    }
}

struct World {
    selector: Arc<Selector>,
    clock: Arc<Clock>,
    sink: RecordingSink,
}

impl World {
    fn new() -> Self {
        let (clock, sink) = (Arc::new(Clock::fixed(BEGIN)), RecordingSink::default());
        let builder = Selector::builder()
            .without_pace()
            .around(BEGIN)
            .clock(Arc::clone(&clock))
            .sink(sink.clone());
        let builder = FETCHERS
            .iter()
            .fold(builder, |builder, name| builder.fetcher(FetcherSpec::by_name(name)));
        Self { selector: Arc::new(builder.build().unwrap()), clock, sink }
    }

    fn begin(&self, turn: &Turn) -> Url {
        self.clock.set(self.clock.now().saturating_add(Duration::from_secs(turn.after_s)));
        Url::parse(&format!("https://e.org/{}/{}", turn.url % 2, turn.url)).unwrap()
    }

    fn attempts(&self) -> Vec<Attempt> {
        self.sink.0.lock().unwrap().clone()
    }
}

/// The responses to the requests of one URL, in order.
#[derive(Default)]
struct Script {
    server_response: Vec<ServerResponse>,
    next: usize,
}

impl Script {
    fn of(turn: &Turn) -> Self {
        Self { server_response: turn.server_response.clone(), next: 0 }
    }

    fn meet(&mut self) -> ServerResponse {
        self.next += 1;
        self.server_response[(self.next - 1).min(self.server_response.len() - 1)].clone()
    }
}

fn alone(turns: &[Turn]) -> Vec<Attempt> {
    let (world, detector) = (World::new(), Detector::new());
    for turn in turns {
        let (url, mut script) = (world.begin(turn), Script::of(turn));
        let mut visit = world.selector.visit(&url).unwrap();
        loop {
            match visit.next() {
                Step::Fetch(fetch) => {
                    let answer = script.meet().answer(&detector, visit.url());
                    visit.report(fetch, answer);
                }
                Step::Wait(wait) => world.clock.set(wait.until()),
                Step::End(_) => break,
            }
        }
    }
    world.attempts()
}

fn simulated(turns: &[Turn]) -> Vec<Attempt> {
    let (world, detector) = (World::new(), Detector::new());
    for turn in turns {
        let (url, mut script) = (world.begin(turn), Script::of(turn));
        let mut visit = world.selector.visit(&url).unwrap();
        fetchwise_simulate::drive(&mut visit, &world.clock, None, |fetch| {
            script.meet().answer(&detector, fetch.redirected_to().unwrap_or(&url))
        });
    }
    world.attempts()
}

struct Scripted {
    name: &'static str,
    script: Arc<Mutex<Script>>,
}

impl Fetcher for Scripted {
    fn name(&self) -> &str {
        self.name
    }

    fn renders(&self) -> bool {
        self.name != FETCHERS[0]
    }

    fn fetch<'a>(&'a self, request: Request<'a>) -> FetchFuture<'a> {
        let server_response = self.script.lock().unwrap().meet();
        Box::pin(async move {
            let final_url = server_response.final_url(request.url);
            let failed = |kind: ErrorKind| FetchError {
                final_url: Some(Box::new(final_url.clone())),
                ..FetchError::new(kind, kind.to_string(), Duration::ZERO)
            };
            let (status, headers, body) = server_response.response().map_err(failed)?;
            Ok(Response::new(status, headers, Body::in_memory(body), final_url))
        })
    }
}

fn piped(turns: &[Turn]) -> Vec<Attempt> {
    let (world, script) = (World::new(), Arc::new(Mutex::new(Script::default())));
    let pipeline =
        FETCHERS.iter().fold(Pipeline::builder(Arc::clone(&world.selector)), |builder, name| {
            builder.fetcher(Arc::new(Scripted { name, script: Arc::clone(&script) }))
        });
    let pipeline = pipeline.build().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for turn in turns {
        let url = world.begin(turn);
        *script.lock().unwrap() = Script::of(turn);
        runtime.block_on(pipeline.fetch(&Link::new(url.as_str())));
    }
    world.attempts()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases.div_ceil(2), ..ProptestConfig::default() })]

    #[test]
    fn every_driver_of_a_visit_leaves_the_same_attempts(turns in prop::collection::vec(turn(), 1..25)) {
        let want = alone(&turns);
        prop_assert_eq!(&simulated(&turns), &want, "the simulator's driver");
        prop_assert_eq!(&piped(&turns), &want, "the pipeline");
    }
}

#[test]
fn the_scripts_reach_every_kind_of_end() {
    let turns: Vec<Turn> = [
        vec![ServerResponse::Article],
        vec![ServerResponse::Challenge, ServerResponse::Article],
        vec![ServerResponse::Short(2)],
        vec![ServerResponse::Fails(ErrorKind::Timeout)],
        vec![ServerResponse::Redirect(1), ServerResponse::Missing],
        vec![ServerResponse::Refusal { retry_after: Some(60) }],
    ]
    .into_iter()
    .zip(0..)
    .map(|(server_response, url)| Turn { url, after_s: 1, server_response })
    .collect();
    let made = alone(&turns);
    let seen: Vec<_> = made
        .iter()
        .map(|a| (a.fetcher.as_str(), a.error_type.as_ref().map(|e| e.name().to_owned())))
        .collect();
    let error = |name: &str| Some(name.to_owned());
    assert_eq!(
        seen,
        [
            ("direct_access", None),
            ("direct_access", error("blocked_captcha")),
            ("playwright_stealth", None),
            ("direct_access", error("wrong_tool")),
            ("playwright", None),
            ("playwright", error("timeout")),
            ("playwright", error("timeout")),
            ("direct_access", error("not_found")),
            ("direct_access", error("blocked_403")),
        ]
    );
    let world = World::new();
    let url = world.begin(&turns[0]);
    let mut visit = world.selector.visit(&url).unwrap();
    let end = fetchwise_simulate::drive(&mut visit, &world.clock, None, |_| {
        FetchResult::from(ErrorKind::Queued)
    });
    assert!(matches!(end.how, VisitOutcome::Failed(_)));
}
