//! Limiters of nginx.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use fetchwise_testsite::poll::found;
use fetchwise_testsite::ports::on_a_free_port;
use tempfile::TempDir;

use super::crawl::{Crawl, pages};
use crate::support::TestDir;

/// A running nginx with one limited site.
struct Nginx {
    process: Child,
    dir: TempDir,
    port: u16,
}

/// A line of its access log: the time of a response in seconds, and its status.
struct Line {
    at: f64,
    status: u16,
}

impl Nginx {
    /// Starts one on `host`, with `limits` for the site and `zones` for all.
    fn start(host: &str, zones: &str, limits: &str) -> Self {
        on_a_free_port(host.parse().unwrap(), |address| {
            Self::start_at(host, address.port(), zones, limits)
        })
    }

    /// Starts one on this port; `None` if another process has taken it.
    fn start_at(host: &str, port: u16, zones: &str, limits: &str) -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let here = dir.path().display().to_string();
        let mut page = "<!doctype html><title>Ferries</title><h1>Ferries</h1>".to_owned();
        for n in 0..40 {
            write!(page, "<p>Ferry {n} leaves at noon and comes back in the evening, on every day of the week.</p>")
                .unwrap();
        }
        std::fs::write(dir.path().join("page.html"), page).unwrap();
        let config = format!(
            "daemon off; master_process off; pid {here}/pid; error_log {here}/error.log;\n\
             events {{ worker_connections 256; }}\n\
             http {{\n\
             log_format counted '$msec $status'; access_log {here}/access.log counted; default_type text/html;\n\
             client_body_temp_path {here}/t; proxy_temp_path {here}/t; fastcgi_temp_path {here}/t;\n\
             uwsgi_temp_path {here}/t; scgi_temp_path {here}/t;\n\
             {zones}\n\
             server {{ listen {host}:{port}; root {here}; location / {{ {limits} try_files /page.html =404; }} }}\n\
             }}\n"
        );
        std::fs::write(dir.path().join("nginx.conf"), config).unwrap();
        // From here on, drop ends it.
        let mut nginx = Self { process: run(&here), dir, port };
        let (file, errors) = (nginx.dir.path().join("pid"), nginx.dir.path().join("error.log"));
        let listens = found("nginx listens", || {
            let has_ended = nginx.process.try_wait().unwrap().is_some();
            // It writes its process id once it listens.
            if file.exists() || has_ended { Ok(!has_ended) } else { Err("no process id") }
        });
        let errors = std::fs::read_to_string(errors).unwrap_or_default();
        assert!(
            listens || errors.contains("Address already in use"),
            "nginx does not listen: {errors}"
        );
        listens.then_some(nginx)
    }

    fn log(&self) -> Vec<Line> {
        let text = std::fs::read_to_string(self.dir.path().join("access.log")).unwrap_or_default();
        let line = |line: &str| {
            let (at, status) = line.split_once(' ')?;
            Some(Line { at: at.parse().ok()?, status: status.parse().ok()? })
        };
        text.lines().filter_map(line).collect()
    }

    fn refusals(&self) -> usize {
        self.log().iter().filter(|line| line.status == 429 || line.status == 503).count()
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn run(dir: &str) -> Child {
    let config = format!("{dir}/nginx.conf");
    let mut nginx = Command::new(program());
    nginx.args(["-p", dir, "-c", &config]).stdout(Stdio::null()).stderr(Stdio::null());
    nginx.spawn().expect("nginx is needed here: make nginx installs it")
}

/// Returns the nginx program, which is often outside the PATH.
fn program() -> PathBuf {
    let usual = PathBuf::from("/usr/sbin/nginx");
    if usual.exists() { usual } else { "nginx".into() }
}

const TEN: &str = "limit_req_zone $binary_remote_addr zone=z:1m rate=10r/s;";

#[test]
fn a_leaky_bucket_refuses_little_and_everything_is_delivered() {
    for (host, limits) in [
        ("127.0.60.1", "limit_req zone=z burst=5; limit_req_status 429;"),
        ("127.0.60.2", "limit_req zone=z burst=5 nodelay;"),
        ("127.0.60.7", "limit_req zone=z burst=5 nodelay; limit_req_status 429;"),
    ] {
        let (nginx, place) = (Nginx::start(host, TEN, limits), TestDir::new());
        let crawl = Crawl::run(&place, &pages(&format!("http://{host}:{}", nginx.port), 120), &[]);
        assert_eq!(crawl.delivered(), 120, "{:?} {}", crawl.failures(), crawl.stderr);
        assert!(nginx.refusals() <= 10, "{} refusals: {limits}", nginx.refusals());
    }
}

#[test]
fn a_connection_limit_is_honoured() {
    let host = "127.0.60.3";
    let nginx = Nginx::start(
        host,
        "limit_conn_zone $binary_remote_addr zone=z:1m;",
        "limit_conn z 2; limit_rate 8k;",
    );
    let place = TestDir::new();
    let crawl = Crawl::run(&place, &pages(&format!("http://{host}:{}", nginx.port), 40), &[]);
    assert_eq!(crawl.delivered(), 40, "{:?} {}", crawl.failures(), crawl.stderr);
    assert!(nginx.refusals() <= 5, "{} refusals", nginx.refusals());
}

/// Returns the share of ten requests per second that were served after the first two minutes.
fn share(log: &[Line]) -> f64 {
    let (Some(first), Some(last)) = (log.first(), log.last()) else { return 0.0 };
    let from = first.at + 120.0;
    let served = log.iter().filter(|line| line.at >= from && line.status == 200).count();
    served as f64 / (last.at - from) / 10.0
}

/// Two thousand pages, of which at least three quarters of ten per second must be delivered, and
/// the same again.
fn ten_a_second(host: &str, limits: &str) {
    let (nginx, place) = (Nginx::start(host, TEN, limits), TestDir::new());
    let urls = pages(&format!("http://{host}:{}", nginx.port), 2000);
    let crawl = Crawl::run(&place, &urls, &[]);
    let (first, share) = (nginx.refusals(), share(&nginx.log()));
    println!("{limits} 2000 URLs: {first} refusals, share {share:.2} of 10/s after two minutes");
    assert_eq!(crawl.delivered(), 2000, "{:?}", crawl.failures());
    assert!(first <= 10 && share >= 0.75, "{first} refusals, share {share}");
    let crawl = Crawl::run(&place, &urls, &[]);
    let second = nginx.refusals() - first;
    println!("{limits} the same again: {second} refusals");
    assert_eq!(crawl.delivered(), 2000, "{:?}", crawl.failures());
    assert!(second <= 2, "{second} refusals in the second run");
}

#[test]
#[ignore = "takes eight minutes: make limits"]
fn two_thousand_pages_at_ten_a_second_with_429() {
    ten_a_second("127.0.60.4", "limit_req zone=z burst=5; limit_req_status 429;");
}

#[test]
#[ignore = "takes eight minutes: make limits"]
fn two_thousand_pages_at_ten_a_second_with_503_and_no_delay() {
    ten_a_second("127.0.60.5", "limit_req zone=z burst=5 nodelay;");
}

#[test]
#[ignore = "takes eight minutes: make limits"]
fn two_thousand_pages_at_ten_a_second_with_429_and_no_delay() {
    ten_a_second("127.0.60.7", "limit_req zone=z burst=5 nodelay; limit_req_status 429;");
}

#[test]
#[ignore = "takes some minutes: make limits"]
fn two_thousand_pages_over_two_connections() {
    let host = "127.0.60.6";
    let zone = "limit_conn_zone $binary_remote_addr zone=z:1m;";
    let (nginx, place) =
        (Nginx::start(host, zone, "limit_conn z 2; limit_rate 16k;"), TestDir::new());
    let crawl = Crawl::run(&place, &pages(&format!("http://{host}:{}", nginx.port), 2000), &[]);
    println!("limit_conn 2, 2000 URLs: {} refusals", nginx.refusals());
    assert_eq!(crawl.delivered(), 2000, "{:?}", crawl.failures());
    assert!(nginx.refusals() <= 5, "{} refusals", nginx.refusals());
}
