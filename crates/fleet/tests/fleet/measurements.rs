//! Measurements: the size of an attempt on the wire, and the speed of learning from messages.
//! Printed for `docs/reports/fleet.md`.
//!
//! `cargo test --release -p fetchwise-fleet --test fleet measurements:: -- --ignored --nocapture`

use std::collections::HashMap;
use std::time::Instant;

use crate::common::{NOW, TestRng};
use fetchwise::attempt::error_kind::ErrorKind;
use fetchwise::attempt::{Attempt, Tag};
use fetchwise::evidence::RemoteAttempt;
use fetchwise::heuristic::Heuristic;
use fetchwise::selector::Selector;
use fetchwise::time::Timestamp;
use fetchwise_fleet::NodeId;
use fetchwise_fleet::model::codec::{Batch, Builder};

/// Sites by Zipf's law, none of which is fetched twice within a second.
struct Crawl {
    rng: TestRng,
    sites: u64,
    asked: HashMap<u64, i64>,
}

const SYLLABLES: [&str; 24] = [
    "ba", "ren", "co", "dri", "el", "fos", "ga", "hum", "in", "jor", "ka", "lu", "mar", "net",
    "or", "pra", "qui", "ros", "san", "tek", "un", "vol", "wis", "zen",
];
const ENDS: [&str; 8] = ["com", "com", "com", "org", "net", "de", "co.uk", "fr"];

fn word(mut n: u64, least: u64) -> String {
    let mut text = String::new();
    for _ in 0..least + n % 2 {
        n = TestRng(n).draw();
        text.push_str(SYLLABLES[(n % 24) as usize]);
    }
    text
}

impl Crawl {
    fn unit(&mut self) -> f64 {
        (self.rng.draw() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// A rank of Zipf's law with exponent 1: its logarithm is about evenly distributed.
    fn site(&mut self, ms: i64) -> u64 {
        loop {
            let site = ((self.sites as f64).powf(self.unit()) - 1.0) as u64;
            let last = self.asked.insert(site, ms);
            if last.is_none_or(|last| ms - last >= 1000) {
                return site;
            }
            self.asked.insert(site, last.unwrap());
        }
    }

    fn next(&mut self, ms: i64) -> Attempt {
        let site = self.site(ms);
        let host = format!(
            "{}{}.{}",
            ["", "www.", "shop.", "blog."][(site % 4) as usize],
            word(site, 2),
            ENDS[(site % 8) as usize]
        );
        let section = word(self.rng.below(6) + site * 7, 1);
        let page = self.rng.draw();
        let path = match self.rng.below(10) {
            0 => String::new(),
            1 => format!("{section}/{page:x}.pdf"),
            2 => format!("static/{page:x}.jpg"),
            _ => format!("{section}/{}/{page:x}.html", word(page, 2)),
        };
        let url = url::Url::parse(&format!("https://{host}/{path}")).unwrap();
        let at = Timestamp::from_millis(NOW.as_millis() + ms);
        let rng = self.rng.below(100);
        let fetcher = if rng < 70 { "direct_access" } else { "playwright" };
        let mut attempt = Attempt::new(&url, fetcher, at).unwrap();
        attempt.duration_ms = (80.0 * (-self.unit().ln() * 2.0).exp()).min(30_000.0) as u64;
        attempt = match self.rng.below(20) {
            0 => attempt.failed(ErrorKind::BlockedCaptcha),
            1 => attempt.failed(ErrorKind::NotFound),
            2 => attempt.failed(ErrorKind::Timeout),
            _ => attempt.delivered(),
        };
        let mut tag = |kind: &'static str, value: &str| {
            attempt.heuristics.push(Tag::from(Heuristic::new(kind, value.to_owned())))
        };
        match rng % 20 {
            0 => tag("block_datadome", "true"),
            1 => tag("has_spa", "true"),
            _ => tag("content_type", "text/html"),
        }
        tag("status_200", "true");
        attempt
    }
}

fn with<T>(attempt: &Attempt, f: impl FnOnce(&RemoteAttempt<'_>) -> T) -> T {
    let heuristics: Vec<(&str, &str)> = attempt
        .heuristics
        .iter()
        .map(|tag| (&*tag.heuristic.kind, &*tag.heuristic.value))
        .collect();
    f(&RemoteAttempt {
        at: attempt.attempted_at,
        fetcher: &attempt.fetcher,
        weight: attempt.weight,
        success: attempt.success,
        is_banned: attempt.is_banned,
        duration_ms: attempt.duration_ms,
        hint: attempt.hint,
        is_file: attempt.url.ends_with(".pdf") || attempt.url.ends_with(".jpg"),
        heuristics: &heuristics,
    })
}

/// Returns a crawl at `rate` attempts per second as messages.
fn messages(rate: i64, seconds: i64) -> Vec<bytes::Bytes> {
    let mut crawl = Crawl { rng: TestRng(rate as u64), sites: 1_000_000, asked: HashMap::new() };
    let (mut position, mut all) = (1_000_000, Vec::new());
    for second in 0..seconds {
        let mut builder = Builder::new(1, 0, position);
        for n in 0..rate {
            let jitter = crawl.rng.below(1000 / rate.min(1000) as u64 + 1) as i64;
            let attempt = crawl.next(second * 1000 + n * 1000 / rate + jitter);
            match attempt.weight > 0.0 {
                true => with(&attempt, |fact| builder.push(fact, 7)),
                false => builder.skip(),
            }
        }
        position = builder.next();
        all.push(builder.finish(0).unwrap().1);
    }
    all
}

/// Returns the overhead of the broker's protocol per message: subject and headers.
fn framing(node_id: NodeId) -> usize {
    let id = format!("{:.12}.1.1000000-1000100", node_id.to_string());
    format!("HPUB fw.default.f.{node_id} _INBOX.0123456789012345678901.0123 170 2000\r\nNATS/1.0\r\nNats-Msg-Id: {id}\r\n\r\n\r\n").len()
}

#[test]
#[ignore = "prints what it measures"]
fn bytes_of_an_attempt() {
    let framing = framing(NodeId::from_bytes([7; 16]));
    println!(
        "| attempts a second | bytes of an attempt | with subject and headers |\n|---|---|---|"
    );
    for rate in [5, 20, 100, 500, 2000] {
        let all = messages(rate, 40);
        let bytes: usize = all.iter().map(bytes::Bytes::len).sum();
        let attempts = rate as f64 * 40.0;
        let around = (framing * all.len()) as f64 / attempts;
        println!(
            "| {rate} | {:.1} | {:.1} |",
            bytes as f64 / attempts,
            bytes as f64 / attempts + around
        );
    }
}

#[test]
#[ignore = "prints what it measures"]
fn attempts_per_second() {
    let all = messages(1000, 200);
    let selector = Selector::builder().around(NOW).build().unwrap();
    let begun = Instant::now();
    let mut facts = 0;
    for body in &all {
        Batch::decode(body).unwrap().each(|_, _, _| facts += 1);
    }
    let decoded = begun.elapsed();
    for body in &all {
        Batch::decode(body).unwrap().each(|_, fact, _| selector.learned().receive_attempt(fact));
    }
    let learned = begun.elapsed() - decoded;
    let rate = |time: std::time::Duration| f64::from(facts) / time.as_secs_f64() / 1000.0;
    println!(
        "decoded: {:.0} k facts/s; decoded and learned: {:.0} k facts/s, {} keys",
        rate(decoded),
        rate(learned),
        selector.key_count()
    );
}

#[tokio::test]
#[ignore = "prints what it measures"]
async fn reading_a_log_that_is_being_written() {
    use fetchwise::journal::replication::{Tombstones, read_positions};
    use fetchwise::journal::{Durability, Journal, JournalOptions};
    let dir = tempfile::tempdir().unwrap();
    let (journal, _) =
        Journal::open(dir.path(), JournalOptions::default().durability(Durability::Os)).unwrap();
    let selector = Selector::builder().around(NOW).build().unwrap();
    let mut crawl = Crawl { rng: TestRng(9), sites: 1_000_000, asked: HashMap::new() };
    let mut now = 0;
    let mut record = |count: i64| {
        for _ in 0..count {
            now += 10;
            journal.append_attempt(&crawl.next(now)).unwrap();
        }
    };
    println!(
        "| attempts in the segment | 100 more, from the beginning | from where the last look ended |\n|---|---|---|"
    );
    let mut kept = Tombstones::default();
    let mut next = 1;
    for _ in 0..5 {
        record(25_000);
        let (mut fresh_ms, mut kept_ms) = (Vec::new(), Vec::new());
        for round in 0..11 {
            record(100);
            journal.flush().await.unwrap();
            let upto = journal.durable_seq();
            let look = |stones: &mut Tombstones, from: u64| {
                stones.none_from(1);
                let (begun, mut seen) = (Instant::now(), 0);
                read_positions(dir.path(), (from, upto), selector.learned(), stones, |_, _| {
                    seen += 1
                })
                .unwrap();
                assert_eq!(seen, upto - from + 1);
                begun.elapsed().as_secs_f64() * 1000.0
            };
            let took = [look(&mut Tombstones::default(), next), look(&mut kept, next)];
            next = upto + 1;
            // The first check has more to read than the others.
            if round > 0 {
                fresh_ms.push(took[0]);
                kept_ms.push(took[1]);
            }
        }
        let median = |of: &mut Vec<f64>| {
            of.sort_by(f64::total_cmp);
            of[of.len() / 2]
        };
        println!(
            "| {} | {:.2} ms | {:.2} ms |",
            next - 1,
            median(&mut fresh_ms),
            median(&mut kept_ms)
        );
    }
}

/// Writes the seed corpus of a fuzzer.
#[test]
#[ignore = "writes fuzz/seeds/fleet_decode"]
fn seeds() {
    use fetchwise_fleet::model::evidence_snapshot::{SnapshotHead, pack};
    use fetchwise_fleet::peer_store::own_state_file::NodeState;
    let dir =
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds/fleet_decode");
    std::fs::create_dir_all(&dir).unwrap();
    let write = |name: &str, way: u8, bytes: &[u8]| {
        std::fs::write(dir.join(name), [&[way], bytes].concat()).unwrap()
    };
    for (rate, body) in [3, 40].into_iter().zip([messages(3, 1), messages(40, 1)]) {
        write(&format!("message-{rate}"), 0, &body[0]);
        // As columns; the fuzz target adds the header and the checksum.
        let raw_len = u32::from_le_bytes(body[0][40..44].try_into().unwrap()) as usize;
        let mut columns = vec![1, 200];
        columns.extend_from_slice(&body[0][28..36]);
        columns.push(body[0][36]);
        columns.resize(26, 0);
        columns.extend(zstd::bulk::decompress(&body[0][48..], raw_len).unwrap());
        write(&format!("columns-{rate}"), 1, &columns);
    }
    let selector = Selector::builder().around(NOW).build().unwrap();
    for body in messages(20, 1) {
        Batch::decode(&body).unwrap().each(|_, fact, _| selector.learned().receive_attempt(fact));
    }
    let packed =
        pack(&SnapshotHead::default(), &selector.learned().evidence_snapshot(NOW, 0.0)).unwrap();
    write("share", 2, &packed[..packed.len() - 4]);
    let mut state = NodeState::new(NodeId::from_bytes([3; 16]));
    state.begin_epoch(1, 40);
    state.withheld.insert(7, 9);
    write("state", 3, &state.encode());
}
