//! Responses made of parts at random, from a fixed seed, and what browsers read in them: heads,
//! content codings and cookies. Each expectation is written down here from the standards, without
//! the code that it is about.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_compression::tokio::write::{BrotliEncoder, GzipEncoder, ZlibEncoder, ZstdEncoder};
use fetchwise::fetch::{FetchError, Response};
use tokio::io::AsyncWriteExt;

use super::harness::*;

const SEED: u64 = 0x6665_7463_6877_6973;

/// Numbers without a pattern, the same at each run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, sides: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % sides
    }

    fn of<'a, T: ?Sized>(&mut self, choices: &[&'a T]) -> &'a T {
        choices[self.below(choices.len())]
    }
}

/// Fetches the responses of a server that answers `/n` with the n-th one and closes the connection.
async fn fetched(wires: Vec<Vec<u8>>) -> Vec<Result<Response, FetchError>> {
    let wires = Arc::new(wires);
    let count = wires.len();
    let server = Server::raw(move |mut stream| {
        let wires = Arc::clone(&wires);
        async move {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                match tokio::io::AsyncReadExt::read_u8(&mut stream).await {
                    Ok(byte) => head.push(byte),
                    Err(_) => return,
                }
            }
            let path = String::from_utf8_lossy(&head)
                .split(' ')
                .nth(1)
                .map(str::to_owned)
                .unwrap_or_default();
            let Some(wire) = path.trim_matches('/').parse().ok().and_then(|n: usize| wires.get(n))
            else {
                return;
            };
            let _ = stream.write_all(wire).await;
            let _ = stream.shutdown().await;
            read_to_close(&mut stream).await;
        }
    })
    .await;
    let (fetcher, limits) = (fetcher(), limits());
    let mut results = Vec::new();
    for n in 0..count {
        results.push(get_with(&fetcher, &server.url(&format!("/{n}")), &limits).await);
    }
    results
}

/// The body that browsers read, and whether it is complete; none for an error.
type Expected = Option<(Vec<u8>, bool)>;

/// Returns a head of parts at random, and what browsers make of it before `body` and the end of the
/// connection.
fn random_head(dice: &mut Dice, body: &[u8]) -> (Vec<u8>, Expected) {
    let end = dice.of(&["\r\n", "\r\n", "\n", "\r\r\n"]);
    let before = dice.of(&["", "", "", "\r\n", "\n\n"]);
    let status = dice.of(&[
        "HTTP/1.1 200 OK",
        "HTTP/1.1  200 OK",
        "HTTP/1.0 200",
        "HTTP/1.1 200 ",
        "http/1.1 200OK",
    ]);
    let mut head = format!("{before}{status}{end}");
    let mut lengths = Vec::new();
    for _ in 0..dice.below(4) {
        let name =
            dice.of(&["Content-Length", "content-length", "Content-Length ", "CONTENT-LENGTH"]);
        let value = dice.of(&[
            "3",
            "4",
            "4",
            "9",
            "-1",
            "+4",
            "4.0",
            "",
            "x",
            "4, 4",
            "99999999999999999999999",
        ]);
        head += &format!("{name}: {value}{end}");
        lengths.extend(value.split(',').map(|value| value.trim().to_owned()));
    }
    if dice.below(3) == 0 {
        head += &format!(
            "{}{end}",
            dice.of(&["X-Folded: a\r\n b", "X : y", "no colon", "(bad): z", "X: caf\u{e9}"])
        );
    }
    head += if end == "\n" { "\n" } else { "\r\n" };
    let mut number =
        |text: &String| match !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
            true => text.parse::<usize>().ok(),
            false => None,
        };
    let numbers: Vec<Option<usize>> = lengths.iter().map(&mut number).collect();
    let expected = match numbers.first() {
        None => Some((body.to_vec(), true)),
        // None of them counts.
        Some(_) if numbers.iter().all(Option::is_none) => Some((body.to_vec(), true)),
        Some(Some(length)) if numbers.iter().all(|other| *other == Some(*length)) => {
            Some((body[..body.len().min(*length)].to_vec(), *length <= body.len()))
        }
        _ => None,
    };
    (head.into_bytes(), expected)
}

#[tokio::test]
async fn heads_of_any_parts_are_read_as_browsers_read_them() {
    bounded(async {
        let mut dice = Dice(SEED);
        let cases: Vec<_> = (0..600).map(|_| random_head(&mut dice, b"page")).collect();
        let wires = cases.iter().map(|(head, _)| [&head[..], b"page"].concat()).collect();
        for ((head, expected), found) in cases.iter().zip(fetched(wires).await) {
            let found = found.ok().map(|response| {
                assert_eq!(response.status, 200, "{}", head.escape_ascii());
                (body(&response), !response.truncated)
            });
            assert_eq!(&found, expected, "{}", head.escape_ascii());
        }
    })
    .await;
}

async fn encoded(coding: &str, bytes: &[u8]) -> Vec<u8> {
    macro_rules! with {
        ($encoder:ident) => {{
            let mut encoder = $encoder::new(Vec::new());
            encoder.write_all(bytes).await.unwrap();
            encoder.shutdown().await.unwrap();
            encoder.into_inner()
        }};
    }
    match coding {
        "gzip" | "x-gzip" => with!(GzipEncoder),
        "deflate" => with!(ZlibEncoder),
        "br" => with!(BrotliEncoder),
        "zstd" => with!(ZstdEncoder),
        _ => bytes.to_vec(),
    }
}

#[tokio::test]
async fn content_codings_in_any_order_and_spelling_are_undone() {
    bounded(async {
        let mut dice = Dice(SEED ^ 1);
        let (mut wires, mut pages) = (Vec::new(), Vec::new());
        for _ in 0..150 {
            let page = text(1 + dice.below(3000));
            let (mut wire, mut names) = (page.clone(), Vec::new());
            for _ in 0..dice.below(3) {
                let coding = dice.of(&["gzip", "x-gzip", "deflate", "br", "zstd", "identity"]);
                wire = encoded(coding, &wire).await;
                names.push(if dice.below(3) == 0 {
                    coding.to_ascii_uppercase()
                } else {
                    coding.to_owned()
                });
            }
            let label = match dice.below(3) {
                _ if names.is_empty() => String::new(),
                0 => names.iter().map(|name| format!("Content-Encoding: {name}\r\n")).collect(),
                1 => format!("content-encoding: {}\r\n", names.join(",")),
                _ => format!("Content-Encoding:  {} \r\n", names.join(" , ")),
            };
            let length = if dice.below(2) == 0 {
                format!("Content-Length: {}\r\n", wire.len())
            } else {
                String::new()
            };
            wires.push(
                [format!("HTTP/1.1 200 OK\r\n{label}{length}\r\n").as_bytes(), &wire].concat(),
            );
            pages.push((label, page));
        }
        for ((label, page), found) in pages.iter().zip(fetched(wires).await) {
            let response = found.unwrap_or_else(|why| panic!("{label:?}: {why}"));
            assert_eq!((body(&response), response.truncated), (page.clone(), false), "{label:?}");
        }
    })
    .await;
}

/// What a line does to the cookies of a client: the name and the path of a cookie, and what is sent
/// of it, if it is not taken away.
type Change = ((String, &'static str), Option<String>);

/// Returns a `Set-Cookie` line of parts at random, and its effect on what a browser that reads it
/// for `/n/set` sends to `/n/mirror` over plain HTTP (RFC 6265bis, sections 5.6 and 5.7).
fn random_cookie(dice: &mut Dice) -> (String, Option<Change>) {
    let name = dice.of(&["a", "b", "A", " a ", "na me", "", "\u{e9}"]);
    let value = dice.of(&["1", "", " x y ", "\"q\"", "a=b", "caf\u{e9}", "1,2"]);
    let mut line = format!("{name}={value}");
    let (mut path, mut age, mut is_old) = ("", None, false);
    for _ in 0..dice.below(4) {
        let part = dice.of(&[
            "; Path=/",
            "; path=/elsewhere",
            "; Path=",
            ";SECURE",
            "; HttpOnly",
            "; Max-Age=0",
            " ; max-age=600",
            "; Max-Age=soon",
            "; Expires=Thu, 01 Jan 1970 00:00:01 GMT",
            "; expires=Wed, 01-Jan-2095 00:00:01 GMT",
            "; Unknown=1; =; ",
        ]);
        line += part;
        // Of two attributes of a name the last one counts. A loopback address is as good as TLS.
        match part {
            "; Path=/" => path = "/",
            "; path=/elsewhere" => path = "/elsewhere",
            "; Path=" => path = "",
            "; Max-Age=0" => age = Some(0),
            " ; max-age=600" => age = Some(600),
            _ if part.contains("1970") => is_old = true,
            _ if part.contains("2095") => is_old = false,
            _ => {}
        }
    }
    let (name, value) = (name.trim(), value.trim());
    if name.is_empty() && value.is_empty() || path == "/elsewhere" {
        return (line, None);
    }
    let sent = if name.is_empty() { value.to_owned() } else { format!("{name}={value}") };
    let is_gone = age.map_or(is_old, |age| age == 0);
    (line, Some(((name.to_owned(), path), (!is_gone).then_some(sent))))
}

#[tokio::test]
async fn cookies_of_any_parts_are_sent_as_browsers_send_them() {
    bounded(async {
        let mut dice = Dice(SEED ^ 2);
        let cases: Vec<Vec<_>> = (0..300)
            .map(|_| (0..1 + dice.below(2)).map(|_| random_cookie(&mut dice)).collect())
            .collect();
        let lines: Arc<Vec<Vec<String>>> = Arc::new(
            cases
                .iter()
                .map(|case: &Vec<_>| case.iter().map(|(line, _)| line.clone()).collect())
                .collect(),
        );
        let server = Server::http(move |request| {
            let path = request.uri().path();
            let Some(path) = path.strip_suffix("/set") else {
                let cookies =
                    request.headers().get("cookie").map(|value| value.as_bytes().to_vec());
                return response(200, cookies.unwrap_or_default());
            };
            let mut moved = redirect(302, &format!("{path}/mirror"));
            for line in &lines[path.trim_matches('/').parse::<usize>().unwrap()] {
                moved
                    .headers_mut()
                    .append("set-cookie", http::HeaderValue::from_bytes(line.as_bytes()).unwrap());
            }
            moved
        })
        .await;
        let (fetcher, limits) = (fetcher(), limits());
        for (n, case) in cases.iter().enumerate() {
            let mut jar = BTreeMap::new();
            for (cookie, sent) in case.iter().filter_map(|(_, change)| change.as_ref()) {
                match sent {
                    Some(sent) => jar.insert(cookie.clone(), sent.clone()),
                    None => jar.remove(cookie),
                };
            }
            let found =
                get_with(&fetcher, &server.url(&format!("/{n}/set")), &limits).await.unwrap();
            let found = String::from_utf8(body(&found)).unwrap();
            let mut found: Vec<&str> = found.split("; ").filter(|pair| !pair.is_empty()).collect();
            found.sort_unstable();
            let mut expected: Vec<&str> = jar.values().map(String::as_str).collect();
            expected.sort_unstable();
            assert_eq!(
                found,
                expected,
                "{:?}",
                case.iter().map(|(line, _)| line).collect::<Vec<_>>()
            );
        }
    })
    .await;
}
