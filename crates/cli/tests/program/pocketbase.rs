//! `import --pocketbase`: attempts, links and routes of a system that stores them in PocketBase,
//! from databases with its schema.

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
pub(crate) fn attempt(
    db: &Connection,
    n: u32,
    url: &str,
    fetcher: &str,
    error: &str,
    at: i64,
) -> String {
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
    assert_eq!(
        (&sum["lines"], &sum["imported"], &sum["failed"]),
        (&2.into(), &2.into(), &0.into()),
        "{sum}"
    );
    let lines = place.run(&["export"]).json();
    let first = lines.iter().find(|line| line["fetcher"] == "direct_access").unwrap();
    assert_eq!(first["http_status"], Value::Null, "0 stands for none there");
    assert_eq!(
        first["response_headers"]["server"]
            .as_str()
            .or(first["response_headers"]["Server"].as_str()),
        Some("nginx")
    );
    let tags = first["heuristics"].as_array().unwrap();
    let values = |kind: &str| -> Vec<&str> {
        tags.iter()
            .filter(|tag| tag["type"] == kind)
            .map(|tag| tag["value"].as_str().unwrap())
            .collect()
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
    db.execute("UPDATE fetcher_attempts SET success = 'perhaps' WHERE id = 'a00000000000008'", ())
        .unwrap();
    attempt(&db, 9, "https://e.org/z", "playwright", "", now());
    db.execute(
        "UPDATE fetcher_attempts SET attempted_at = 'yesterday' WHERE id = 'a00000000000009'",
        (),
    )
    .unwrap();
    let ran = place.run(&["import", "--pocketbase", "pb_data/data.db", "--json"]);
    let sum = ran.one();
    let counts = ["lines", "imported", "failed", "bootstrap", "mended"]
        .map(|name| sum[name].as_u64().unwrap());
    assert_eq!((ran.code, counts), (1, [9, 2, 5, 2, 1]), "{sum}");
    for (row, why) in [
        (4, "url is empty"),
        (5, "fetcher is empty"),
        (6, "`url`"),
        (8, "success is"),
        (9, "`attempted_at`"),
    ] {
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
    db.execute(
        link,
        params!["l00000000000001", "https://e.org/a", later, 3, 4, time(now() - DAY), ""],
    )
    .unwrap();
    db.execute(
        link,
        params!["l00000000000002", "https://e.org/b", "", 0, 1, time(now() - DAY), "legacy"],
    )
    .unwrap();
    db.execute(
        "INSERT INTO fetcher_router VALUES ('r1', 'www.e.org', 'simple_http'), ('r2', 'spa.org', 'playwright')",
        (),
    )
    .unwrap();
    attempt(&db, 1, "https://e.org/a", "simple_http", "blocked_captcha", now() - DAY);
    db.execute("UPDATE fetcher_attempts SET link = 'l00000000000001'", ()).unwrap();
    let sum = import(&place);
    assert_eq!(
        (&sum["links"], &sum["routes"], &sum["overrides"]),
        (&1.into(), &2.into(), &1.into()),
        "{sum}"
    );
    assert_eq!(place.run(&["export"]).one()["link"], "https://e.org/a");
    let paused = place.run(&["select", "https://e.org/a", "--json"]).one();
    assert_eq!(paused["decision"], "paused", "{paused}");
    let router = sum["router_file"].as_str().unwrap();
    let routed = place
        .run_with_browser(&[
            "select",
            "https://spa.org/x",
            "--mode",
            "legacy",
            "--router",
            router,
            "--json",
        ])
        .one();
    assert_eq!(
        (&routed["decision"], &routed["fetcher"]),
        (&"hard_coded".into(), &"playwright".into()),
        "{routed}"
    );
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
    let (fetchers, errors) = (
        ["simple_http", "playwright", "playwright_stealth"],
        ["", "", "", "blocked_captcha", "timeout"],
    );
    for n in 0..600_u32 {
        let (host, fetcher) = (n % 7, fetchers[(n / 7) as usize % fetchers.len()]);
        let error = errors[(n / 3 + host) as usize % errors.len()];
        let id = attempt(
            &db,
            n,
            &format!("https://h{host}.org/p/{n}.html"),
            fetcher,
            error,
            noon - i64::from(n % 20) * DAY,
        );
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
            assert!(
                (row["success_rate"].as_f64().unwrap() - want.1).abs() < 1e-9,
                "{row} {want:?}"
            );
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
    assert!(
        ran.code == 2 && ran.stderr.contains("database nowhere.db not found"),
        "{}",
        ran.stderr
    );
    place.write(
        "text.db",
        "this is no database, but long enough to look like something else entirely",
    );
    let ran = place.run(&["import", "--pocketbase", "text.db"]);
    assert!(ran.code == 1 && ran.stderr.contains("cannot read text.db"), "{}", ran.stderr);
    Connection::open(place.path("empty.db")).unwrap().execute_batch("CREATE TABLE t (x)").unwrap();
    let ran = place.run(&["import", "--pocketbase", "empty.db"]);
    assert!(ran.code == 2 && ran.stderr.contains("no table fetcher_attempts"), "{}", ran.stderr);
    assert!(!place.data().exists(), "nothing is made for a database that cannot be read");
}

/// Runs an import that has to end by itself, within bounds.
fn refused(place: &TestDir, why: &str) {
    let ran = place.run(&["import", "--pocketbase", "pb_data", "--json"]);
    assert!(ran.code == 1 || ran.code == 2, "{why}: {} {}", ran.code, ran.stderr);
    assert!(ran.stderr.contains(why), "{why}: {}", ran.stderr);
}

/// Each of these files has a few kilobytes. The views took hours or gigabytes.
#[test]
fn only_ordinary_tables_are_read() {
    let columns =
        "'a' AS id, 'https://e.org/' AS url, 'mine' AS fetcher, 1 AS success, '' AS attempted_at";
    let endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)";
    let doubled: String = (1..40)
        .map(|n| format!("CREATE VIEW v{n} AS SELECT a.* FROM v{} a, v{} b;", n - 1, n - 1))
        .collect();
    for (sql, why) in [
        (format!("CREATE VIEW fetcher_attempts AS {endless} SELECT {columns} FROM n;"), "is a view"),
        (format!("CREATE VIEW Fetcher_Attempts AS SELECT {columns}, hex(zeroblob(900000000)) AS link;"), "is a view"),
        (
            format!("CREATE VIEW v0 AS SELECT {columns}; {doubled} CREATE VIEW fetcher_attempts AS SELECT * FROM v39;"),
            "is a view",
        ),
        (
            "CREATE VIRTUAL TABLE fetcher_attempts USING fts5(id, url, fetcher, success, attempted_at);".to_owned(),
            "virtual table",
        ),
        (
            "CREATE TABLE fetcher_attempts (id TEXT PRIMARY KEY, url, fetcher, success, attempted_at) WITHOUT ROWID;"
                .to_owned(),
            "without row numbers",
        ),
    ] {
        let place = TestDir::new();
        std::fs::create_dir(place.path("pb_data")).unwrap();
        Connection::open(place.path("pb_data/data.db")).unwrap().execute_batch(&sql).unwrap();
        refused(&place, why);
    }
    for table in ["links", "fetcher_router", "attempt_heuristics"] {
        let place = TestDir::new();
        let db = database(&place);
        let columns = db.prepare(&format!("SELECT * FROM {table}")).unwrap();
        let names: Vec<String> =
            columns.column_names().map(|name| format!("'a' AS {name}")).collect();
        drop(columns);
        db.execute_batch(&format!(
            "DROP TABLE {table}; CREATE VIEW {table} AS {endless} SELECT {} FROM n;",
            names.join(", ")
        ))
        .unwrap();
        refused(&place, "is a view");
    }
}

/// Columns, triggers and constraints that run code of the file.
#[test]
fn a_table_with_code_in_it_is_read_within_the_limits() {
    let with_value = |bytes: u32| {
        let place = TestDir::new();
        std::fs::create_dir(place.path("pb_data")).unwrap();
        let db = Connection::open(place.path("pb_data/data.db")).unwrap();
        db.execute_batch(&format!(
            "CREATE TABLE fetcher_attempts (
            id TEXT, url TEXT, fetcher TEXT, success BOOLEAN, attempted_at TEXT,
            link TEXT AS (hex(zeroblob({bytes}))), CHECK (length(hex(zeroblob(1000000 * success))) >= 0));
            CREATE TRIGGER t AFTER INSERT ON fetcher_attempts WHEN new.success = 7 BEGIN DELETE FROM fetcher_attempts; END;"
        ))
        .unwrap();
        let row = "INSERT INTO fetcher_attempts VALUES ('a00000000000001', 'https://e.org/', 'playwright', 1, ?1)";
        db.execute(row, params![time(now() - DAY)]).unwrap();
        place
    };
    let sum = import(&with_value(1_000));
    assert_eq!((&sum["imported"], &sum["failed"]), (&1.into(), &0.into()), "{sum}");
    refused(&with_value(9_000_000), "too big");
}

/// A row of one table that belongs to every row of the other.
#[test]
fn a_join_that_multiplies_its_rows_ends() {
    let place = TestDir::new();
    let db = database(&place);
    db.execute_batch(
        "DROP TABLE fetcher_attempts; DROP TABLE attempt_heuristics;
        CREATE TABLE fetcher_attempts (id, url, fetcher, success, attempted_at);
        CREATE TABLE attempt_heuristics (attempt, heuristic_type, heuristic_value);
        WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000)
        INSERT INTO fetcher_attempts SELECT 'a', 'https://e.org/', 'mine', 1, '2026-01-01 00:00:00.000Z' FROM n;
        WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000)
        INSERT INTO attempt_heuristics SELECT 'a', 'k', 'v' FROM n;",
    )
    .unwrap();
    refused(&place, "an id more than once");
}

/// A page that is its own child, and a value whose pages lead in a circle.
#[test]
fn damaged_pages_are_refused() {
    let place = TestDir::new();
    let db = database(&place);
    for n in 0..3000 {
        attempt(
            &db,
            n,
            &format!("https://e.org/{n}?{}", "x".repeat(300)),
            "simple_http",
            "",
            now(),
        );
    }
    let long = format!("https://e.org/long?{}", "x".repeat(20_000));
    attempt(&db, 9999, &long, "simple_http", "", now());
    let pages = |sql: &str| -> Vec<usize> {
        let mut found = db.prepare(sql).unwrap();
        let found = found.query_map((), |row| row.get::<_, i64>(0)).unwrap();
        found.map(|page| page.unwrap() as usize).collect()
    };
    let root = pages("SELECT rootpage FROM sqlite_schema WHERE name = 'fetcher_attempts'")[0];
    let size = pages("PRAGMA page_size")[0];
    drop(db);
    let file = place.path("pb_data/data.db");
    let sound = std::fs::read(&file).unwrap();
    let at = (root - 1) * size;
    assert_eq!(sound[at], 5, "an interior page");
    let mut circle = sound.clone();
    // The right-most child.
    circle[at + 8..at + 12].copy_from_slice(&u32::try_from(root).unwrap().to_be_bytes());
    // An overflow page begins with the number of the next one, and here is full of `x`.
    let mut loops = sound.clone();
    let overflow = (1..sound.len() / size).find(|page| {
        let page = &sound[page * size..(page + 1) * size];
        page[4..].iter().all(|byte| *byte == b'x')
    });
    let overflow = overflow.unwrap();
    loops[overflow * size..overflow * size + 4]
        .copy_from_slice(&u32::try_from(overflow + 1).unwrap().to_be_bytes());
    for (what, bytes) in
        [("circle", circle), ("loop", loops), ("half", sound[..sound.len() / 2].to_vec())]
    {
        std::fs::write(&file, bytes).unwrap();
        let ran = place.run(&["import", "--pocketbase", "pb_data", "--json"]);
        assert_eq!(ran.code, 1, "{what}: {}", ran.stderr);
        assert!(ran.stderr.contains("cannot read"), "{what}: {}", ran.stderr);
    }
    std::fs::write(&file, sound).unwrap();
    assert_eq!(import(&place)["imported"], 3001);
}
