//! Malicious clients, and a well-behaved one alongside them.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use fetchwise_testsite::poll::until_blocking;
use serde_json::json;

use super::server::{Server, attempt, lines, read};

/// Checks that a well-behaved client gets a response.
#[track_caller]
fn is_well(server: &Server) {
    let answer = server.post("/v1/select", &json!({ "urls": ["https://e.org/"] })).of(200);
    assert!(answer[0]["fetcher"].is_string(), "{answer}");
}

fn memory_kb(server: &Server) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.child.id())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Returns the most memory that the server has used.
fn peak_memory_kb(server: &Server) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.child.id())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

fn descriptors(server: &Server) -> usize {
    std::fs::read_dir(format!("/proc/{}/fd", server.child.id())).unwrap().count()
}

/// Begins a request whose body never ends.
fn stall(server: &Server) -> Option<TcpStream> {
    let mut stream = TcpStream::connect(server.address).ok()?;
    let head = format!(
        "POST /v1/attempts HTTP/1.1\r\nHost: {}\r\nContent-Length: 1000\r\n\r\nx",
        server.address
    );
    stream.write_all(head.as_bytes()).ok().map(|()| stream)
}

#[test]
fn many_small_values_take_little_memory() {
    // Two lists of 16 MiB took 3 GB: each element was parsed before they were counted.
    let server = Server::start(&[]);
    let of = |head: &str, element: &str, tail: &str| {
        let count = ((16 << 20) - head.len() - tail.len()) / element.len();
        format!("{head}{}{tail}", element.repeat(count)).into_bytes()
    };
    let objects = "{\"\":0},";
    for (path, body) in [
        ("/v1/visits", of("[", objects, "0]")),
        ("/v1/visits", of("{\"url\":\"https://e.org/\",\"x\":[", objects, "0]}")),
        ("/v1/visits/report", of("{\"reports\":[", objects, "0]}")),
        (
            "/v1/visits/report",
            of("[{\"visit\":\"x\",\"status\":200,\"headers\":[", objects, "0]}]"),
        ),
        ("/v1/select", of("{\"urls\":[", objects, "0]}")),
        ("/v1/select", of("{\"urls\":[],\"tried\":[", "\"\",", "\"\"]}")),
        ("/v1/classify", of("{\"body\":\"x\",\"headers\":[", "[],", "[]]}")),
        ("/v1/attempts", of("", "x\n", "")),
    ] {
        let answer = server.ask("POST", path, &body);
        let is_judged = (200..=422).contains(&answer.status);
        assert!(is_judged, "{path} {}: {answer:?}", String::from_utf8_lossy(&body[..40]));
    }
    let body = of("[", objects, "0]");
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let answer = server.try_ask("POST", "/v1/visits", &body);
                assert!(answer.is_err() || matches!(answer.unwrap().status, 422 | 503));
            });
        }
        is_well(&server);
    });
    let peak = peak_memory_kb(&server);
    println!("{} MB at most", peak >> 10);
    assert!(peak < 300 << 10, "{peak} kB");
    is_well(&server);
}

#[test]
fn connections_have_a_bound_whatever_their_clients_do() {
    // 325 descriptors were open with a bound of 50: a new connection was accepted even if none
    // could make room.
    let server = Server::start(&["--max-connections", "20"]);
    let before = descriptors(&server);
    let mut peak = 0;
    let stalled: Vec<TcpStream> = (0..200)
        .filter_map(|_| {
            let stream = stall(&server);
            peak = peak.max(descriptors(&server));
            stream
        })
        .collect();
    // Those that are being refused keep their descriptor until their client has read why.
    assert!(peak <= before + 20 + 16 + 4, "{before}, then {peak}");
    // A client that sends nothing for a second has to make room, although its request has begun.
    until_blocking("stalled requests make room", || {
        server.try_ask("GET", "/healthz", b"").is_ok_and(|answer| answer.status == 200)
    });
    assert!(descriptors(&server) <= before + 20 + 16 + 4);
    drop(stalled);
}

#[test]
fn invalid_bodies_are_rejected_with_an_error() {
    let server = Server::start(&[]);
    for path in [
        "/v1/select",
        "/v1/visits",
        "/v1/visits/report",
        "/v1/classify",
        "/v1/forget",
        "/v1/links/unpause",
        "/v1/mode",
    ] {
        for body in [
            &b"{"[..],
            b"",
            b"[[[[",
            b"\xff\xfe",
            b"nonsense",
            b"{\"urls\": 5}",
            b"{\"url\": [1]}",
            b"7",
            b"null",
        ] {
            let answer = server.ask("POST", path, body);
            assert!((400..=422).contains(&answer.status), "{path} {body:?}: {answer:?}");
            let said = answer.json();
            assert!(
                said["success"] == false
                    && said["error"].as_str().is_some_and(|words| words.len() > 8),
                "{said}"
            );
        }
    }
    let deep = format!("{{\"urls\": {}{}}}", "[".repeat(100_000), "]".repeat(100_000));
    assert_eq!(server.ask("POST", "/v1/select", deep.as_bytes()).status, 400);
    is_well(&server);
}

#[test]
fn a_body_beyond_the_limit_is_rejected_before_it_is_read() {
    let server = Server::start(&["--max-body", "64KiB"]);
    let long = vec![b' '; 1 << 20];
    assert_eq!(server.ask("POST", "/v1/attempts", &long).of(413)["error_type"], "body_too_large");
    let mut stream = server.connect();
    let head = format!(
        "POST /v1/attempts HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n",
        server.address
    );
    stream.write_all(head.as_bytes()).unwrap();
    let chunk = format!("10000\r\n{}\r\n", "x".repeat(0x10000));
    for _ in 0..64 {
        if stream.write_all(chunk.as_bytes()).is_err() {
            break;
        }
    }
    if let Ok(answer) = read(&mut stream) {
        assert_eq!(answer.status, 413);
    }
    is_well(&server);
}

#[test]
fn an_invalid_or_too_long_head_is_rejected() {
    let server = Server::start(&[]);
    let mut stream = server.connect();
    let _ = stream.write_all(
        format!("GET /v1/explain?url={} HTTP/1.1\r\n\r\n", "x".repeat(200_000)).as_bytes(),
    );
    if let Ok(answer) = read(&mut stream) {
        assert!((400..500).contains(&answer.status), "{answer:?}");
    }
    for nonsense in
        [&b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"[..], b"\0\0\0\0\r\n\r\n", b"GET\r\n\r\n"]
    {
        let mut stream = server.connect();
        let _ = stream.write_all(nonsense);
        let mut left = Vec::new();
        let _ = stream.read_to_end(&mut left);
    }
    is_well(&server);
}

#[test]
fn slow_heads_and_idle_connections_delay_no_other_client() {
    let server = Server::start(&["--max-connections", "100"]);
    let mut slow: Vec<TcpStream> = (0..300)
        .map(|n| {
            let mut stream = server.connect();
            if n % 2 == 0 {
                let _ = stream.write_all(b"GET /healthz HTTP/1.1\r\nX-Slow: ");
            }
            stream
        })
        .collect();
    is_well(&server);
    for stream in &mut slow {
        let _ = stream.write_all(b"a");
    }
    is_well(&server);
    // The oldest ones were closed to make room, whether they had begun a request or not.
    let is_open = |stream: &mut TcpStream| {
        stream.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
        match stream.read(&mut [0; 512]) {
            Ok(read) => read > 0,
            Err(error) => matches!(
                error.kind(),
                std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut
            ),
        }
    };
    until_blocking("they are closed", || !slow.iter_mut().take(100).any(is_open));
}

#[test]
fn ten_thousand_idle_connections_affect_no_other_client() {
    let files = fetchwise::fetch::local_faults::raise_descriptor_limit();
    let wanted = 10_000usize.min(usize::try_from(files).unwrap_or(usize::MAX).saturating_sub(500));
    assert!(wanted >= 500, "this machine lets a process open {files} files only");
    let server = Server::start(&[]);
    let before = memory_kb(&server);
    let idle: Vec<TcpStream> =
        (0..wanted).map(|_| TcpStream::connect(server.address).unwrap()).collect();
    is_well(&server);
    let each = (memory_kb(&server).saturating_sub(before)) as f64 / idle.len() as f64;
    println!("{} idle connections take {each:.1} kB each", idle.len());
    assert!(each < 32.0, "{each} kB for a connection on which nothing has happened");
    drop(idle);
    is_well(&server);
}

#[test]
fn a_client_that_reads_no_responses_affects_no_other() {
    let server = Server::start(&[]);
    let stuck: Vec<TcpStream> = (0..8)
        .map(|_| {
            let mut stream = server.connect();
            stream.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
            let urls: Vec<String> = (0..5000).map(|n| format!("https://h{n}.org/")).collect();
            let body = json!({ "urls": urls }).to_string();
            let head = format!(
                "POST /v1/select HTTP/1.1\r\nHost: {}\r\nContent-Length: {}\r\n\r\n",
                server.address,
                body.len()
            );
            for _ in 0..4 {
                let _ = stream
                    .write_all(head.as_bytes())
                    .and_then(|()| stream.write_all(body.as_bytes()));
            }
            stream
        })
        .collect();
    is_well(&server);
    drop(stuck);
}

#[test]
fn endless_visits_use_limited_memory_and_time_out() {
    let server = Server::start(&["--visit-timeout", "1s", "--max-visits", "25000"]);
    let before = memory_kb(&server);
    let mut begun = 0;
    for call in 0..30 {
        let wishes: Vec<_> =
            (0..1000).map(|n| json!({ "url": format!("https://h{call}-{n}.example/") })).collect();
        let answers = server.post("/v1/visits", &json!(wishes)).of(200);
        begun += answers.as_array().unwrap().iter().filter(|of| of["visit"].is_string()).count();
    }
    let each = (memory_kb(&server).saturating_sub(before)) as f64 / 25_000.0;
    println!("{begun} of 30000 visits begun; {each:.2} kB for each that may be there at once");
    assert!(each < 8.0, "{each} kB");
    is_well(&server);
    // All of them were abandoned: there is room again.
    until_blocking("there is room for a visit", || {
        let answer = server.post("/v1/visits", &json!({ "url": "https://fine.example/" }));
        answer.status == 201 || answer.of(503)["error_type"] != "too_many_visits"
    });
}

#[test]
fn unknown_and_odd_visits_are_not_found() {
    let server = Server::start(&[]);
    for id in [
        "0",
        "00000000000000000000000000000000",
        "../../etc",
        "%00",
        "+0000000000000000000000000000000",
        "zz",
    ] {
        let answer =
            server.post(&format!("/v1/visits/{id}/report"), &json!({ "outcome": "content" }));
        assert_eq!(answer.status, 404, "{id}: {answer:?}");
    }
    is_well(&server);
}

#[test]
fn hostile_text_comes_back_as_text() {
    let server = Server::start(&[]);
    let url = "https://e.org/%3Cscript%3Ealert(1)%3C/script%3E?a=\u{202e}\"'";
    let mut one = attempt(url, "direct_access", true);
    one["link"] = json!("<img src=x onerror=alert(1)>\u{1b}[31m");
    server.ask("POST", "/v1/attempts", &lines(&[one])).of(200);
    let answer = server.post("/v1/select", &json!({ "urls": [url, "<script>alert(1)</script>"] }));
    assert!(
        answer.head.to_ascii_lowercase().contains("content-type: application/json"),
        "{}",
        answer.head
    );
    assert!(answer.head.to_ascii_lowercase().contains("x-content-type-options: nosniff"));
    assert_eq!(answer.json()[0]["url"], url);
}

#[test]
fn too_many_items_in_one_call_are_rejected() {
    let server = Server::start(&[]);
    let urls = vec!["https://e.org/"; 10_001];
    assert_eq!(
        server.post("/v1/select", &json!({ "urls": urls })).of(422)["error_type"],
        "invalid_value"
    );
    let wishes = vec![json!({ "url": "https://e.org/" }); 10_001];
    assert_eq!(server.post("/v1/visits", &json!(wishes)).of(422)["error_type"], "invalid_value");
}
