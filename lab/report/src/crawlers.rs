//! Crawlers of a whole list, each a program by itself: fetchwise with each kind of output, next to
//! curl, wget2, Scrapy and spider, on the same pages, in turns.
//!
//! A program that is not installed or fails is left out, and the report says why.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::Scale;
use crate::book::{Bound, Section, Unit};
use crate::loopback;
use crate::server::Server;
use crate::text;

/// The maximum processor time of a stored page, in that of curl.
const TARGET: f64 = 1.2;
/// Requests at a time, for programs that have such a setting.
const PARALLEL: &str = "16";
/// The program with which the others are compared.
const CURL: &str = "curl --parallel, files";

/// Scrapy as its tutorial sets it up, with each page in a file.
const SCRAPY: &str = "import scrapy
class Pages(scrapy.Spider):
    name = 'pages'
    def __init__(self, links, folder, **rest):
        super().__init__(**rest)
        self.start_urls, self.folder, self.count = open(links).read().split(), folder, 0
    def parse(self, response):
        self.count += 1
        open(f'{self.folder}/{self.count}', 'wb').write(response.body)
";

/// Returns the command for an empty folder.
type SetUp = Box<dyn Fn(&Path) -> Command>;

/// A program, and its runs.
struct Lane {
    name: &'static str,
    /// The reason if the program is missing, or has failed.
    command: Result<SetUp, String>,
    /// Seconds of the processor, and of the clock, of each run.
    runs: Vec<(f64, f64)>,
    /// What the runs have written, until the end: ext4 searches long for a new file while deleted
    /// ones are fresh.
    written: Vec<TempDir>,
}

impl Lane {
    fn new(
        name: &'static str,
        program: Result<PathBuf, String>,
        set_up: impl Fn(&mut Command, &Path) + 'static,
    ) -> Self {
        let command = program.map(|program| {
            let command = move |folder: &Path| {
                let mut command = Command::new(&program);
                set_up(&mut command, folder);
                command
            };
            Box::new(command) as SetUp
        });
        Self { name, command, runs: Vec::new(), written: Vec::new() }
    }

    /// Runs the program once.
    fn run(&mut self) {
        let Ok(command) = &self.command else { return };
        let folder = tempfile::tempdir().unwrap();
        let mut command = command(folder.path());
        command
            .current_dir(folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let (processor, begun) = (children_time(), Instant::now());
        let status = command.status().unwrap();
        if !status.success() {
            self.runs.clear();
            self.command = Err(format!("is left out: it ended with {status}"));
            return;
        }
        self.runs
            .push(((children_time() - processor).as_secs_f64(), begun.elapsed().as_secs_f64()));
        self.written.push(folder);
    }

    /// Returns the least seconds of the processor, and of the clock.
    fn best(&self) -> Option<(f64, f64)> {
        let least = |of: fn(&(f64, f64)) -> f64| self.runs.iter().map(of).reduce(f64::min);
        Some((least(|run| run.0)?, least(|run| run.1)?))
    }
}

/// Returns the processor time of all child processes that have ended.
fn children_time() -> Duration {
    let stat = fs::read_to_string("/proc/self/stat").unwrap();
    // The name of the program, in parentheses, may contain spaces. Linux counts hundredths of a
    // second.
    let fields: Vec<&str> = stat[stat.rfind(')').unwrap()..].split(' ').collect();
    Duration::from_millis(
        [14, 15].into_iter().map(|field: usize| fields[field].parse::<u64>().unwrap() * 10).sum(),
    )
}

/// Returns a program of this name on the path, or the one at `built`.
fn program(name: &str, built: &Path, remedy: &str) -> Result<PathBuf, String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path = std::env::split_paths(&path).map(|folder| folder.join(name));
    let mut found =
        [built.to_owned()].into_iter().chain(on_path).filter(|program| program.is_file());
    found.next().ok_or_else(|| format!("is left out: {remedy}"))
}

pub(crate) fn measure(scale: Scale) -> Section {
    let mut section = Section::new("Crawlers of a list of pages");
    let (rounds, count) = scale.pick((1, 200), (5, 5_000));
    let server = Server::start();
    let links: Vec<String> = (0..count)
        .map(|n| {
            format!("http://{}:{}/section{}/page-{n}", loopback::address(n), server.port, n % 7)
        })
        .collect();
    let inputs = tempfile::tempdir().unwrap();
    let mut lanes = lanes(inputs.path(), &links);
    for round in 0..rounds {
        eprintln!("  round {round}");
        lanes.iter_mut().for_each(Lane::run);
    }
    describe(&mut section, &lanes, (count, rounds));
    section
}

/// Writes the list for each program, and returns the programs.
fn lanes(inputs: &Path, links: &[String]) -> Vec<Lane> {
    let (list, config, scrapy) =
        (inputs.join("links.txt"), inputs.join("curl.txt"), inputs.join("pages.py"));
    fs::write(&list, links.join("\n")).unwrap();
    let curl_lines =
        links.iter().enumerate().map(|(n, link)| format!("url = \"{link}\"\noutput = \"{n}\"\n"));
    fs::write(&config, curl_lines.collect::<String>()).unwrap();
    fs::write(&scrapy, SCRAPY).unwrap();
    let own = std::env::current_exe().unwrap().with_file_name("fetchwise");
    let peers = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/peers");
    let fetchwise = |name, output: Option<(&'static str, &'static str)>| {
        let list = list.clone();
        let program = program("fetchwise", &own, "cargo build --profile bench -p fetchwise-cli");
        Lane::new(name, program, move |command, _| {
            command.args(["fetch", "--data-dir", "data", "--pace", "off", "--robots", "ignore"]);
            command.args(["--allow-network", "127.0.0.0/8", "-c", PARALLEL, "-i"]).arg(&list);
            command.args(output.into_iter().flat_map(|(option, place)| [option, place]));
        })
    };
    let (wget_list, scrapy_list) = (list.clone(), list.clone());
    let (handed_out, spider) =
        (hand_out(links.join("\n")), peers.join("spider/release/spider-testbed"));
    vec![
        Lane::new(
            CURL,
            program("curl", Path::new(""), "apt-get install curl"),
            move |command, _| {
                command.args(["-s", "--parallel", "--parallel-max", PARALLEL, "-K"]).arg(&config);
            },
        ),
        fetchwise("fetchwise fetch", None),
        fetchwise("fetchwise fetch --out", Some(("--out", "pages"))),
        fetchwise("fetchwise fetch --warc", Some(("--warc", "pages.warc"))),
        Lane::new(
            "wget2, files",
            program("wget2", Path::new(""), "apt-get install wget2"),
            move |command, _| {
                command
                    .args([
                        "-q",
                        "--robots=off",
                        "--force-directories",
                        "--max-threads",
                        PARALLEL,
                        "-i",
                    ])
                    .arg(&wget_list);
            },
        ),
        Lane::new(
            "Scrapy, files",
            program("scrapy", &peers.join("python/bin/scrapy"), "pip install scrapy"),
            move |command, folder| {
                let (links, folder) = (scrapy_list.display(), folder.display());
                command.arg("runspider").arg(&scrapy);
                command.args(["-a", &format!("links={links}"), "-a", &format!("folder={folder}")]);
                for setting in ["CONCURRENT_REQUESTS", "CONCURRENT_REQUESTS_PER_DOMAIN"] {
                    command.args(["-s", &format!("{setting}={PARALLEL}")]);
                }
                command.args(["-s", "LOG_ENABLED=False", "-s", "DOWNLOAD_DELAY=0"]);
            },
        ),
        Lane::new(
            "spider, each page a crawl, in memory",
            program("spider-testbed", &spider, ".ci/peers builds it"),
            move |command, _| {
                command.env("LINKS", &handed_out).env("PAGES", &handed_out);
            },
        ),
    ]
}

/// Serves the list to a program that takes it by HTTP and hands in what it has fetched. Returns the
/// address.
fn hand_out(list: String) -> String {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = format!("http://{}/", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut request = BufReader::new(stream.unwrap());
            let (mut line, mut length) = (String::new(), 0);
            while request.read_line(&mut line).is_ok_and(|read| read > 2) {
                if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                    length = value.trim().parse().unwrap();
                }
                line.clear();
            }
            let _ = std::io::copy(&mut request.by_ref().take(length), &mut std::io::sink());
            let head = format!(
                "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                list.len()
            );
            let _ = request.get_mut().write_all((head + &list).as_bytes());
        }
    });
    address
}

fn describe(section: &mut Section, lanes: &[Lane], (count, rounds): (usize, usize)) {
    section.text(format!(
        "Each program fetches {} pages of {} KB from {} loopback addresses, {PARALLEL} at a time where it has such a \
         setting, and starts again for each of {rounds} rounds; the least of each figure counts. *Processor* is user and \
         system time of the program with its start. fetchwise judges each page and records each attempt.",
        text::count(count as f64),
        loopback::PAGE_BYTES / 1000,
        loopback::HOSTS,
    ));
    let curl = lanes.iter().find(|lane| lane.name == CURL).and_then(Lane::best);
    let each = |seconds: f64| seconds * 1e9 / count as f64;
    let row = |lane: &Lane| {
        let (processor, elapsed) = lane.best()?;
        let times =
            curl.map_or_else(|| "-".to_owned(), |curl| format!("{:.2}", processor / curl.0));
        Some(vec![
            lane.name.to_owned(),
            text::ns(each(processor)),
            times,
            text::rate(count as f64 / elapsed),
        ])
    };
    section.table(
        &["program", "processor, per page", "times curl", "pages"],
        lanes.iter().filter_map(row).collect(),
    );
    for lane in lanes {
        if let Err(missing) = &lane.command {
            section.text(format!("{} {missing}.", lane.name));
        }
    }
    for lane in lanes.iter().filter(|lane| lane.name.contains(" --")) {
        if let (Some(ours), Some(curl), false) = (lane.best(), curl, lane.name == CURL) {
            let what = format!("`{}` in processor times of `curl --parallel` to files", lane.name);
            section.goal(&what, Unit::Times, ours.0 / curl.0, Bound::AtMost(TARGET));
        }
    }
}
