//! Where crawlers meet the town that they are compared on: the links, the ledger, and where pages are handed in.
//!
//! Must not know what makes a page good.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use serde_json::json;

use crate::benchmark_sites::{Benchmark, HandedIn};
use crate::pages::escape_html;
use crate::services::{Asked, Reply, Service};

/// The town hall, on a free port of 127.0.0.1. Dropping it closes it.
///
/// | request | answer |
/// |---|---|
/// | `GET /` | a page of all links |
/// | `GET /links.txt` | the same, a line each |
/// | `GET /ledger` | the [`Ledger`](crate::benchmark_sites::Ledger) as JSON |
/// | `POST /pages` | takes pages: a JSON object of `url` and `text` a line; 1 MiB at most, so in batches |
#[derive(Debug)]
pub struct Hall(Service);

impl Hall {
    /// Opens it.
    ///
    /// # Errors
    /// When there is no port, or no thread for it.
    pub fn open(town: Arc<Benchmark>) -> io::Result<Self> {
        Service::start(IpAddr::V4(Ipv4Addr::LOCALHOST), move |asked| answer(&town, asked)).map(Self)
    }

    /// The URL of `path`, which begins with `/`.
    pub fn url(&self, path: &str) -> String {
        self.0.url(path)
    }
}

fn answer(town: &Benchmark, asked: &Asked) -> Reply {
    let path = asked.target.split('?').next().unwrap_or_default();
    match (asked.method.as_str(), path) {
        ("GET" | "HEAD", "/") => {
            let item = |link: &String| format!("<li><a href=\"{link}\">{link}</a></li>\n", link = escape_html(link));
            let items: String = town.links().iter().map(item).collect();
            let page = format!(
                "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>Links</title></head>\n<body><ul>\n{items}</ul></body></html>\n"
            );
            Reply::status(200).body("text/html; charset=utf-8", page)
        }
        ("GET" | "HEAD", "/links.txt") => {
            let lines: String = town.links().iter().flat_map(|link| [link, "\n"]).collect();
            Reply::status(200).body("text/plain; charset=utf-8", lines)
        }
        ("GET" | "HEAD", "/ledger") => match serde_json::to_vec(&town.ledger()) {
            Ok(ledger) => Reply::status(200).body("application/json", ledger),
            Err(error) => Reply::status(500).body("text/plain", error.to_string()),
        },
        ("POST", "/pages") => {
            let (mut taken, mut wrong) = (0_u32, None);
            for (number, line) in asked.body.split(|byte| *byte == b'\n').enumerate() {
                if line.trim_ascii().is_empty() {
                    continue;
                }
                match serde_json::from_slice::<HandedIn>(line) {
                    Ok(page) => {
                        town.hand_in(&page);
                        taken += 1;
                    }
                    Err(error) => wrong = wrong.or(Some(format!("line {}: {error}", number + 1))),
                }
            }
            let status = if wrong.is_some() { 400 } else { 200 };
            Reply::status(status).body("application/json", json!({"taken": taken, "error": wrong}).to_string())
        }
        _ => Reply::status(404).body("text/plain", "There are /, /links.txt, /ledger, and POST /pages.\n"),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that meets an error has failed")]
mod tests {
    use super::*;
    use crate::benchmark_sites::usual;

    #[test]
    fn links_are_listed_and_pages_taken() {
        let town = Benchmark::start(&usual(), 3, 7).unwrap();
        let get = |path: &str| answer(&town, &Asked { method: "GET".into(), target: path.into(), ..Asked::default() });
        let listed = String::from_utf8(get("/links.txt").body).unwrap();
        assert_eq!(listed.lines().count(), town.links().len());
        assert_eq!(String::from_utf8(get("/").body).unwrap().matches("<li>").count(), town.links().len());
        let post = |body: String| {
            let reply = answer(
                &town,
                &Asked { method: "POST".into(), target: "/pages".into(), body: body.into(), ..Asked::default() },
            );
            (reply.status, serde_json::from_slice::<serde_json::Value>(&reply.body).unwrap())
        };
        let page = json!({"url": town.links()[0], "text": "nothing"}).to_string();
        assert_eq!(post(format!("{page}\n\n{page}\n")).1["taken"], 2);
        let (status, told) = post(format!("{page}\nno page\n"));
        assert_eq!((status, &told["taken"]), (400, &json!(1)));
        assert!(told["error"].as_str().unwrap().starts_with("line 2: "));
        let ledger: serde_json::Value = serde_json::from_slice(&get("/ledger").body).unwrap();
        assert_eq!(ledger["total"]["wrong"], 1);
        assert_eq!(get("/else").status, 404);
    }
}
