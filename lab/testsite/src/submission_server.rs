//! The HTTP server of a benchmark: it lists the links, takes the pages of crawlers, and serves the
//! scores.
//!
//! Must not know: what makes a page good.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use serde_json::json;

use crate::benchmark_sites::{BenchmarkSites, SubmittedPage};
use crate::pages::escape_html;
use crate::services::{Reply, Service, ServiceRequest};

/// The submission server, on a free port of 127.0.0.1. Dropping it stops it.
///
/// | request | response |
/// |---|---|
/// | `GET /` | a page of all links |
/// | `GET /links.txt` | all links, one per line |
/// | `GET /ledger` | the [`Ledger`](crate::benchmark_sites::Ledger) as JSON |
/// | `POST /pages` | takes pages: one JSON object with `url` and `text` per line; at most 1 MiB, so in batches |
#[derive(Debug)]
pub struct SubmissionServer(Service);

impl SubmissionServer {
    /// Starts the server.
    ///
    /// # Errors
    /// Fails when no port is free or no thread can be started.
    pub fn start(sites: Arc<BenchmarkSites>) -> io::Result<Self> {
        Service::start(IpAddr::V4(Ipv4Addr::LOCALHOST), move |request| respond(&sites, request))
            .map(Self)
    }

    /// Returns the URL of `path`, which begins with `/`.
    pub fn url(&self, path: &str) -> String {
        self.0.url(path)
    }
}

fn respond(sites: &BenchmarkSites, request: &ServiceRequest) -> Reply {
    let path = request.target.split('?').next().unwrap_or_default();
    match (request.method.as_str(), path) {
        ("GET" | "HEAD", "/") => {
            let item = |link: &String| {
                format!("<li><a href=\"{link}\">{link}</a></li>\n", link = escape_html(link))
            };
            let items: String = sites.links().iter().map(item).collect();
            let page = format!(
                "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>Links</title></head>\n<body><ul>\n{items}</ul></body></html>\n"
            );
            Reply::status(200).body("text/html; charset=utf-8", page)
        }
        ("GET" | "HEAD", "/links.txt") => {
            let lines: String = sites.links().iter().flat_map(|link| [link, "\n"]).collect();
            Reply::status(200).body("text/plain; charset=utf-8", lines)
        }
        ("GET" | "HEAD", "/ledger") => match serde_json::to_vec(&sites.ledger()) {
            Ok(ledger) => Reply::status(200).body("application/json", ledger),
            Err(error) => Reply::status(500).body("text/plain", error.to_string()),
        },
        ("POST", "/pages") => {
            let (mut accepted, mut problem) = (0_u32, None);
            for (number, line) in request.body.split(|byte| *byte == b'\n').enumerate() {
                if line.trim_ascii().is_empty() {
                    continue;
                }
                match serde_json::from_slice::<SubmittedPage>(line) {
                    Ok(page) => {
                        sites.submit(&page);
                        accepted += 1;
                    }
                    Err(error) => {
                        problem = problem.or(Some(format!("line {}: {error}", number + 1)))
                    }
                }
            }
            let status = if problem.is_some() { 400 } else { 200 };
            Reply::status(status)
                .body("application/json", json!({"taken": accepted, "error": problem}).to_string())
        }
        _ => Reply::status(404)
            .body("text/plain", "There are /, /links.txt, /ledger, and POST /pages.\n"),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that meets an error has failed")]
mod tests {
    use super::*;
    use crate::benchmark_sites::default_plans;

    #[test]
    fn links_are_listed_and_pages_are_taken() {
        let sites = BenchmarkSites::start(&default_plans(), 3, 7).unwrap();
        let get = |path: &str| {
            respond(
                &sites,
                &ServiceRequest {
                    method: "GET".into(),
                    target: path.into(),
                    ..ServiceRequest::default()
                },
            )
        };
        let listed = String::from_utf8(get("/links.txt").body).unwrap();
        assert_eq!(listed.lines().count(), sites.links().len());
        assert_eq!(
            String::from_utf8(get("/").body).unwrap().matches("<li>").count(),
            sites.links().len()
        );
        let post = |body: String| {
            let reply = respond(
                &sites,
                &ServiceRequest {
                    method: "POST".into(),
                    target: "/pages".into(),
                    body: body.into(),
                    ..ServiceRequest::default()
                },
            );
            (reply.status, serde_json::from_slice::<serde_json::Value>(&reply.body).unwrap())
        };
        let page = json!({"url": sites.links()[0], "text": "nothing"}).to_string();
        assert_eq!(post(format!("{page}\n\n{page}\n")).1["taken"], 2);
        let (status, reply) = post(format!("{page}\nno page\n"));
        assert_eq!((status, &reply["taken"]), (400, &json!(1)));
        assert!(reply["error"].as_str().unwrap().starts_with("line 2: "));
        let ledger: serde_json::Value = serde_json::from_slice(&get("/ledger").body).unwrap();
        assert_eq!(ledger["total"]["wrong"], 1);
        assert_eq!(get("/else").status, 404);
    }
}
