//! `config`: problems of the settings, their values and origins, and that no command shows secrets.

use serde_json::Value;

use crate::support::{Ran, TestDir};

/// Runs `config` without the variable that names this place's data directory.
fn config(place: &TestDir, args: &[&str], variables: &[(&str, &str)]) -> Ran {
    let mut command = place.command(args);
    command.env_remove("FETCHWISE_DATA_DIR").envs(variables.iter().copied());
    Ran::from(command.output().unwrap())
}

fn row<'r>(rows: &'r [Value], key: &str) -> &'r Value {
    rows.iter().find(|row| row["key"] == key).unwrap_or_else(|| panic!("no {key}"))
}

#[test]
fn check_reports_all_problems_at_once_with_their_places() {
    let place = TestDir::new();
    let file = place.write(
        "f.toml",
        "mode = 'learning'\n\n[scoring]\npage_valu = 3\nmax_attempts = 0\n[log]\ndurability = 'synch'\n",
    );
    let ran = config(&place, &["config", "check", &file], &[("FETCHWISE_SPLIT_SHARE", "9")]);
    assert_eq!(ran.code, 2, "{}", ran.stdout);
    let lines: Vec<&str> = ran.stdout.lines().collect();
    assert_eq!(lines.len(), 4, "{}", ran.stdout);
    assert!(lines[0].starts_with("f.toml:4:1: error: unknown field `page_valu`"), "{}", lines[0]);
    assert!(lines[0].ends_with("did you mean `page_value`?"), "{}", lines[0]);
    assert!(
        lines[1].starts_with("f.toml:5:16: error: invalid scoring.max_attempts 0:"),
        "{}",
        lines[1]
    );
    assert!(lines[2].starts_with("f.toml:7:14: error: unknown variant `synch`"), "{}", lines[2]);
    assert!(
        lines[3]
            .starts_with("FETCHWISE_SPLIT_SHARE: error: invalid split_share 9.0: expected 0 to 1"),
        "{}",
        lines[3]
    );

    let json = config(&place, &["config", "check", &file, "--json"], &[]).one();
    assert_eq!(
        (json["ok"].as_bool(), json["problems"].as_array().map(Vec::len)),
        (Some(false), Some(3))
    );
    let first = &json["problems"][0];
    assert_eq!(
        (first["line"].as_u64(), first["column"].as_u64(), first["did_you_mean"].as_str()),
        (Some(4), Some(1), Some("page_value"))
    );
    assert_eq!(
        (first["key"].as_str(), first["source"].as_str()),
        (Some("scoring.page_valu"), Some("file"))
    );

    let broken = place.write("broken.toml", "mode = \n[scoring\n");
    let ran = config(&place, &["config", "check", &broken], &[]);
    assert!(ran.code == 2 && ran.stdout.starts_with("broken.toml:1:"), "{}", ran.stdout);
    assert_eq!(config(&place, &["config", "check", "none.toml"], &[]).code, 2);
}

#[test]
fn check_covers_what_the_settings_name() {
    let place = TestDir::new();
    place.write("routes.csv", "domain,fetcher\na.org,playwrite\n");
    let text = "mode = 'split'\nrouter = 'routes.csv'\nrules = 'none.toml'\n[network]\nallow = ['10.0.0.0/99']\n\
                [[fetcher]]\nname = 'playwright'\n[[fetcher]]\nname = 'x'\ncommand = ['/no/such/program']\n\
                [[prior]]\ntype = 's'\nvalue = 'v'\nfetcher = 'playwrit'\nsuccess_rate = 0.5\n";
    let file = place.write("f.toml", text);
    let ran = config(
        &place,
        &["config", "check", &file],
        &[("FETCHWISE_CHROMIUM", env!("CARGO_BIN_EXE_fetchwise"))],
    );
    assert_eq!(ran.code, 2);
    for part in [
        "f.toml:5: network.allow:",
        "none.toml",
        "routes.csv, line 2: the route of a.org: unknown fetcher \"playwrite\"; did you mean \"playwright\"?",
        "unknown fetcher \"playwrit\"; did you mean \"playwright\"?",
        "warning: fetcher x is unavailable: program /no/such/program not found",
    ] {
        assert!(ran.stdout.contains(part), "{part}: {}", ran.stdout);
    }
    let good = place.write("good.toml", "[log]\nretain_days = 30\n");
    let ran = config(&place, &["config", "check", &good], &[]);
    assert_eq!((ran.code, ran.stdout.as_str()), (0, "good.toml: valid\n"), "{}", ran.stderr);
}

#[test]
fn show_has_the_origin_of_each_value() {
    let place = TestDir::new();
    let file = place.write(
        "f.toml",
        "split_share = 0.25\n[http]\ntimeout = 5\n[log]\nretain_days = 30\n[[fetcher]]\nname = 'direct_access'\n",
    );
    let variables = [
        ("FETCHWISE_LOG__RETAIN_DAYS", "7"),
        ("LEARNING_MODE_ENABLED", "false"),
        ("FETCHWISE_CONFIG", &*file),
    ];
    let args = ["config", "show", "--json", "--data-dir", "here"];
    let rows = config(&place, &args, &variables).json();
    let of = |key: &str| {
        let row = row(&rows, key);
        (
            row["value"].clone(),
            row["source"].as_str().unwrap().to_owned(),
            row["from"].as_str().unwrap().to_owned(),
        )
    };
    let want = |value: Value, source: &str, from: &str| (value, source.to_owned(), from.to_owned());
    assert_eq!(of("split_share"), want(0.25.into(), "file", "f.toml:1"));
    assert_eq!(of("http.timeout"), want(5.into(), "file", "f.toml:3"));
    assert_eq!(of("log.retain_days"), want(7.into(), "environment", "FETCHWISE_LOG__RETAIN_DAYS"));
    assert_eq!(of("mode"), want("legacy".into(), "environment", "LEARNING_MODE_ENABLED"));
    assert_eq!(of("data_dir"), want("here".into(), "flag", "--data-dir"));
    assert_eq!(of("tuning.segment_bytes"), want("64MiB".into(), "default", "default"));
    assert_eq!(of("fetcher.0.cost"), want(1.0.into(), "default", "default"));
    assert_eq!(row(&rows, "log.max_disk_bytes")["variable"], "FETCHWISE_LOG__MAX_DISK_BYTES");
    let changed = config(&place, &["config", "show", "--changed"], &variables);
    assert!(
        !changed.stdout.contains("default\n") && changed.stdout.contains("f.toml:3"),
        "{}",
        changed.stdout
    );
    // The more specific one takes precedence.
    let both = [("LEARNING_MODE_ENABLED", "false"), ("FETCHWISE_MODE", "shadow")];
    let rows = config(&place, &["config", "show", "--json"], &both).json();
    assert_eq!(row(&rows, "mode")["value"], "shadow");
}

#[test]
fn every_default_is_that_of_the_example() {
    let place = TestDir::new();
    let example = config(&place, &["config", "example"], &[]).stdout;
    let is_setting = |rest: &&str| rest.starts_with(|c: char| c == '[' || c.is_ascii_lowercase());
    let text: Vec<&str> = example
        .lines()
        .map(|line| line.strip_prefix('#').filter(is_setting).unwrap_or(line))
        .collect();
    // Keys inside lists have no default.
    let text = text.join("\n").split("[[fetcher]]").next().unwrap().to_owned();
    let all: toml::Table = text.parse().unwrap();
    let mut compared = 0;
    for row in config(&place, &["config", "show", "--json"], &[]).json() {
        let key = row["key"].as_str().unwrap();
        let has_none = [
            "data_dir",
            "http.user_agent",
            "identity.host",
            "pace.host",
            "network.allow",
            "detect.host",
        ]
        .contains(&key);
        if row["note"].is_string() || has_none {
            continue;
        }
        let mut at = Some(&toml::Value::Table(all.clone())).cloned();
        for step in key.split('.') {
            at = at.and_then(|value| value.get(step).cloned());
        }
        let Some(documented) = at else { panic!("the example lacks {key}") };
        let documented: Value = serde_json::to_value(&documented).unwrap();
        assert_eq!(documented, row["value"], "{key}");
        compared += 1;
    }
    assert!(compared > 45, "{compared}");
}

#[test]
fn an_unknown_variable_is_a_warning_with_a_suggestion() {
    let place = TestDir::new();
    let ran = config(
        &place,
        &["config", "show", "--changed"],
        &[("FETCHWISE_LOG__RETAINDAYS", "7"), ("FETCHWISE_TOKEN", "t")],
    );
    assert_eq!(ran.code, 0);
    let want = "warning: the variable FETCHWISE_LOG__RETAINDAYS: unknown setting; did you mean FETCHWISE_LOG__RETAIN_DAYS?\n";
    assert_eq!(ran.stderr, want);
    let wrong =
        config(&place, &["select", "http://e.org/"], &[("FETCHWISE_LOG__RETAIN_DAYS", "long")]);
    assert_eq!(wrong.code, 2);
    assert!(
        wrong
            .stderr
            .contains("the variable FETCHWISE_LOG__RETAIN_DAYS: log.retain_days: invalid type"),
        "{}",
        wrong.stderr
    );
}

#[test]
fn no_command_shows_a_secret() {
    let place = TestDir::new();
    let text = "[[fetcher]]\nname = 'by_proxy'\nproxy = 'socks5://me:hunter2@127.0.0.1:1'\n\
                [[fetcher]]\nname = 'farm'\ncdp = 'ws://me:hunter2@127.0.0.1:1/devtools?token=hunter2'\n\
                [[fetcher]]\nname = 'solver'\nsolver = 'http://me:hunter2@127.0.0.1:1/v1?key=hunter2'\n\
                [[fetcher]]\nname = 'finder'\n[fetcher.search]\nurl = 'http://127.0.0.1:1/?q={url}&key=hunter2'\ntitle = '/t'\n\
                [[fetcher]]\nname = 'archive_proxy'\n[[fetcher.archive.from]]\ntimegate = 'http://me:hunter2@127.0.0.1:1/'\n";
    let file = place.write("f.toml", text);
    let bad = place.write(
        "bad.toml",
        format!(
            "{text}[[fetcher]]\nname = 'z'\nproxy = ['hunter2']\nsolver = 'hunter2'\ncost = -1\n"
        ),
    );
    let data = place.data().display().to_string();
    let [url, solved, found] =
        ["page", "solved", "found"].map(|page| format!("http://127.0.0.1:1/{page}"));
    let mut seen = 0;
    for args in [
        &["config", "show", "--config", &file][..],
        &["config", "show", "--json", "--config", &file],
        &["config", "check", &file],
        &["config", "check", "--json", &bad],
        &["select", "--config", &bad, &url],
        &["fetchers", "--config", &file],
        &["fetchers", "--json", "--config", &file],
        &["explain", "--config", &file, &url],
        &["explain", "--json", "--config", &file, &url],
        &["fetch", "--json", "--config", &file, "--pace", "off", "--allow-private-network", &url],
        &[
            "fetch",
            "--prefer",
            "farm",
            "--config",
            &file,
            "--pace",
            "off",
            "--allow-private-network",
            &url,
        ],
        &[
            "fetch",
            "--prefer",
            "solver",
            "--config",
            &file,
            "--pace",
            "off",
            "--allow-private-network",
            &solved,
        ],
        &[
            "fetch",
            "--prefer",
            "finder",
            "--config",
            &file,
            "--pace",
            "off",
            "--allow-private-network",
            &found,
        ],
        &["export"],
    ] {
        let variables = [
            ("FETCHWISE_DATA_DIR", &*data),
            ("FETCHWISE_FETCHER__FINDER__PROXY", "http://a:hunter2@127.0.0.1:1"),
        ];
        let ran = config(&place, args, &variables);
        seen += ran.stdout.len();
        assert!(
            !ran.stdout.contains("hunter2") && !ran.stderr.contains("hunter2"),
            "{args:?}: {}{}",
            ran.stdout,
            ran.stderr
        );
        assert!(
            args[0] != "fetch" || ran.stderr.contains("0 delivered, 1 failed"),
            "{args:?}: {}",
            ran.stderr
        );
    }
    assert!(seen > 2000, "the commands said something");
    let shown = config(
        &place,
        &["config", "show", "--config", &file],
        &[("FETCHWISE_FETCHER__FINDER__PROXY", "http://a:b@c:1")],
    );
    assert!(shown.stdout.contains("set (from f.toml:3)"), "{}", shown.stdout);
    assert!(
        shown.stdout.contains("set (from FETCHWISE_FETCHER__FINDER__PROXY)"),
        "{}",
        shown.stdout
    );
    for entry in std::fs::read_dir(place.data()).unwrap() {
        let bytes = std::fs::read(entry.unwrap().path()).unwrap_or_default();
        assert!(!bytes.windows(7).any(|window| window == b"hunter2"), "a secret is in the log");
    }
}
