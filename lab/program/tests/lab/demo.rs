//! `demo`: it learns, shows its dashboard, and keeps what it learned only where it is told to.

use fetchwise_testsite::poll::found;

use crate::support::{ask, command, lines, run, send_signal, wait_for};

#[test]
fn the_demo_learns_and_discards_everything() {
    let folder = tempfile::tempdir().unwrap();
    let ran = run(&folder, &["demo", "--rounds", "9", "--no-browser", "--json"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let lines = ran.json();
    let of = |name: &str| lines.iter().filter(|line| line["place"] == name).collect::<Vec<_>>();
    let library = of("library");
    assert_eq!(
        (library.len(), library[0]["source"].as_str(), library[8]["source"].as_str()),
        (9, Some("probe"), Some("learned"))
    );
    assert_eq!(of("barracks")[8]["error_type"].as_str(), Some("paused"));
    assert_eq!(of("gallery")[0]["error_type"].as_str(), Some("wrong_tool"));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn the_demo_begins_with_what_it_kept_in_a_data_directory() {
    let folder = tempfile::tempdir().unwrap();
    let demo = ["demo", "--rounds", "9", "--no-browser", "--json", "--data-dir", "data"];
    for source in ["probe", "learned"] {
        let ran = run(&folder, &demo);
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        let lines = ran.json();
        let first = lines.iter().find(|line| line["place"] == "library").unwrap();
        assert_eq!(first["source"].as_str(), Some(source), "{first}");
    }
}

#[test]
fn the_demo_serves_its_dashboard_until_it_is_ended() {
    let folder = tempfile::tempdir().unwrap();
    let demo = ["demo", "--plain", "--serve", "--rounds", "3", "--no-browser"];
    let mut child = command(&folder, &demo).spawn().unwrap();
    let said = lines(child.stderr.take().unwrap());
    let line = wait_for(&said, "http://");
    let address = format!("http://{}", line.split("http://").nth(1).unwrap().trim_end_matches('/'));
    let shown = lines(child.stdout.take().unwrap());
    wait_for(&said, "the dashboard stays at");
    assert!(ask("GET", &format!("{address}/"), "").contains("<title>"));
    let board = |path: &str| {
        serde_json::from_str::<serde_json::Value>(&ask("GET", &(address.clone() + path), ""))
            .unwrap()
    };
    let all = found("the dashboard shows the attempts of the log", || {
        let all = board("/v1/dashboard?range=15m");
        if all["complete"] == true { Ok(all) } else { Err(all) }
    });
    assert!(all["all"]["delivered"].as_u64().unwrap() >= 9, "{all}");
    assert_eq!(all["all"]["attempts"], board("/v1/stats")[0]["attempts"]);
    let explained = board("/v1/explain?url=http%3A%2F%2F127.0.0.2%2F");
    assert_eq!(explained["fetcher"], "direct_access", "{explained}");
    send_signal(&child, "-INT");
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert!(shown.iter().any(|line| line.contains("library")), "the table");
    assert_eq!(
        std::fs::read_dir(folder.path()).unwrap().count(),
        0,
        "what was learned is thrown away"
    );
}
