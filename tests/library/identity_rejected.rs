//! Sites that reject the signature of the crawler: how a visit ends, and what follows for the host.

use std::sync::Arc;
use std::time::Duration;

use crate::pipeline::RecordingSink;
use fetchwise::Selector;
use fetchwise::fetch::address_guard::AddressGuard;
use fetchwise::fetch::http::HttpFetcher;
use fetchwise::identity::{Agent, KeySource, Signer, SigningKey};
use fetchwise::pipeline::{Link, Pipeline, Report};
use fetchwise::registry::FetcherSpec;
use fetchwise::selector::AfterRefusal;
use fetchwise::time::{Clock, Timestamp};
use fetchwise_testsite::origin::{Origin, Site};

const HOST: &str = "127.0.0.1";
const ASKED: &str = r#"sig9=("@authority" "@query");nonce="c2VydmVy";tag="web-bot-auth""#;

struct World {
    origin: Origin,
    pipeline: Pipeline,
    clock: Arc<Clock>,
    sink: RecordingSink,
}

impl World {
    /// Returns a crawl with a fetcher that signs and one that does not declare itself.
    fn new(site: Site) -> Self {
        let now = Timestamp::now();
        let (clock, sink) = (Arc::new(Clock::fixed(now)), RecordingSink::default());
        let builder = Selector::builder()
            .without_pace()
            .around(now)
            .clock(Arc::clone(&clock))
            .sink(sink.clone());
        let names = ["direct_signed", "playwright_stealth"];
        let builder =
            names.iter().fold(builder, |builder, name| builder.fetcher(FetcherSpec::by_name(name)));
        let selector = Arc::new(builder.after_refusal(AfterRefusal::Leave).build().unwrap());
        let (_, pem) = SigningKey::generate().unwrap();
        let agent = Agent::parse("https://bot.example").unwrap();
        let signer = Signer::new(agent, KeySource::Text(pem), now.as_millis() / 1000)
            .unwrap()
            .sign_loopback(true);
        let builder = |name| {
            let guard = AddressGuard::new(["127.0.0.0/8".parse().unwrap()], false);
            HttpFetcher::builder().name(name).guard(guard)
        };
        let signed = builder(names[0]).signer(Arc::new(signer)).build().unwrap();
        let stealth = builder(names[1]).build().unwrap();
        let pipeline =
            Pipeline::builder(selector).fetcher(Arc::new(signed)).fetcher(Arc::new(stealth));
        Self {
            origin: Origin::start([(HOST, site)]).unwrap(),
            pipeline: pipeline.build().unwrap(),
            clock,
            sink,
        }
    }

    async fn fetch(&self, path: &str) -> Report {
        self.pipeline.fetch(&Link::new(self.origin.url(HOST, path))).await
    }
}

fn asks_again(status: u16) -> Site {
    Site::with_header("Accept-Signature", ASKED, Site::Status(status))
}

#[tokio::test]
async fn a_host_that_refuses_the_signature_that_it_asked_for_is_no_host_that_blocks() {
    for status in [403, 429] {
        let world = World::new(asks_again(status));
        for n in 0..5 {
            let report = world.fetch(&format!("/a/{n}")).await;
            assert_eq!(
                (report.error_type, report.requests),
                (Some("identity_rejected"), 1),
                "{n}: {report:?}"
            );
            assert!(!report.is_banned && report.paused_until.is_none(), "{report:?}");
            // The host is reported once.
            assert_eq!(report.signature_rejected_by.as_deref(), (n == 0).then_some(HOST));
        }
        // The second signature of the first link, and no request of another fetcher.
        assert_eq!(world.origin.hits(HOST), 6, "{status}");
        let attempts = world.sink.all();
        assert_eq!(attempts.len(), 5);
        assert!(
            attempts
                .iter()
                .all(|a| a.fetcher == "direct_signed" && a.weight == 0.0 && !a.is_banned)
        );
        assert!(world.pipeline.selector().paused_hosts(world.clock.now()).is_empty());
        // A host that refuses signed requests would be left without a request of any fetcher.
        world.origin.set_site(HOST, Site::Static);
        assert!(world.fetch("/b").await.success);
    }
}

#[tokio::test]
async fn a_refusal_that_says_for_how_long_pauses_its_host() {
    let world = World::new(Site::with_header("Retry-After", "60", asks_again(429)));
    let report = world.fetch("/a").await;
    assert_eq!(report.error_type, Some("identity_rejected"), "{report:?}");
    let until = world.pipeline.selector().paused_hosts(world.clock.now())[0].paused_until;
    assert!(until.since(world.clock.now()) >= Duration::from_secs(60));
}

#[tokio::test]
async fn a_block_that_asks_for_no_signature_stays_a_block() {
    // Neither a plain refusal nor one whose wish the first signature has met.
    let met = r#"sig1=("@authority" "@path");tag="web-bot-auth""#;
    for site in [Site::FORBIDDEN, Site::with_header("Accept-Signature", met, Site::FORBIDDEN)] {
        let report = World::new(site).fetch("/a").await;
        assert_eq!(
            (report.error_type, report.is_banned),
            (Some("blocked_403"), true),
            "{report:?}"
        );
        assert_eq!(report.signature_rejected_by, None);
    }
}

#[tokio::test]
async fn each_code_that_rejects_a_signature_ends_the_visit_and_changes_nothing() {
    for code in ["InvalidSignature", "StrongAuthRequired"] {
        let world = World::new(Site::with_header("crawler-error", code, Site::Status(400)));
        for n in 0..4 {
            let report = world.fetch(&format!("/a/{n}")).await;
            assert_eq!(
                (report.error_type, report.requests),
                (Some("identity_rejected"), 1),
                "{report:?}"
            );
            assert_eq!((report.is_banned, report.paused_until), (false, None));
            assert_eq!(report.signature_rejected_by.is_some(), n == 0);
        }
        assert_eq!(world.origin.hits(HOST), 4, "no other fetcher, and the host is not paused");
        assert!(world.sink.all().iter().all(|attempt| attempt.weight == 0.0));
    }
}
