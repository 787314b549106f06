//! A work queue over real brokers: several programs fetch its links, one is killed, and one is cut
//! off.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use fetchwise_testsite::poll::found_within;
use fetchwise_testsite::program;
use serde_json::{Value, json};

use crate::brokers::Servers;
use crate::proxy::Proxy;

/// A request to the sites: its host, the name of the node, and when it began and ended.
struct Request {
    host: String,
    node: String,
    began: Instant,
    ended: Instant,
}

/// Sites on one port of several addresses, with one page at every path. Their threads end with the
/// process.
struct Sites {
    port: u16,
    hosts: Vec<String>,
    seen: Arc<Mutex<Vec<Request>>>,
}

impl Sites {
    fn start(count: usize) -> Self {
        let (mut port, seen, mut hosts) = (0, Arc::<Mutex<Vec<Request>>>::default(), Vec::new());
        for n in 1..=count {
            let host = format!("127.0.70.{n}");
            let listener = TcpListener::bind((&*host, port)).unwrap();
            port = listener.local_addr().unwrap().port();
            let (seen, name) = (Arc::clone(&seen), host.clone());
            std::thread::spawn(move || {
                for stream in listener.incoming().flatten() {
                    let (seen, name) = (Arc::clone(&seen), name.clone());
                    std::thread::spawn(move || serve(&stream, &name, &seen));
                }
            });
            hosts.push(host);
        }
        Self { port, hosts, seen }
    }

    fn links(&self, count: usize) -> Vec<String> {
        let of = |n: usize| {
            format!("http://{}:{}/{n}.html", self.hosts[n % self.hosts.len()], self.port)
        };
        (0..count).map(of).collect()
    }

    /// Checks that no node asked a host before another one's last request to it had ended.
    fn check_one_node_at_a_time(&self) {
        let seen = self.seen.lock().unwrap();
        let mut by_host: HashMap<&str, Vec<&Request>> = HashMap::new();
        seen.iter().for_each(|request| by_host.entry(&request.host).or_default().push(request));
        for (host, mut requests) in by_host {
            requests.sort_by_key(|request| request.began);
            for pair in requests.windows(2).filter(|pair| pair[0].node != pair[1].node) {
                assert!(
                    pair[0].ended <= pair[1].began,
                    "{host}: {} and {} at once",
                    pair[0].node,
                    pair[1].node
                );
            }
        }
    }
}

fn serve(stream: &TcpStream, host: &str, seen: &Mutex<Vec<Request>>) {
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
    let body = format!(
        "<html><title>A page</title><h1>A page</h1><p>{}</p></html>",
        "some words ".repeat(60)
    );
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    loop {
        let (began, mut node) = (Instant::now(), String::new());
        let mut is_empty = true;
        for line in lines.by_ref().take_while(|line| !line.is_empty()) {
            is_empty = false;
            if let Some(agent) = line.to_ascii_lowercase().strip_prefix("user-agent: ") {
                node = agent.to_owned();
            }
        }
        if is_empty || (&*stream).write_all(format!("{head}{body}").as_bytes()).is_err() {
            return;
        }
        let host = host.to_owned();
        seen.lock().unwrap().push(Request { host, node, began, ended: Instant::now() });
    }
}

struct TestPool {
    folder: tempfile::TempDir,
    servers: Servers,
}

impl TestPool {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), servers: Servers::start(1) }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn command(&self, url: &str, name: &str) -> Command {
        let mut command = program::command(env!("CARGO_BIN_EXE_fetchwise"), self.folder.path());
        command.env("FETCHWISE_FLEET", url);
        command.arg("--data-dir").arg(self.path(name)).arg("--json");
        command
    }

    fn run(&self, words: &[&str]) -> Output {
        self.command(&self.servers.urls()[0], "operator").args(words).output().unwrap()
    }

    fn enqueue(&self, links: &[String]) -> Value {
        std::fs::write(self.path("links.txt"), links.join("\n")).unwrap();
        last(&self.run(&["fleet", "enqueue", "--queue", "crawl", "links.txt"]))
    }

    /// Starts a node that fetches from the queue, with its name as user agent.
    fn start(&self, url: &str, name: &str, rate: f64) -> Node {
        self.start_with(url, name, rate, &[])
    }

    fn start_with(&self, url: &str, name: &str, rate: f64, options: &[&str]) -> Node {
        let config = format!(
            "[http]\nuser_agent = \"{name}\"\n[pace]\nmode = \"fixed\"\ninitial_rate = {rate}\nmax_rate = 1000.0\n"
        );
        std::fs::write(self.path(&format!("{name}.toml")), config).unwrap();
        let results = self.path(&format!("{name}.jsonl"));
        let words = [
            "fetch",
            "--queue",
            "crawl",
            "--allow-private-network",
            "--no-browser",
            "--robots",
            "ignore",
        ];
        let child = self
            .command(url, name)
            .args(words)
            .args(options)
            .args(["--config", &format!("{name}.toml")])
            .stdout(File::create(&results).unwrap())
            .stderr(File::create(self.path(&format!("{name}.err"))).unwrap())
            .spawn()
            .unwrap();
        Node { child, results }
    }
}

struct Node {
    child: Child,
    results: PathBuf,
}

impl Node {
    fn count(&self) -> usize {
        std::fs::read(&self.results).unwrap().iter().filter(|byte| **byte == b'\n').count()
    }

    /// Waits for its end.
    fn finish(&mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn last(output: &Output) -> Value {
    let text = String::from_utf8_lossy(&output.stdout);
    let said = String::from_utf8_lossy(&output.stderr);
    serde_json::from_str(text.lines().last().unwrap_or_default())
        .unwrap_or_else(|error| panic!("{error}: {said}"))
}

fn wait_for(what: &str, mut is_met: impl FnMut() -> bool) {
    found_within(
        Duration::from_secs(3_000),
        what,
        || if is_met() { Ok(()) } else { Err("not yet") },
    );
}

/// Returns the results of a node by URL: for each, whether it is marked. A killed node may leave
/// half a line.
fn add_results(path: &Path, results: &mut BTreeMap<String, Vec<bool>>) {
    for line in std::fs::read_to_string(path)
        .unwrap()
        .split_inclusive('\n')
        .filter(|line| line.ends_with('\n'))
    {
        let result: Value = serde_json::from_str(line).unwrap();
        assert_eq!(result["success"], true, "{result}");
        let url = result["url"].as_str().unwrap().to_owned();
        results.entry(url).or_default().push(result["redelivered"].as_bool().unwrap());
    }
}

/// Three nodes fetch `count` links; one of them is killed, another one is cut off from the broker
/// for a minute.
fn killed_and_cut_off(count: usize, rate: f64) {
    if !crate::brokers::is_available() {
        return;
    }
    let (pool, sites) = (TestPool::new(), Sites::start(12));
    let links = sites.links(count);
    let enqueued = pool.enqueue(&links);
    assert_eq!(
        (enqueued["enqueued"].as_u64(), enqueued["invalid"].as_u64()),
        (Some(count as u64), Some(0))
    );
    let (proxy, url) = (Proxy::start(pool.servers.ports()), pool.servers.urls()[0].clone());
    let begun = Instant::now();
    let mut nodes = [("one", &url), ("two", &proxy.urls()[0]), ("three", &url)]
        .map(|(name, url)| pool.start(url, name, rate));
    let total = |nodes: &[Node]| nodes.iter().map(Node::count).sum::<usize>();
    wait_for("each node fetches links", || nodes.iter().all(|node| node.count() > count / 50));
    nodes[0].child.kill().unwrap();
    println!("{:.0?}: one is killed at {} of {count} results", begun.elapsed(), total(&nodes));
    proxy.cut(true);
    std::thread::sleep(Duration::from_secs(60));
    println!(
        "{:.0?}: two is connected again at {} of {count} results",
        begun.elapsed(),
        total(&nodes)
    );
    proxy.cut(false);
    let codes = [nodes[1].finish(), nodes[2].finish()];
    println!(
        "{:.0?}: done, {:?} results",
        begun.elapsed(),
        nodes.iter().map(Node::count).collect::<Vec<_>>()
    );
    assert_eq!(codes, [Some(0); 2], "{}", std::fs::read_to_string(pool.path("two.err")).unwrap());
    let mut results = BTreeMap::new();
    nodes.iter().for_each(|node| add_results(&node.results, &mut results));
    assert_eq!(results.len(), count, "every link has a result");
    let twice: Vec<_> = results.iter().filter(|(_, marks)| marks.len() > 1).collect();
    println!("{} links have several results", twice.len());
    for (url, marks) in twice {
        assert_eq!(marks.iter().filter(|is_marked| !**is_marked).count(), 1, "{url}: {marks:?}");
    }
    sites.check_one_node_at_a_time();
}

#[test]
fn every_link_of_a_queue_has_one_result_although_nodes_fail() {
    killed_and_cut_off(10_000, 25.0);
}

#[test]
#[ignore = "takes minutes: make fleet-queue"]
fn every_link_of_a_large_queue_has_one_result_although_nodes_fail() {
    killed_and_cut_off(100_000, 200.0);
}

#[test]
fn a_queue_is_filled_line_by_line_and_emptied_by_its_nodes() {
    if !crate::brokers::is_available() {
        return;
    }
    let (pool, sites) = (TestPool::new(), Sites::start(3));
    let url = pool.servers.urls()[0].clone();
    let missing = pool.command(&url, "early").args(["fetch", "--queue", "crawl"]).output().unwrap();
    assert_eq!(missing.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&missing.stderr).contains("fleet enqueue --queue crawl"));
    let mut links = sites.links(60);
    assert_eq!(pool.enqueue(&links)["enqueued"], 60);
    links.extend([
        "no url".to_owned(),
        "# later".to_owned(),
        "ftp://e.org/".to_owned(),
        sites.links(61)[60].clone(),
    ]);
    let again = pool.run(&["fleet", "enqueue", "--queue", "crawl", "links.txt"]);
    assert_eq!((again.status.code(), last(&again)["duplicates"].as_u64()), (Some(0), Some(60)));
    std::fs::write(pool.path("links.txt"), links.join("\n")).unwrap();
    let mixed = pool.run(&["fleet", "enqueue", "--queue", "crawl", "links.txt"]);
    let sum = last(&mixed);
    assert_eq!(mixed.status.code(), Some(1), "{sum}");
    assert_eq!(
        (sum["enqueued"].as_u64(), sum["duplicates"].as_u64(), sum["invalid"].as_u64()),
        (Some(1), Some(60), Some(2))
    );
    let text = String::from_utf8_lossy(&mixed.stdout).into_owned();
    let numbers: Vec<_> = text
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).unwrap()["line"].as_u64())
        .collect();
    assert_eq!(numbers, [61, 63]);
    let queue = last(&pool.run(&["fleet", "queue", "crawl"]));
    assert_eq!(
        (&queue["left"], &queue["in_progress"], &queue["nodes"]),
        (&61.into(), &0.into(), &json!([]))
    );
    assert!(queue["oldest_at"].as_str().unwrap().starts_with("20"), "{queue}");
    let mut node = pool.start(&url, "node", 50.0);
    assert_eq!(
        node.finish(),
        Some(0),
        "{}",
        std::fs::read_to_string(pool.path("node.err")).unwrap()
    );
    let said = std::fs::read_to_string(pool.path("node.err")).unwrap();
    assert!(said.contains("links of the queue crawl, ") && !said.contains("0 lines"), "{said}");
    let mut results = BTreeMap::new();
    add_results(&node.results, &mut results);
    assert!(results.len() == 61 && results.values().all(|marks| *marks == [false]), "{results:?}");
    // Its sites are free: another node takes them at once.
    assert_eq!(pool.enqueue(&sites.links(70)[61..])["enqueued"], 9);
    let mut other = pool.start(&url, "other", 50.0);
    assert_eq!((other.finish(), other.count()), (Some(0), 9));
}

#[test]
fn an_operator_sees_who_works_on_a_queue_and_empties_it() {
    if !crate::brokers::is_available() {
        return;
    }
    let (pool, sites) = (TestPool::new(), Sites::start(2));
    let missing = pool.run(&["fleet", "queue", "crawl"]);
    assert_eq!(missing.status.code(), Some(1));
    assert_eq!(pool.enqueue(&sites.links(40))["enqueued"], 40);
    // One page of each host in a hundred seconds: the links stay at the node.
    let _node = pool.start(&pool.servers.urls()[0], "node", 0.01);
    let queue = || last(&pool.run(&["fleet", "queue", "crawl"]));
    wait_for("the node has taken links of both sites", || queue()["nodes"][0]["sites"] == 2);
    let seen = queue();
    let node = &seen["nodes"][0];
    assert!(node["present"] == true && node["in_progress"].as_u64().unwrap() > 0, "{seen}");
    assert_eq!(node["in_progress"], seen["in_progress"], "{seen}");
    assert!(seen["left"].as_u64().unwrap() >= seen["in_progress"].as_u64().unwrap(), "{seen}");
    // Without a terminal nobody can be asked.
    let refused = pool.run(&["fleet", "queue", "crawl", "--purge"]);
    assert!(
        refused.status.code() == Some(2)
            && String::from_utf8_lossy(&refused.stderr).contains("--yes")
    );
    assert!(queue()["left"].as_u64().unwrap() > 0);
    let purged = last(&pool.run(&["fleet", "queue", "crawl", "--purge", "--yes"]));
    assert!(purged["purged"].as_u64().unwrap() >= 38, "{purged}");
    assert_eq!((&queue()["left"], &queue()["oldest_at"]), (&0.into(), &Value::Null));
    assert_eq!(
        pool.enqueue(&sites.links(40))["duplicates"],
        40,
        "they are known for an hour, as the manual says"
    );
    assert_eq!(pool.enqueue(&sites.links(42)[40..])["enqueued"], 2);
}

/// Every link that the pace of its host did not admit at once ended as `paused`, and was
/// acknowledged.
#[test]
fn no_link_of_a_queue_is_lost_because_the_run_waits_for_no_pause() {
    if !crate::brokers::is_available() {
        return;
    }
    let (pool, sites) = (TestPool::new(), Sites::start(1));
    assert_eq!(pool.enqueue(&sites.links(12))["enqueued"], 12);
    let mut node = pool.start_with(&pool.servers.urls()[0], "node", 4.0, &["--wait", "0"]);
    assert_eq!(
        node.finish(),
        Some(0),
        "{}",
        std::fs::read_to_string(pool.path("node.err")).unwrap()
    );
    let mut results = BTreeMap::new();
    add_results(&node.results, &mut results);
    assert_eq!(results.len(), 12, "{results:?}");
}

/// A message on a subject that no node reads kept every node of the queue running forever, and no
/// node reported it.
#[test]
fn a_run_ends_with_an_error_if_its_queue_has_messages_that_no_node_reads() {
    if !crate::brokers::is_available() {
        return;
    }
    let (pool, sites) = (TestPool::new(), Sites::start(1));
    assert_eq!(pool.enqueue(&sites.links(3))["enqueued"], 3);
    let link = &sites.links(1)[0];
    // A foreign token, the shard of another site, and no site at all.
    let subjects =
        ["fw.default.q.crawl.00.no=site", "fw.default.q.crawl.99.e=2Eorg", "fw.default.q.crawl.x"];
    let mut broker = TcpStream::connect(("127.0.0.1", pool.servers.ports()[0])).unwrap();
    let messages =
        subjects.map(|subject| format!("PUB {subject} {}\r\n{link}\r\n", link.len())).concat();
    broker
        .write_all(format!("CONNECT {{\"verbose\":false}}\r\n{messages}PING\r\n").as_bytes())
        .unwrap();
    let mut said = BufReader::new(broker).lines().map_while(Result::ok);
    assert!(said.any(|line| line == "PONG"));
    let mut node = pool.start(&pool.servers.urls()[0], "node", 50.0);
    assert_eq!(node.finish(), Some(1));
    let error = std::fs::read_to_string(pool.path("node.err")).unwrap();
    assert!(error.contains("3 messages of the queue cannot be read"), "{error}");
    let mut results = BTreeMap::new();
    add_results(&node.results, &mut results);
    assert_eq!(results.len(), 3, "everything else is fetched");
}
