//! The cost of a crawl of open sites and of sites that admit verified bots or a stealth browser,
//! with an identity and without one.
//!
//! Owns: the two crawls of a testbed. The testbed counts requests and judges pages.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use fetchwise_testsite::benchmark_sites::{BenchmarkOptions, BenchmarkSites, SitePlan};
use fetchwise_testsite::origin::VerifiedBots;
use fetchwise_testsite::submission_server::SubmissionServer;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::support::TestDir;

/// The pages of each site.
const PAGES: u64 = 40;
/// The largest body that the testbed takes, with room for a page.
const BATCH: usize = 900_000;

/// A stealth browser without Chromium: its user agent passes the block pages, and it requests the
/// script of each page, which makes the testbed count a rendered page.
const STEALTH: &str = r#"
import base64, json, re, ssl, sys
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPSConnection
from urllib.parse import urlsplit

trusted = ssl.create_default_context(cafile="ca.pem")

def answer(request):
    url = urlsplit(request["url"])
    connection = HTTPSConnection(url.netloc, context=trusted)
    def get(path):
        connection.request("GET", path, headers={"User-Agent": "Mozilla/5.0 (stealth)"})
        response = connection.getresponse()
        return response, response.read()
    response, body = get(url.path)
    for script in re.findall(rb'src="(/assets/rendered[.]js[?][^"]*)"', body):
        get(script.decode())
    connection.close()
    text = {"body_base64": base64.b64encode(body).decode()}
    line = {"id": request["id"], "status": response.status, "headers": list(response.headers.items()), **text}
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()

with ThreadPoolExecutor(8) as pool:
    for line in sys.stdin:
        request = json.loads(line)
        if "url" in request:
            pool.submit(answer, request)
"#;

/// Returns the body of a response by HTTP/1.0.
fn ask(method: &str, url: &str, body: &str) -> String {
    let url = url::Url::parse(url).unwrap();
    let mut stream = TcpStream::connect((url.host_str().unwrap(), url.port().unwrap())).unwrap();
    write!(
        stream,
        "{method} {} HTTP/1.0\r\nContent-Length: {}\r\n\r\n{body}",
        url.path(),
        body.len()
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer.split_once("\r\n\r\n").unwrap().1.to_owned()
}

/// Creates a key, its directory in `site`, and returns the section `[identity]`.
pub(crate) fn create_identity(place: &TestDir) -> String {
    place.write("c.toml", "[identity]\nkeys = 'keys'\n");
    let init =
        ["identity", "init", "--agent", "https://bot.example", "--name", "ExampleBot", "--json"];
    let section = place.run(&[&init[..], &["--config", "c.toml"]].concat()).one()["config"]
        .as_str()
        .unwrap()
        .to_owned();
    place.write("c.toml", &section);
    assert_eq!(
        place.run(&["identity", "directory", "--out", "site", "--config", "c.toml"]).code,
        0
    );
    section
}

/// The sites of a testbed, as its file has them.
#[derive(Deserialize)]
struct Sites {
    site: Vec<SitePlan>,
}

/// A testbed, and the server that lists its pages and takes those of crawlers.
pub(crate) struct Testbed {
    sites: Arc<BenchmarkSites>,
    submissions: SubmissionServer,
}

impl Testbed {
    /// Starts a testbed of tables `[[site]]`.
    pub(crate) fn start(sites: &str, pages: u32, options: &BenchmarkOptions) -> Self {
        let Sites { site } = toml::from_str(sites).unwrap();
        let sites = Arc::new(BenchmarkSites::start_with(&site, pages, 1, options).unwrap());
        let submissions = SubmissionServer::start(Arc::clone(&sites)).unwrap();
        Self { sites, submissions }
    }

    /// Starts a testbed over https that knows the bot of the directory `site`, and writes `ca.pem`.
    pub(crate) fn over_https(place: &TestDir, sites: &str) -> Self {
        let keys = std::fs::read_to_string(
            place.path("site/.well-known/http-message-signatures-directory"),
        )
        .unwrap();
        let bots = VerifiedBots::from_directory(&keys).unwrap();
        let testbed = Self::start(sites, 30, &BenchmarkOptions { is_https: true, bots });
        place.write("ca.pem", testbed.sites.authority_pem().unwrap());
        testbed
    }

    pub(crate) fn links(&self) -> String {
        ask("GET", &self.submissions.url("/links.txt"), "")
    }

    pub(crate) fn ledger(&self) -> Value {
        serde_json::from_str(&ask("GET", &self.submissions.url("/ledger"), "")).unwrap()
    }

    /// Hands in the pages of the results that are successes.
    pub(crate) fn submit(&self, place: &TestDir, results: &[Value]) {
        let mut batch = String::new();
        for result in results.iter().filter(|result| result["success"] == true) {
            let text = std::fs::read(place.path(result["file"].as_str().unwrap())).unwrap();
            let page = json!({"url": result["url"], "text": String::from_utf8_lossy(&text)});
            if batch.len() > BATCH {
                self.hand_in(&std::mem::take(&mut batch));
            }
            batch += &format!("{page}\n");
        }
        self.hand_in(&batch);
    }

    fn hand_in(&self, batch: &str) {
        let told = ask("POST", &self.submissions.url("/pages"), batch);
        let told: Value = serde_json::from_str(&told).unwrap();
        assert_eq!(told["taken"], batch.lines().count(), "{told}");
    }
}

/// The cost of a crawl by the testbed's ledger.
#[derive(Debug)]
struct CrawlCost {
    good: u64,
    renders: u64,
    per_good_page: f64,
}

/// Crawls `sites` open sites and as many that admit verified bots, and returns the cost.
fn crawl(place: &TestDir, sites: u64, name: &str, config: &str) -> CrawlCost {
    let site =
        |kind: &str| format!("[[site]]\nkind = \"{kind}\"\ncount = {sites}\npages = {PAGES}\n");
    let testbed = Testbed::over_https(place, &(site("static") + &site("verified")));
    let links = place.write("links.txt", testbed.links());
    let config = place.write("crawl.toml", format!("{config}[http]\nca_file = 'ca.pem'\n"));
    let pages = format!("{name}-pages");
    let fetch = [
        "fetch",
        "--json",
        "--config",
        &config,
        "--input",
        &links,
        "--out",
        &pages,
        "--data-dir",
        name,
    ];
    let crawl =
        place.run(&[&fetch[..], &["--allow-network", "127.0.0.0/8", "--pace", "off"]].concat());
    let results = crawl.json();
    assert_eq!(results.len() as u64, 2 * sites * PAGES, "{}", crawl.stderr);
    testbed.submit(place, &results);
    let total = testbed.ledger()["total"].clone();
    let count = |figure: &str| total[figure].as_u64().unwrap();
    let cost = CrawlCost {
        good: count("good"),
        renders: count("renders"),
        per_good_page: count("cost") as f64 / count("good") as f64,
    };
    println!("{name}: {cost:?}, {total}");
    cost
}

/// Asserts that a good page costs at least 10 plain requests without an identity, and at most 1.25
/// with one that signs each request: on `sites` open sites and as many that admit verified bots or
/// a stealth browser of cost 20.
pub(crate) fn assert_that_signing_saves_the_browser(sites: u64) {
    let place = TestDir::new();
    let section = create_identity(&place);
    place.write("stealth.py", STEALTH);
    let fetchers = "[[fetcher]]\nname = 'direct_access'\n[[fetcher]]\nname = 'playwright_stealth'\ncost = 20.0\n\
                    command = ['python3', 'stealth.py']\n";
    let all = 2 * sites * PAGES;

    let unsigned = crawl(&place, sites, "unsigned", fetchers);
    assert!(unsigned.good == all && unsigned.per_good_page >= 10.0, "{unsigned:?}");

    let always =
        format!("{}{fetchers}", section.replacen("[identity]", "[identity]\nmode = 'always'", 1));
    let signed = crawl(&place, sites, "signed", &always);
    assert!(
        signed.good == all && signed.per_good_page <= 1.25 && signed.renders == 0,
        "{signed:?}"
    );
}
