//! `import --pocketbase`: attempts, links and routes of a system that stores them in PocketBase, from databases with
//! its schema.

use rusqlite::{Connection, params};
use serde_json::Value;

use crate::support::{DAY, TestDir, now};

/// The tables as PocketBase creates them, with the fields of such a system.
const SCHEMA: &str = "
    CREATE TABLE links (
        id TEXT PRIMARY KEY DEFAULT ('r'||lower(hex(randomblob(7)))) NOT NULL, initial_url TEXT DEFAULT '' NOT NULL,
        paused_until TEXT DEFAULT '' NOT NULL, risk_level NUMERIC DEFAULT 0 NOT NULL, attempt_count NUMERIC DEFAULT 0 NOT NULL,
        last_attempt_at TEXT DEFAULT '' NOT NULL, learning_mode_override TEXT DEFAULT '' NOT NULL);
    CREATE TABLE fetcher_router (id TEXT PRIMARY KEY NOT NULL, domain TEXT DEFAULT '' NOT NULL, fetcher TEXT DEFAULT '' NOT NULL);
    CREATE TABLE fetcher_attempts (
        id TEXT PRIMARY KEY DEFAULT ('r'||lower(hex(randomblob(7)))) NOT NULL, link TEXT DEFAULT '' NOT NULL,
        url TEXT DEFAULT '' NOT NULL, fetcher TEXT DEFAULT '' NOT NULL, success BOOLEAN DEFAULT FALSE NOT NULL,
        is_banned BOOLEAN DEFAULT FALSE NOT NULL, error_type TEXT DEFAULT '' NOT NULL, http_status NUMERIC DEFAULT 0 NOT NULL,
        response_headers JSON DEFAULT NULL, duration_ms NUMERIC DEFAULT 0 NOT NULL, attempted_at TEXT DEFAULT '' NOT NULL);
    CREATE INDEX idx_attempts_time ON fetcher_attempts (attempted_at DESC);
    CREATE TABLE attempt_heuristics (
        id TEXT PRIMARY KEY DEFAULT ('r'||lower(hex(randomblob(7)))) NOT NULL, attempt TEXT DEFAULT '' NOT NULL,
        heuristic_type TEXT DEFAULT '' NOT NULL, heuristic_value TEXT DEFAULT '' NOT NULL,
        importance_score NUMERIC DEFAULT 0 NOT NULL, created_at TEXT DEFAULT '' NOT NULL);
    CREATE INDEX idx_heur_attempt ON attempt_heuristics (attempt);";

/// A database in `place`, in a directory like PocketBase's.
pub(crate) fn database(place: &TestDir) -> Connection {
    std::fs::create_dir(place.path("pb_data")).unwrap();
    let connection = Connection::open(place.path("pb_data/data.db")).unwrap();
    // A test needs no disk sync per row.
    connection.execute_batch(&format!("PRAGMA synchronous = OFF; {SCHEMA}")).unwrap();
    connection
}

/// A time as PocketBase writes it.
fn time(at: i64) -> String {
    let rfc3339 = fetchwise::rfc3339::format(fetchwise::time::Timestamp::from_millis(at));
    rfc3339.replace('T', " ")
}

/// Adds an attempt under an id of fifteen characters; `error` is empty for a success.
pub(crate) fn attempt(db: &Connection, n: u32, url: &str, fetcher: &str, error: &str, at: i64) -> String {
    let id = format!("a{n:014}");
    let is_banned = matches!(error, "blocked_captcha" | "blocked_403");
    db.execute(
        "INSERT INTO fetcher_attempts (id, link, url, fetcher, success, is_banned, error_type, response_headers, duration_ms,
         attempted_at) VALUES (?1, '', ?2, ?3, ?4, ?5, ?6, '{\"Server\":[\"nginx\"]}', 120, ?7)",
        params![id, url, fetcher, error.is_empty(), is_banned, error, time(at)],
    )
    .unwrap();
    id
}

fn tag(db: &Connection, attempt: &str, kind: &str, value: &str, importance: f64) {
    db.execute(
        "INSERT INTO attempt_heuristics (attempt, heuristic_type, heuristic_value, importance_score) VALUES (?1, ?2, ?3, ?4)",
        params![attempt, kind, value, importance],
    )
    .unwrap();
}

fn import(place: &TestDir) -> Value {
    place.run(&["import", "--pocketbase", "pb_data", "--json"]).one()
}

#[test]
fn rows_become_attempts_with_tags_and_a_second_import_changes_nothing() {
    let place = TestDir::new();
    let db = database(&place);
    let id = attempt(&db, 1, "https://www.e.org/a/b.pdf", "simple_http", "", now() - DAY);
    tag(&db, &id, "video_platform", "vimeo", 0.7);
    tag(&db, &id, "suffix", ".pdf", 0.0);
    attempt(&db, 2, "https://e.org/c", "playwright", "blocked_captcha", now() - DAY);
    let sum = import(&place);
    assert_eq!((&sum["lines"], &sum["imported"], &sum["failed"]), (&2.into(), &2.into(), &0.into()), "{sum}");
    let lines = place.run(&["export"]).json();
    let first = lines.iter().find(|line| line["fetcher"] == "direct_access").unwrap();
    assert_eq!(first["http_status"], Value::Null, "0 stands for none there");
    assert_eq!(
        first["response_headers"]["server"].as_str().or(first["response_headers"]["Server"].as_str()),
        Some("nginx")
    );
    let tags = first["heuristics"].as_array().unwrap();
    let values = |kind: &str| -> Vec<&str> {
        tags.iter().filter(|tag| tag["type"] == kind).map(|tag| tag["value"].as_str().unwrap()).collect()
    };
    assert_eq!(
        (values("domain"), values("suffix")),
        (vec!["e.org"], vec![".pdf"]),
        "the URL's own are there, each once"
    );
    assert_eq!(values("video_platform"), ["vimeo"], "and the row's");
    let again = import(&place);
    assert_eq!((&again["imported"], &again["duplicates"]), (&0.into(), &2.into()), "{again}");
    attempt(&db, 3, "https://e.org/d", "playwright", "", now());
    assert_eq!(import(&place)["imported"], 1, "a database that has grown brings what is new");
}

#[test]
fn invalid_rows_are_reported_and_the_rest_imported() {
    let place = TestDir::new();
    let db = database(&place);
    attempt(&db, 1, "https://e.org/", "simple_http", "", now());
    attempt(&db, 2, "seed:.pdf", "simple_http", "", now());
    attempt(&db, 3, "seed:/cdn/", "simple_http", "", now());
    attempt(&db, 4, "", "simple_http", "", now());
    attempt(&db, 5, "https://e.org/", "", "", now());
    attempt(&db, 6, "not a url", "playwright", "", now());
    // A successful retry was stored with the error of the request before it.
    attempt(&db, 7, "https://e.org/x", "playwright", "timeout", now());
    db.execute("UPDATE fetcher_attempts SET success = 1 WHERE id = 'a00000000000007'", ()).unwrap();
    attempt(&db, 8, "https://e.org/y", "playwright", "", now());
    db.execute("UPDATE fetcher_attempts SET success = 'perhaps' WHERE id = 'a00000000000008'", ()).unwrap();
    attempt(&db, 9, "https://e.org/z", "playwright", "", now());
    db.execute("UPDATE fetcher_attempts SET attempted_at = 'yesterday' WHERE id = 'a00000000000009'", ()).unwrap();
    let ran = place.run(&["import", "--pocketbase", "pb_data/data.db", "--json"]);
    let sum = ran.one();
    let counts = ["lines", "imported", "failed", "bootstrap", "mended"].map(|name| sum[name].as_u64().unwrap());
    assert_eq!((ran.code, counts), (1, [9, 2, 5, 2, 1]), "{sum}");
    for (row, why) in
        [(4, "url is empty"), (5, "fetcher is empty"), (6, "`url`"), (8, "success is"), (9, "`attempted_at`")]
    {
        let want = format!("fetcher_attempts a{row:014}: {why}");
        assert!(ran.stderr.contains(&want), "{want}: {}", ran.stderr);
    }
    assert_eq!(place.run(&["export"]).json().len(), 2);
}

#[test]
fn links_keep_pauses_and_modes_and_the_router_table_works() {
    let place = TestDir::new();
    let db = database(&place);
    let link = "INSERT INTO links (id, initial_url, paused_until, risk_level, attempt_count, last_attempt_at, learning_mode_override)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
    let later = time(now() + DAY);
    db.execute(link, params!["l00000000000001", "https://e.org/a", later, 3, 4, time(now() - DAY), ""]).unwrap();
    db.execute(link, params!["l00000000000002", "https://e.org/b", "", 0, 1, time(now() - DAY), "legacy"]).unwrap();
    db.execute(
        "INSERT INTO fetcher_router VALUES ('r1', 'www.e.org', 'simple_http'), ('r2', 'spa.org', 'playwright')",
        (),
    )
    .unwrap();
    attempt(&db, 1, "https://e.org/a", "simple_http", "blocked_captcha", now() - DAY);
    db.execute("UPDATE fetcher_attempts SET link = 'l00000000000001'", ()).unwrap();
    let sum = import(&place);
    assert_eq!((&sum["links"], &sum["routes"], &sum["overrides"]), (&1.into(), &2.into(), &1.into()), "{sum}");
    assert_eq!(place.run(&["export"]).one()["link"], "https://e.org/a");
    let paused = place.run(&["select", "https://e.org/a", "--json"]).one();
    assert_eq!(paused["decision"], "paused", "{paused}");
    let router = sum["router_file"].as_str().unwrap();
    let routed = place
        .run_with_browser(&["select", "https://spa.org/x", "--mode", "legacy", "--router", router, "--json"])
        .one();
    assert_eq!((&routed["decision"], &routed["fetcher"]), (&"hard_coded".into(), &"playwright".into()), "{routed}");
    let links = std::fs::read_to_string(sum["links_file"].as_str().unwrap()).unwrap();
    assert_eq!(links.trim(), r#"{"url":"https://e.org/b","learning":false}"#);
    assert_eq!(import(&place)["links"], 0, "the log has that pause already");
}

#[test]
fn analytics_over_the_log_agree_with_sql_over_the_database() {
    let place = TestDir::new();
    let db = database(&place);
    // Whole days back, at noon, so that no row is at the boundary of a day or of the retention.
    let noon = now() / DAY * DAY - DAY / 2;
    let (fetchers, errors) =
        (["simple_http", "playwright", "playwright_stealth"], ["", "", "", "blocked_captcha", "timeout"]);
    for n in 0..600_u32 {
        let (host, fetcher) = (n % 7, fetchers[(n / 7) as usize % fetchers.len()]);
        let error = errors[(n / 3 + host) as usize % errors.len()];
        let id =
            attempt(&db, n, &format!("https://h{host}.org/p/{n}.html"), fetcher, error, noon - i64::from(n % 20) * DAY);
        tag(&db, &id, "domain", &format!("h{host}.org"), 0.0);
        if !error.is_empty() {
            tag(&db, &id, "went_wrong", error, 0.4);
        }
    }
    assert_eq!(import(&place)["imported"], 600);
    let joined = "FROM fetcher_attempts a JOIN attempt_heuristics h ON h.attempt = a.id
        WHERE h.heuristic_type = ?1 AND h.heuristic_value = ?2";
    for (kind, value) in [("domain", "h3.org"), ("went_wrong", "timeout")] {
        for row in place.run(&["query", "--where", &format!("{kind}={value}"), "--json"]).json() {
            let fetcher = row["fetcher"].as_str().unwrap().replace("direct_access", "simple_http");
            let want: (u64, f64) = db
                .query_row(
                    &format!("SELECT count(*), avg(a.success) {joined} AND a.fetcher = ?3"),
                    [kind, value, &fetcher],
                    |r| Ok((r.get::<_, i64>(0)?.unsigned_abs(), r.get(1)?)),
                )
                .unwrap();
            assert_eq!(row["attempts"], want.0, "{kind}={value} {fetcher}");
            assert!((row["success_rate"].as_f64().unwrap() - want.1).abs() < 1e-9, "{row} {want:?}");
        }
    }
    let bans = place.run(&["ban-rate", "h3.org", "--days", "10", "--json"]).one();
    let since = time(now() / DAY * DAY - 9 * DAY);
    let want: (i64, i64) = db
        .query_row(
            &format!("SELECT count(*), sum(a.is_banned) {joined} AND a.attempted_at >= ?3"),
            ["domain", "h3.org", &since],
            |r| Ok((r.get(0)?, r.get(1)?)),
        )
        .unwrap();
    assert_eq!((&bans["attempts"], &bans["banned"]), (&want.0.into(), &want.1.into()), "{bans}");
}

#[test]
fn another_database_is_an_error() {
    let place = TestDir::new();
    let ran = place.run(&["import", "--pocketbase", "nowhere.db"]);
    assert!(ran.code == 2 && ran.stderr.contains("database nowhere.db not found"), "{}", ran.stderr);
    place.write("text.db", "this is no database, but long enough to look like something else entirely");
    let ran = place.run(&["import", "--pocketbase", "text.db"]);
    assert!(ran.code == 1 && ran.stderr.contains("cannot read text.db"), "{}", ran.stderr);
    Connection::open(place.path("empty.db")).unwrap().execute_batch("CREATE TABLE t (x)").unwrap();
    let ran = place.run(&["import", "--pocketbase", "empty.db"]);
    assert!(ran.code == 2 && ran.stderr.contains("no table fetcher_attempts"), "{}", ran.stderr);
    assert!(!place.data().exists(), "nothing is made for a database that cannot be read");
}
