//! `CommandFetcher` with real children: the Python example against a real server, and shell scripts
//! that misbehave in many ways.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use fetchwise::attempt::error_kind::ErrorKind;
use fetchwise::fetch::address_guard::{AddressGuard, parse_network};
use fetchwise::fetch::command::{CommandFetcher, CommandOptions};
use fetchwise::fetch::dial::{Dialer, LookupFuture, Resolve};
use fetchwise::fetch::{FetchError, Fetcher, Limits, Request, Response};
use fetchwise::response::header;
use fetchwise_testsite::poll::until;
use fetchwise_testsite::ports::RefusingPort;
use http_body_util::Full;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use url::Url;

/// Shell function that reads a request: `$line`, and its `$id`.
const ASK: &str = r#"ask() { IFS= read -r line || exit 0; case $line in *'"cancel"'*) ask ;; esac; id=${line#*'"id":'}; id=${id%%,*}; }; "#;

fn dialer() -> Dialer {
    Dialer::with_resolver(
        AddressGuard::new([parse_network("127.0.0.0/24").unwrap()], false),
        Arc::new(Names),
    )
}

struct Names;

impl Resolve for Names {
    fn lookup<'a>(&'a self, host: &'a str) -> LookupFuture<'a> {
        Box::pin(async move {
            match host {
                "open.test" => Ok(vec!["127.0.0.1".parse().unwrap()]),
                "shut.test" => Ok(vec!["127.0.1.7".parse().unwrap()]),
                "mixed.test" => Ok(vec!["127.0.0.1".parse().unwrap(), "10.0.0.1".parse().unwrap()]),
                _ => Err(std::io::ErrorKind::NotFound.into()),
            }
        })
    }
}

fn shell(script: &str) -> CommandOptions {
    CommandOptions {
        backoff: Duration::from_millis(50),
        ..CommandOptions::new(
            "special",
            ["/bin/sh".to_owned(), "-c".to_owned(), format!("{ASK}{script}")],
        )
    }
}

fn fetcher(options: CommandOptions) -> CommandFetcher {
    CommandFetcher::new(options, dialer())
}

async fn get_with(
    fetcher: &CommandFetcher,
    url: &str,
    limits: &Limits,
) -> Result<Response, FetchError> {
    let url = Url::parse(url).unwrap();
    fetcher.fetch(Request::new(&url, limits)).await
}

async fn get(fetcher: &CommandFetcher, url: &str) -> Result<Response, FetchError> {
    get_with(fetcher, url, &Limits { deadline: Duration::from_secs(600), ..Limits::default() })
        .await
}

/// Returns the error of one fetch by a child that runs `script`.
async fn error_of(script: &str) -> FetchError {
    let fetcher = fetcher(shell(script));
    let error = get(&fetcher, "http://open.test/").await.map(|r| r.body).unwrap_err();
    fetcher.close().await;
    error
}

#[tokio::test]
async fn a_reply_becomes_a_response() {
    let script = r#"while :; do ask; printf '{"id":%s,"status":203,"headers":[["X-Line","a"],["X-Line","b"]],
        "final_url":"http://open.test/end","body":"h\u00e9"}' "$id" | tr -d '\n'; echo; done"#;
    let fetcher = fetcher(CommandOptions { renders: true, ..shell(script) });
    assert_eq!((fetcher.name(), fetcher.renders()), ("special", true));
    for _ in 0..3 {
        let response = get(&fetcher, "http://open.test/start").await.unwrap();
        assert_eq!(response.status, 203);
        assert_eq!(
            response.headers.iter().map(|h| h.value.as_str()).collect::<Vec<_>>(),
            ["a", "b"]
        );
        assert_eq!(response.final_url.as_str(), "http://open.test/end");
        assert_eq!(&response.body.head()[..], "hé".as_bytes());
        assert!(response.duration > Duration::ZERO && !response.truncated);
    }
}

#[tokio::test]
async fn a_signed_request_has_the_headers_of_its_url() {
    use fetchwise::identity::{Agent, KeySource, Signer, SigningKey};

    let (_, pem) = SigningKey::generate().unwrap();
    let now = fetchwise::time::Timestamp::now().as_millis() / 1000;
    let signer =
        Signer::new(Agent::parse("https://bot.example").unwrap(), KeySource::Text(pem), now)
            .unwrap();
    // The program sends its request line back.
    let script = r#"while ask; do
        printf '{"id":%s,"status":200,"body_base64":"%s"}\n' "$id" "$(printf %s "$line" | base64 | tr -d '\n')"; done"#;
    let signer = std::sync::Arc::new(signer);
    let fetcher = fetcher(shell(script)).signer(std::sync::Arc::clone(&signer));
    let mut nonces = std::collections::HashSet::new();
    for (url, is_signed) in [
        ("https://open.test/a", true),
        ("https://open.test/a", true),
        ("http://open.test/a", false),
    ] {
        let response = get(&fetcher, url).await.unwrap();
        let line: serde_json::Value = serde_json::from_slice(response.body.head()).unwrap();
        assert_eq!(line.get("headers").is_some(), is_signed, "{line}");
        if is_signed {
            assert!(
                line["headers"]["Signature-Agent"]
                    .as_str()
                    .unwrap()
                    .contains("https://bot.example/"),
                "{line}"
            );
            assert!(nonces.insert(line["headers"]["Signature-Input"].as_str().unwrap().to_owned()));
        }
    }
    crate::signed::see_wrong_clock(&signer);
    let error = get(&fetcher, "https://open.test/a").await.unwrap_err();
    assert!(error.unavailable && error.local && error.message.contains("cannot sign"), "{error:?}");
}

#[tokio::test]
async fn one_child_replies_in_any_order() {
    // Replies to two requests at a time, the second first, each with its own URL and the child's
    // process id.
    let script = r#"while :; do ask; one=$id; l1=$line; ask; for r in "$id" "$one"; do
        printf '{"id":%s,"status":200,"body":"%s"}\n' "$r" "$$ $r"; done; done"#;
    let fetcher = fetcher(shell(script));
    let fetches = (0..6).map(|_| get(&fetcher, "http://open.test/"));
    let bodies: Vec<String> = futures_util::future::join_all(fetches)
        .await
        .into_iter()
        .map(|r| String::from_utf8(r.unwrap().body.head().to_vec()).unwrap())
        .collect();
    let (pids, ids): (Vec<&str>, Vec<&str>) =
        bodies.iter().map(|b| b.split_once(' ').unwrap()).unzip();
    assert_eq!(ids, ["1", "2", "3", "4", "5", "6"]);
    assert!(pids.iter().all(|pid| *pid == pids[0]), "{pids:?}");
}

#[tokio::test]
async fn no_more_requests_are_in_flight_than_allowed() {
    // Replies only after three requests: with at most two in flight, it never does.
    let script = r#"ask; ask; ask; printf '{"id":%s,"status":200}\n' "$id"; sleep 60"#;
    let fetcher = fetcher(CommandOptions { max_in_flight: 2, ..shell(script) });
    // What is sent to a child that has begun is in its pipe, however long it takes until it reads.
    fetcher.start().await.unwrap();
    let limits = Limits { deadline: Duration::from_millis(500), ..Limits::default() };
    let first = futures_util::future::join_all(
        (0..2).map(|_| get_with(&fetcher, "http://open.test/", &limits)),
    )
    .await;
    assert!(first.iter().all(|r| r.as_ref().is_err_and(|e| e.kind == ErrorKind::Timeout)));
    // Their slots are free again.
    assert_eq!(get(&fetcher, "http://open.test/").await.unwrap().status, 200);
}

#[tokio::test]
async fn a_dead_child_fails_its_requests_with_its_stderr_and_is_restarted() {
    let dir = tempfile::tempdir().unwrap();
    let script = format!(
        r#"echo x >> '{0}/starts'; ask; if [ "$(wc -l < '{0}/starts')" -lt 3 ]; then echo 'out of cheese' >&2; exit 3; fi
        printf '{{"id":%s,"status":200}}\n' "$id"; ask"#,
        dir.path().display()
    );
    let fetcher = fetcher(shell(&script));
    for _ in 0..2 {
        let error = get(&fetcher, "http://open.test/").await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::NetworkError);
        assert!(
            error.message.contains("exit status: 3") && error.message.contains("out of cheese"),
            "{error}"
        );
    }
    assert_eq!(get(&fetcher, "http://open.test/").await.unwrap().status, 200);
    let pid = fetcher.pid().await.unwrap();
    assert_eq!(fetcher.pid().await, Some(pid));
    // Killed by another process, between two requests.
    let process = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    rustix::process::kill_process(process, rustix::process::Signal::KILL).unwrap();
    while fetcher.pid().await.is_some() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(get(&fetcher, "http://open.test/").await.unwrap().status, 200);
}

#[tokio::test]
async fn a_child_that_keeps_dying_is_restarted_less_and_less_often() {
    let dir = tempfile::tempdir().unwrap();
    // The time of its file is the time of a start.
    let script = format!(": > '{}'/$$; exit 1", dir.path().display());
    let fetcher = fetcher(CommandOptions { backoff: Duration::from_millis(400), ..shell(&script) });
    let limits = Limits { deadline: Duration::from_millis(100), ..Limits::default() };
    let starts = || -> Vec<SystemTime> {
        let files = std::fs::read_dir(dir.path()).unwrap();
        let mut starts: Vec<_> =
            files.map(|file| file.unwrap().metadata().unwrap().modified().unwrap()).collect();
        starts.sort();
        starts
    };
    let mut rests = false;
    while starts().len() < 3 || !rests {
        let error = get_with(&fetcher, "http://open.test/", &limits).await.unwrap_err();
        rests |= error.message.contains("restarts in");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let starts = starts();
    for (pair, pause) in starts.windows(2).zip([400, 800, 1600, 3200].map(Duration::from_millis)) {
        // The times of files are those of the kernel's last tick.
        let waited = pair[1].duration_since(pair[0]).unwrap() + Duration::from_millis(20);
        assert!(waited >= pause, "{waited:?} instead of {pause:?}: {starts:?}");
    }
}

#[tokio::test]
async fn an_invalid_line_is_an_error_that_quotes_it() {
    let cases = [
        (
            "ask; echo 'Downloading 42 %'; sleep 60",
            &["not a valid message", "Downloading 42 %"][..],
        ),
        ("ask; echo '{\"status\":200}'; sleep 60", &["missing field `id`"]),
        ("ask; printf '\\377\\376\\000\\n'; sleep 60", &["not a valid message"]),
        (
            "ask; printf '{\"id\":%s,\"status\":\"fine\"}\\n' $id; sleep 60",
            &["invalid response", "invalid type"],
        ),
        ("ask; printf '{\"id\":%s}\\n' $id; sleep 60", &["missing status or error"]),
        (
            "ask; printf '{\"id\":%s,\"status\":200,\"final_url\":\"nowhere\"}\\n' $id; sleep 60",
            &["final URL", "nowhere"],
        ),
        (
            "ask; printf '{\"id\":%s,\"status\":200,\"body_path\":\"gone\"}\\n' $id; sleep 60",
            &["\"gone\"", "No such file"],
        ),
        ("ask; exec 1>&-; sleep 60", &["closed its standard output"]),
    ];
    // Together, since a fetcher gives each child some time to end by itself.
    let errors =
        futures_util::future::join_all(cases.iter().map(|(script, _)| error_of(script))).await;
    for ((script, parts), error) in cases.iter().zip(errors) {
        assert_eq!(error.kind, ErrorKind::NetworkError, "{script}: {error}");
        for part in *parts {
            assert!(error.message.contains(part), "{script}: {error}");
        }
    }
}

#[tokio::test]
async fn a_line_over_the_limit_fails_its_request_only_and_costs_no_memory() {
    let long = r#"ask; printf '{"id":%s,"status":200,"body":"' "$id"; head -c 50000000 /dev/zero | tr '\0' x; echo '"}'; "#;
    let script = format!(r#"{long} ask; printf '{{"id":%s,"status":200}}\n' "$id"; ask"#);
    let fetcher = fetcher(CommandOptions { max_line: 100_000, ..shell(&script) });
    let error = get(&fetcher, "http://open.test/").await.map(|r| r.body.len()).unwrap_err();
    assert_eq!(error.kind, ErrorKind::TooLarge, "{error}");
    assert_eq!(get(&fetcher, "http://open.test/").await.unwrap().status, 200);

    let nameless = "ask; head -c 50000000 /dev/zero | tr '\\0' x; echo; sleep 60";
    let fetcher = self::fetcher(CommandOptions { max_line: 100_000, ..shell(nameless) });
    let error = get(&fetcher, "http://open.test/").await.map(|r| r.body.len()).unwrap_err();
    assert!(error.message.contains("without an id at its beginning"), "{error}");
}

#[tokio::test]
async fn limits_apply_whatever_the_child_sends() {
    let limits = Limits {
        deadline: Duration::from_secs(600),
        max_body: 100,
        max_headers: 50,
        ..Limits::default()
    };
    for script in [
        r#"ask; printf '{"id":%s,"status":200,"body":"%0200d"}\n' "$id" 0; ask"#,
        r#"ask; printf '{"id":%s,"status":200,"headers":{"x":"%0200d"}}\n' "$id" 0; ask"#,
        r#"ask; printf '%0200d' 0 > "$FETCHWISE_SCRATCH/b"; printf '{"id":%s,"status":200,"body_path":"b"}\n' "$id"; ask"#,
    ] {
        let error = get_with(&fetcher(shell(script)), "http://open.test/", &limits)
            .await
            .map(|r| r.body)
            .unwrap_err();
        assert_eq!(
            (error.kind, error.status),
            (ErrorKind::TooLarge, Some(200)),
            "{script}: {error}"
        );
    }
}

#[tokio::test]
async fn the_deadline_is_enforced_and_a_late_reply_is_dropped() {
    // Replies to the first request when the second arrives, then to the second.
    let script = r#"ask; one=$id; ask; printf '{"id":%s,"status":200,"body":"late"}\n' "$one"
        printf '{"id":%s,"status":200,"body":"in time"}\n' "$id"; ask; ask"#;
    let fetcher = fetcher(shell(script));
    fetcher.start().await.unwrap();
    let limits = Limits { deadline: Duration::from_millis(300), ..Limits::default() };
    let error = get_with(&fetcher, "http://open.test/", &limits).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Timeout);
    assert!(error.duration >= Duration::from_millis(300));
    assert_eq!(&get(&fetcher, "http://open.test/").await.unwrap().body.head()[..], b"in time");
}

#[tokio::test]
async fn a_dropped_request_is_cancelled() {
    let dir = tempfile::tempdir().unwrap();
    let script = format!(
        "IFS= read -r a; IFS= read -r b; printf '%s' \"$b\" > '{}/second'; sleep 60",
        dir.path().display()
    );
    let fetcher = fetcher(shell(&script));
    fetcher.start().await.unwrap();
    let limits = Limits { deadline: Duration::from_millis(200), ..Limits::default() };
    assert!(get_with(&fetcher, "http://open.test/", &limits).await.is_err());
    let second = dir.path().join("second");
    until("the child reads the second line", || {
        std::fs::read_to_string(&second).is_ok_and(|text| !text.is_empty())
    })
    .await;
    assert_eq!(std::fs::read_to_string(&second).unwrap(), r#"{"v":1,"cancel":1}"#);
}

#[tokio::test]
async fn a_body_in_the_scratch_folder_is_read_and_removed_and_no_other_file_is() {
    let dir = tempfile::tempdir().unwrap();
    let secret = dir.path().join("secret");
    std::fs::write(&secret, "secret").unwrap();
    let script = format!(
        r#"ask; head -c 3000000 /dev/zero > "$FETCHWISE_SCRATCH/b"; printf '{{"id":%s,"status":200,"body_path":"b"}}\n' "$id"
        ask; ls "$FETCHWISE_SCRATCH" >&2; printf '{{"id":%s,"status":200,"body_path":"{0}"}}\n' "$id"
        ask; ln -s '{0}' "$FETCHWISE_SCRATCH/l"; printf '{{"id":%s,"status":200,"body_path":"l"}}\n' "$id"
        ask; printf '{{"id":%s,"status":200,"body_path":"../.."}}\n' "$id"
        ask; printf '{{"id":%s,"status":200,"body":"%s"}}\n' "$id" "$(ls "$FETCHWISE_SCRATCH")"; ask"#,
        secret.display()
    );
    let fetcher = fetcher(shell(&script));
    let response = get(&fetcher, "http://open.test/").await.unwrap();
    assert_eq!((response.body.len(), response.body.head().len()), (3_000_000, 2 << 20));
    for _ in 0..3 {
        let error = get(&fetcher, "http://open.test/").await.map(|r| r.body).unwrap_err();
        assert!(
            error.kind == ErrorKind::NetworkError && error.message.contains("FETCHWISE_SCRATCH"),
            "{error}"
        );
    }
    assert_eq!(std::fs::read_to_string(&secret).unwrap(), "secret");
    let left = get(&fetcher, "http://open.test/").await.unwrap();
    assert_eq!(&left.body.head()[..], b"l", "the read body was removed");
}

#[tokio::test]
async fn refused_addresses_are_not_sent_to_the_child() {
    let dir = tempfile::tempdir().unwrap();
    let script = format!(
        r#"while :; do ask; echo "$line" >> '{}/seen'; case $line in *ends-shut*) end=http://shut.test/ ;; *) end=http://open.test/x ;;
        esac; printf '{{"id":%s,"status":200,"final_url":"%s"}}\n' "$id" "$end"; done"#,
        dir.path().display()
    );
    let fetcher = fetcher(shell(&script));
    for url in [
        "http://127.0.1.7/",
        "http://[::1]/",
        "http://169.254.169.254/",
        "http://shut.test/",
        // The child may use any of the addresses.
        "http://mixed.test/",
    ] {
        assert_eq!(get(&fetcher, url).await.unwrap_err().kind, ErrorKind::RefusedAddress, "{url}");
    }
    assert_eq!(get(&fetcher, "http://gone.test/").await.unwrap_err().kind, ErrorKind::DnsError);
    assert_eq!(get(&fetcher, "ftp://open.test/").await.unwrap_err().kind, ErrorKind::InvalidUrl);
    assert_eq!(get(&fetcher, "http://open.test/a").await.unwrap().final_url.path(), "/x");
    let error = get(&fetcher, "http://open.test/ends-shut").await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::RefusedAddress, "{error}");
    let seen = std::fs::read_to_string(dir.path().join("seen")).unwrap();
    assert_eq!(seen.lines().count(), 2, "{seen}");
}

#[tokio::test]
async fn an_error_of_the_child_keeps_its_kind() {
    let script = r#"ask; printf '{"id":%s,"error":{"kind":"tls_error","message":"bad certificate"},"status":495}\n' "$id"
        ask; printf '{"id":%s,"error":{"kind":"gremlins","message":"in the works"}}\n' "$id"; ask"#;
    let fetcher = fetcher(shell(script));
    let error = get(&fetcher, "http://open.test/").await.unwrap_err();
    assert_eq!(
        (error.kind, error.message.as_str(), error.status),
        (ErrorKind::TlsError, "bad certificate", Some(495))
    );
    let error = get(&fetcher, "http://open.test/").await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::NetworkError);
    assert!(
        error.message.contains("gremlins") && error.message.contains("in the works"),
        "{error}"
    );
}

#[tokio::test]
async fn a_missing_program_is_a_clear_error() {
    let missing = fetcher(CommandOptions::new("special", ["no-such-program-anywhere", "--flag"]));
    let text = missing.start().await.unwrap_err().to_string();
    assert!(text.contains("no-such-program-anywhere") && text.contains("PATH"), "{text}");
    let error = get(&missing, "http://open.test/").await.unwrap_err();
    assert!(error.kind == ErrorKind::NetworkError && error.message == text, "{error}");
    let nothing = fetcher(CommandOptions::new("special", [] as [&str; 0]));
    assert_eq!(nothing.start().await.unwrap_err().to_string(), "missing program");
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_child_that_ignores_signals_ends_with_the_fetcher() {
    let lives = |pid: u32| {
        std::fs::read_to_string(format!("/proc/{pid}/stat"))
            .is_ok_and(|stat| !stat.contains(") Z "))
    };
    for close in [true, false] {
        let fetcher = fetcher(shell("trap '' TERM INT HUP; while :; do sleep 60; done"));
        fetcher.start().await.unwrap();
        let pid = fetcher.pid().await.unwrap();
        assert!(lives(pid));
        if close {
            fetcher.close().await;
            assert!(!lives(pid));
            let error = get(&fetcher, "http://open.test/").await.unwrap_err();
            assert!(error.message.contains("closed"), "{error}");
        }
        drop(fetcher);
        until("the child ends", || !lives(pid)).await;
    }
}

/// Starts a web site on loopback that counts its requests.
async fn site() -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let count = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&count);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let counter = Arc::clone(&counter);
            let service = service_fn(move |request: hyper::Request<hyper::body::Incoming>| {
                counter.fetch_add(1, Ordering::SeqCst);
                async move {
                    let reply = hyper::Response::builder().header("content-type", "text/html");
                    let reply = match request.uri().path() {
                        "/from" => reply
                            .status(302)
                            .header("location", "/to")
                            .body(Full::new(Bytes::new())),
                        "/loop" => reply
                            .status(302)
                            .header("location", "/loop")
                            .body(Full::new(Bytes::new())),
                        "/long" => reply.body(Full::new(Bytes::from(vec![b'x'; 3_000_000]))),
                        "/missing" => {
                            reply.status(404).body(Full::new(Bytes::from("no such page")))
                        }
                        _ => reply.body(Full::new(Bytes::from("<p>página</p>"))),
                    };
                    Ok::<_, Infallible>(reply.unwrap())
                }
            });
            tokio::spawn(
                hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service),
            );
        }
    });
    (address, count)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_python_example_gets_real_pages() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/command_fetcher.py");
    let Some(python) = fetchwise_testsite::requirements::python() else { return };
    let (address, count) = site().await;
    let refusing = RefusingPort::on(Ipv4Addr::LOCALHOST).unwrap();
    let unused = refusing.address();
    let options = CommandOptions::new("python", [python.into(), script.into_os_string()]);
    let fetcher = fetcher(options);
    let page = get(&fetcher, &format!("http://{address}/from")).await.unwrap();
    assert_eq!((page.status, page.final_url.path()), (200, "/to"));
    assert_eq!(header(&page.headers, "content-type"), Some("text/html"));
    assert_eq!(&page.body.head()[..], "<p>página</p>".as_bytes());
    let long = get(&fetcher, &format!("http://{address}/long")).await.unwrap();
    assert_eq!(long.body.len(), 3_000_000);
    let missing = get(&fetcher, &format!("http://{address}/missing")).await.unwrap();
    assert_eq!((missing.status, &missing.body.head()[..]), (404, &b"no such page"[..]));
    let error = get(&fetcher, &format!("http://{address}/loop")).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::RedirectLoop, "{error}");
    let error = get(&fetcher, &format!("http://{unused}/")).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::NetworkError, "{error}");
    let small = Limits { deadline: Duration::from_secs(600), max_body: 1000, ..Limits::default() };
    let error = get_with(&fetcher, &format!("http://{address}/long"), &small).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::TooLarge, "{error}");

    let before = count.load(Ordering::SeqCst);
    let url = format!("http://{address}/");
    let pages = futures_util::future::join_all((0..20).map(|_| get(&fetcher, &url))).await;
    assert!(pages.iter().all(|page| page.as_ref().is_ok_and(|page| page.status == 200)));
    assert_eq!(count.load(Ordering::SeqCst) - before, 20);
    fetcher.close().await;
}
