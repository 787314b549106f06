//! An alternative design: attempts and their heuristics as rows of SQLite, and a query for each
//! decision.
//!
//! Tables and indexes are those of the published plan. So is the query, step by step: the rows that
//! match any heuristic of the URL, then each of their attempts by its id, decayed and summed. A
//! second, more favourable version finds all of these attempts in one statement. Both use prepared
//! statements, in this process, with all pages in memory. PocketBase and Go, which would add to the
//! cost, are left out.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use fetchwise::attempt::Attempt;
use fetchwise::heuristic::url::{FLAGS, UrlFeatures};
use fetchwise::selector::{SelectContext, Selector};
use fetchwise::time::Timestamp;
use rusqlite::{Connection, params};
use url::Url;

use crate::Scale;
use crate::book::{Bound, Section, Unit};
use crate::measure::{CELLS, Latency, Random};
use crate::text;
use crate::traffic::{self, Shape};

const SCHEMA: &str = "
    CREATE TABLE fetcher_attempts (
        id TEXT PRIMARY KEY NOT NULL, link TEXT NOT NULL, url TEXT NOT NULL, fetcher TEXT NOT NULL,
        success BOOLEAN NOT NULL, is_banned BOOLEAN NOT NULL, error_type TEXT NOT NULL, http_status NUMERIC NOT NULL,
        response_headers JSON, duration_ms NUMERIC NOT NULL, attempted_at TEXT NOT NULL);
    CREATE TABLE attempt_heuristics (
        id TEXT PRIMARY KEY NOT NULL, attempt TEXT NOT NULL, heuristic_type TEXT NOT NULL, heuristic_value TEXT NOT NULL,
        importance_score NUMERIC NOT NULL, created_at TEXT NOT NULL);";
const INDEXES: &str = "
    CREATE INDEX idx_attempts_link ON fetcher_attempts (link);
    CREATE INDEX idx_attempts_url ON fetcher_attempts (url);
    CREATE INDEX idx_attempts_time ON fetcher_attempts (attempted_at DESC);
    CREATE INDEX idx_heur_type_value ON attempt_heuristics (heuristic_type, heuristic_value);
    CREATE INDEX idx_heur_attempt ON attempt_heuristics (attempt);
    ANALYZE;";

/// Creates a database with the tables of the plan, and with their indexes if `indexed`.
pub(crate) fn create(path: &Path, synchronous: &str, indexed: bool) -> Connection {
    let db = Connection::open(path).unwrap();
    db.pragma_update(None, "journal_mode", "WAL").unwrap();
    db.pragma_update(None, "synchronous", synchronous).unwrap();
    // Everything fits: nothing is read from the file.
    db.pragma_update(None, "cache_size", -4_000_000).unwrap();
    db.set_prepared_statement_cache_capacity(64);
    db.execute_batch(SCHEMA).unwrap();
    if indexed {
        db.execute_batch(INDEXES).unwrap();
    }
    db
}

/// Inserts attempt number `n` with its heuristics.
pub(crate) fn insert(db: &Connection, n: usize, attempt: &Attempt) {
    // Identifiers of 15 characters, like PocketBase's; scattered.
    let id = format!("{:015x}", Random(n as u64).next() >> 4);
    let at = fetchwise::rfc3339::format(attempt.attempted_at);
    let error = attempt.error_type.as_ref().map_or("", |error| error.name());
    db.prepare_cached("INSERT INTO fetcher_attempts VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)")
        .unwrap()
        .execute(params![
            id,
            attempt.link,
            attempt.url,
            attempt.fetcher,
            attempt.success,
            attempt.is_banned,
            error,
            200,
            "{}",
            attempt.duration_ms as i64,
            at
        ])
        .unwrap();
    let mut statement =
        db.prepare_cached("INSERT INTO attempt_heuristics VALUES (?, ?, ?, ?, ?, ?)").unwrap();
    let wanted = |kind: &str| matches!(kind, "domain" | "suffix") || FLAGS.contains(&kind);
    let tags = attempt
        .heuristics
        .iter()
        .map(|tag| (tag.heuristic.kind.as_ref(), tag.heuristic.value.as_ref()));
    for (k, (kind, value)) in
        tags.filter(|(kind, _)| wanted(kind)).chain([("status_200", "true")]).enumerate()
    {
        let tag = format!("{:015x}", Random((n * 16 + k) as u64 | 1 << 60).next() >> 4);
        statement.execute(params![tag, id, kind, value, 0.5, at]).unwrap();
    }
}

fn heuristics(url: &Url) -> Vec<(&'static str, String)> {
    let features = UrlFeatures::extract(url).unwrap();
    let mut found = vec![("domain", features.domain.to_owned())];
    found.extend(features.suffix.map(|suffix| ("suffix", suffix.as_str().to_owned())));
    found.extend(
        FLAGS
            .iter()
            .zip(features.flags)
            .filter(|(_, set)| *set)
            .map(|(flag, _)| (*flag, "true".to_owned())),
    );
    found
}

fn any_of(count: usize) -> String {
    vec!["(heuristic_type = ? AND heuristic_value = ?)"; count].join(" OR ")
}

fn flat(heuristics: &[(&'static str, String)]) -> Vec<String> {
    heuristics.iter().flat_map(|(kind, value)| [(*kind).to_owned(), value.clone()]).collect()
}

/// Weighted successes and attempts by fetcher.
#[derive(Default)]
struct Scores(HashMap<String, (f64, f64)>);

impl Scores {
    fn add(&mut self, fetcher: &str, success: bool, at: &str, now: Timestamp) {
        let at = fetchwise::rfc3339::parse(at).unwrap();
        let days = (now.as_millis() - at.as_millis()) as f64 / 86_400_000.0;
        if !self.0.contains_key(fetcher) {
            self.0.insert(fetcher.to_owned(), (0.0, 0.0));
        }
        let score = self.0.get_mut(fetcher).unwrap();
        score.1 += 1.0;
        score.0 += if success { 0.5f64.powf(days / 30.0) } else { 0.0 };
    }

    fn best(self) -> Option<(String, f64)> {
        let confidence = |(fetcher, (weighted, count)): (String, (f64, f64))| {
            (count >= 5.0).then(|| (fetcher, weighted / count * (count / 10.0).min(1.0)))
        };
        self.0.into_iter().filter_map(confidence).max_by(|a, b| a.1.total_cmp(&b.1))
    }
}

/// Runs the published query, step by step.
fn find_best_fetcher(db: &Connection, url: &Url, now: Timestamp) -> Option<(String, f64)> {
    let heuristics = heuristics(url);
    let text = format!("SELECT attempt FROM attempt_heuristics WHERE {}", any_of(heuristics.len()));
    let mut statement = db.prepare_cached(&text).unwrap();
    let rows = statement
        .query_map(rusqlite::params_from_iter(flat(&heuristics)), |row| row.get::<_, String>(0))
        .unwrap();
    let ids: HashSet<String> = rows.map(Result::unwrap).collect();
    let mut by_id = db
        .prepare_cached("SELECT fetcher, success, attempted_at FROM fetcher_attempts WHERE id = ?")
        .unwrap();
    let mut scores = Scores::default();
    for id in &ids {
        let read = |row: &rusqlite::Row<'_>| {
            scores.add(row.get_ref(0)?.as_str()?, row.get(1)?, row.get_ref(2)?.as_str()?, now);
            Ok(())
        };
        by_id.query_row([id], read).unwrap();
    }
    scores.best()
}

/// Finds the same rows in one statement.
fn find_best_fetcher_joined(db: &Connection, url: &Url, now: Timestamp) -> Option<(String, f64)> {
    let heuristics = heuristics(url);
    let text = format!(
        "SELECT fetcher, success, attempted_at FROM fetcher_attempts
         WHERE id IN (SELECT attempt FROM attempt_heuristics WHERE {})",
        any_of(heuristics.len())
    );
    let mut statement = db.prepare_cached(&text).unwrap();
    let mut rows = statement.query(rusqlite::params_from_iter(flat(&heuristics))).unwrap();
    let mut scores = Scores::default();
    while let Some(row) = rows.next().unwrap() {
        scores.add(
            row.get_ref(0).unwrap().as_str().unwrap(),
            row.get(1).unwrap(),
            row.get_ref(2).unwrap().as_str().unwrap(),
            now,
        );
    }
    scores.best()
}

/// The number of URLs per hundred with each shape.
const MIX: [(Shape, usize, &str); 3] =
    [(Shape::Plain, 80, "no suffix"), (Shape::Html, 15, "`.html`"), (Shape::Pdf, 5, "`.pdf`")];

fn shape(n: usize) -> Shape {
    let mut place = n % 100;
    let found = MIX.iter().find(|(_, share, _)| {
        let here = place < *share;
        place = place.saturating_sub(*share);
        here
    });
    found.map_or(Shape::Plain, |(shape, ..)| *shape)
}

pub(crate) fn measure(scale: Scale) -> Section {
    let mut section = Section::new("Alternative design: SQLite and a query");
    let (attempts, sites) = scale.pick((20_000, 2_000), (1_000_000, 100_000));
    let (tmp, now) = (tempfile::tempdir().unwrap(), Timestamp::now());
    let db = create(&tmp.path().join("attempts.db"), "OFF", false);
    let selector = Selector::builder().without_pace().build().unwrap();
    db.execute_batch("BEGIN").unwrap();
    for n in 0..attempts {
        let at = Timestamp::from_millis(now.as_millis() - (n % 60) as i64 * 86_400_000);
        let attempt =
            traffic::attempt(n % sites, n, (n / sites) % 2, shape(Random(n as u64).below(100)), at);
        insert(&db, n, &attempt);
        selector.observe(&attempt);
    }
    db.execute_batch("COMMIT").unwrap();
    db.execute_batch(INDEXES).unwrap();
    eprintln!("  {attempts} attempts inserted");

    section.text(format!(
        "Both designs have the same {} attempts at {} sites. The other design is the published tables, indexes and \
         query, all in SQLite's page cache (SQLite {}, in this process). Per hundred URLs, {} have no suffix, {} have \
         `.html` and {} have `.pdf`. *By steps* is the query as published: the matching rows of heuristics, then each \
         attempt by its id. *Joined* is a more favourable reading: one statement finds the same rows. A URL without a \
         suffix matches only the few attempts of its domain, which is the best case for this design. `.html` matches \
         every attempt at such a page anywhere.",
        text::size(attempts),
        text::size(sites),
        rusqlite::version(),
        MIX[0].1,
        MIX[1].1,
        MIX[2].1,
    ));
    let mut rows = Vec::new();
    let mut means = [0.0; 3];
    for (shape, share, name) in MIX {
        let queries = scale.pick(5, if shape == Shape::Plain { 20_000 } else { 12 });
        let mut random = Random(9);
        let urls: Vec<Url> =
            (0..queries.max(2_000)).map(|n| traffic::url(random.below(sites), n, shape)).collect();
        let (mut ours, mut steps, mut joined) = (Latency::new(), Latency::new(), Latency::new());
        for _ in 0..2 {
            ours = Latency::new();
            urls.iter().for_each(|url| {
                ours.time(|| selector.select(url, &SelectContext::first_attempt(now)))
            });
        }
        for url in &urls[..queries] {
            let by_steps = steps.timed(|| find_best_fetcher(&db, url, now));
            let at_once = joined.timed(|| find_best_fetcher_joined(&db, url, now));
            let near = |a: &Option<(String, f64)>, b: &Option<(String, f64)>| match (a, b) {
                (Some(a), Some(b)) => (a.1 - b.1).abs() < 1e-9,
                (a, b) => a.is_none() && b.is_none(),
            };
            assert!(
                near(&by_steps, &at_once),
                "two readings of one query: {by_steps:?}, {at_once:?}"
            );
        }
        for (who, latency) in
            [("fetchwise", &ours), ("SQLite, by steps", &steps), ("SQLite, joined", &joined)]
        {
            let mut row = latency.row(who);
            row.insert(0, name.to_owned());
            row.extend([text::ns(latency.mean()), latency.count().to_string()]);
            rows.push(row);
        }
        for (mean, latency) in means.iter_mut().zip([&ours, &steps, &joined]) {
            *mean += latency.mean() * share as f64 / 100.0;
        }
        let what = format!("a decision about a URL with {name}, p50");
        section.duel(&what, "fetchwise", "SQLite, by steps", steps.p50() / ours.p50(), "");
        section.duel(&what, "fetchwise", "SQLite, joined", joined.p50() / ours.p50(), "");
        let ratio = steps.p50().min(joined.p50()) / ours.p50();
        let what = format!("`select` against the faster SQLite variant, URLs with {name}, p50");
        section.goal(&what, Unit::Times, ratio, Bound::AtLeast(1000.0));
    }
    let head: Vec<&str> =
        ["URL", "design"].into_iter().chain(CELLS).chain(["mean", "decisions"]).collect();
    section.table(&head, rows);
    let ratio = means[1].min(means[2]) / means[0];
    section.text(format!(
        "Over the mix of URLs, a decision takes on average {} in fetchwise, {} by steps and {} joined.",
        text::ns(means[0]),
        text::ns(means[1]),
        text::ns(means[2])
    ));
    let what = "`select` against the faster SQLite variant, over the mix of URLs, mean";
    section.goal(what, Unit::Times, ratio, Bound::AtLeast(1000.0));
    section
}
