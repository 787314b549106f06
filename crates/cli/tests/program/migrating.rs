//! The commands of docs/guides/migrating.md for a crawler with a routing table and a database of
//! attempts, one after the other.

use fetchwise_testsite::origin::{Origin, Site};

use crate::pocketbase;
use crate::support::{DAY, TestDir, now};

const PAGE: &str = include_str!("../../../../docs/guides/migrating.md");

/// The commands of the page, in order.
fn commands() -> Vec<Vec<&'static str>> {
    PAGE.lines()
        .filter_map(|line| line.strip_prefix("$ fetchwise "))
        .map(|line| line.split(' ').collect())
        .collect()
}

#[test]
fn a_database_of_attempts_is_migrated_to_learning() {
    let place = TestDir::new();
    let origin = Origin::start([("127.0.0.1", Site::Static)]).unwrap();
    let url = |n: i64| origin.url("127.0.0.1", &format!("/page/{n}"));
    let db = pocketbase::database(&place);
    for n in 0..20 {
        pocketbase::attempt(&db, n, &url(n.into()), "simple_http", "", now() - DAY + i64::from(n));
    }
    db.execute("INSERT INTO fetcher_router VALUES ('r1', '127.0.0.1', 'simple_http')", ()).unwrap();
    let lines = (100..104).map(|n| {
        serde_json::json!({ "url": url(n), "id": format!("l{n:014}") }).to_string() + "\n"
    });
    place.write("urls.jsonl", lines.collect::<String>());

    let commands = commands();
    let names: Vec<&str> = commands.iter().map(|command| command[0]).collect();
    assert_eq!(names, ["import", "stats", "fetch", "rollout", "import", "fetch"]);
    for command in &commands {
        let ran =
            place.command(command).env("FETCHWISE_NETWORK__ALLOW", "127.0.0.0/8").output().unwrap();
        assert!(ran.status.success(), "{command:?}: {}", String::from_utf8_lossy(&ran.stderr));
    }
    assert_eq!(
        origin.hits("127.0.0.1"),
        10,
        "four links and a robots.txt, twice, and nothing more for what was known"
    );
    let attempts = place.run(&["export"]).json();
    assert_eq!(attempts.len(), 28);
    let of_shadow = &attempts[20];
    assert_eq!(
        (&of_shadow["arm"], &of_shadow["shadow_fetcher"]),
        (&"legacy".into(), &"direct_access".into()),
        "{of_shadow}"
    );
    assert_eq!(attempts[27]["source"], "learned", "{}", attempts[27]);
}
