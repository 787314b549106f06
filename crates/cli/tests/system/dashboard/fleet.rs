//! The dashboard of a server in a fleet: two nodes over a real broker, and the claims of a third
//! one.
//!
//! Owns: the picture of it in the docs, too.

use fetchwise_fleet::NodeId;
use fetchwise_fleet::model::heartbeat::Heartbeat;
use fetchwise_fleet::transport::nats::{Nats, NatsSettings};
use fetchwise_fleet::transport::{Table, Transport};
use fetchwise_testsite::poll::found;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::chrome::{Chrome, PATIENCE};
use super::server::Server;
use super::{CONTRAST, HOSTILE, SHOWN, attempt, focus, kept_to_itself, named, row};
use crate::brokers::Servers;

/// The position that the third node claims to have published; nothing of it exists.
const UNHEARD: u64 = 5;

/// A broker, two nodes that have learned from each other, and the folder of their directories.
struct Fleet {
    place: TempDir,
    brokers: Servers,
    a: Server,
    b: Server,
}

impl Fleet {
    fn start() -> Self {
        let (place, brokers) = (tempfile::tempdir().unwrap(), Servers::start(1));
        let url = brokers.urls()[0].clone();
        let [a, b] = ["a", "b"].map(|name| {
            let server = Server::start_with(&place.path().join(name), None, &["--fleet", &url]);
            let host = format!("{name}.example");
            server.record(
                &(0..40)
                    .map(|n| attempt(&host, n, "direct_access", 1_000, None))
                    .collect::<Vec<_>>(),
            );
            server
        });
        for server in [&a, &b] {
            fleet_once(server, |fleet| {
                fleet["converged"] == true && fleet["peers"][0]["position"].as_u64() >= Some(40)
            });
        }
        Self { place, brokers, a, b }
    }

    /// Adds another node to the table of nodes.
    fn say(&self, name: NodeId, presence: &Heartbeat) {
        let url = self.brokers.urls();
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async {
            let mut settings = NatsSettings::new(url.iter(), "default");
            settings.make = false;
            let nats = Nats::connect(settings).await.unwrap();
            nats.ready(PATIENCE).await.unwrap();
            nats.cells().put(Table::Nodes, &name.to_string(), presence.encode()).await.unwrap();
        });
    }
}

/// Returns the fleet on the dashboard of a server once `is` holds.
#[track_caller]
fn fleet_once(server: &Server, is: impl Fn(&Value) -> bool) -> Value {
    found("the fleet of the dashboard", || {
        let fleet = server.get("/v1/dashboard")["fleet"].clone();
        if is(&fleet) { Ok(fleet) } else { Err(fleet) }
    })
}

fn open(server: &Server, width: u32) -> Chrome {
    let mut chrome = Chrome::start(width, 900);
    chrome.open(&format!("{}/", server.url));
    chrome.until("document.querySelector('#fleet-facts .big')");
    chrome
}

/// Returns the text of a tile of the fleet.
fn tile(chrome: &mut Chrome, name: &str) -> String {
    let expression = format!(
        "[...document.querySelectorAll('#fleet-facts .tile')].find(tile => tile.querySelector('dt').textContent === {})?.querySelector('.big').textContent ?? ''",
        json!(name)
    );
    chrome.eval(&expression).as_str().unwrap().to_owned()
}

#[test]
fn it_shows_the_other_nodes_and_the_broker_as_text() {
    let mut fleet = Fleet::start();
    let (a, other) =
        (&fleet.a, fleet.b.get("/v1/dashboard")["fleet"]["node"].as_str().unwrap().to_owned());
    let half_life_ms = 30 * 86_400_000;
    let third = NodeId::from_bytes([7; 16]);
    let said = Heartbeat {
        epoch: 1,
        position: UNHEARD,
        version: HOSTILE.to_owned(),
        egress: HOSTILE.to_owned(),
        scope: "all".to_owned(),
        half_life_ms,
        ..Heartbeat::default()
    };
    fleet.say(third, &said);
    let known = fleet_once(a, |fleet| {
        fleet["peers"]
            .as_array()
            .is_some_and(|peers| peers.iter().any(|p| p["missing_records"] == UNHEARD))
    });
    let mut chrome = open(a, 1400);
    assert_eq!(
        chrome.eval(
            "document.querySelector('#nav-fleet').hidden || document.querySelector('#fleet').hidden"
        ),
        json!(false)
    );
    let head = chrome.eval("document.querySelector('#fleet-node').textContent");
    assert_eq!(head, json!(format!("Node {} of pool default", known["node"].as_str().unwrap())));
    assert_eq!(
        (tile(&mut chrome, "Broker"), tile(&mut chrome, "Up to date")),
        ("Connected".to_owned(), "Not yet".to_owned())
    );
    assert_eq!(
        (tile(&mut chrome, "Peers present"), tile(&mut chrome, "Withheld")),
        ("2".to_owned(), "0".to_owned())
    );
    let of = |origin: &str| {
        known["peers"].as_array().unwrap().iter().find(|p| p["node"] == origin).unwrap().clone()
    };
    let cells = row(&mut chrome, "fleet-nodes", &other);
    let want = of(&other);
    assert_eq!(
        (cells[1].as_str(), cells[2].as_str()),
        ("Present", env!("CARGO_PKG_VERSION")),
        "{cells:?}"
    );
    assert_eq!(
        (cells[3].clone(), cells[4].as_str()),
        (want["position"].to_string(), "0"),
        "{cells:?}"
    );
    let cells = row(&mut chrome, "fleet-nodes", &third.to_string());
    assert_eq!(
        (cells[2].as_str(), cells[3].as_str(), cells[4].as_str()),
        (SHOWN, "0", "5"),
        "{cells:?}"
    );
    assert!(cells[1].contains(SHOWN), "{cells:?}");
    let text = chrome.eval("document.querySelector('#fleet').innerText");
    let text = text.as_str().unwrap();
    assert!(!text.contains('\u{202e}') && !text.contains('\u{200b}'), "{text}");
    assert_eq!(
        chrome.eval("document.querySelectorAll('#fleet img, #fleet [onerror]').length"),
        json!(0)
    );

    // The page follows changes: the broker goes away, and the node reports that it is alone.
    kept_to_itself(&mut chrome, a);
    fleet.brokers.kill(0);
    chrome.until("document.querySelector('#fleet-facts .big').textContent === 'Disconnected'");
    chrome.until("document.querySelector('#fleet-facts .big').classList.contains('worse')");
    fleet.brokers.revive(0);
    chrome.until("document.querySelector('#fleet-facts .big').textContent === 'Connected'");
    assert!(fleet.place.path().join("a/peers").is_dir());
}

#[test]
fn nodes_work_with_keyboard_screen_reader_and_narrow_screen() {
    let fleet = Fleet::start();
    let mut chrome = open(&fleet.a, 1400);
    let nodes = named(&mut chrome);
    for (role, name) in [
        ("region", "Fleet"),
        ("link", "Fleet"),
        ("table", "Other nodes"),
        ("heading", "Other nodes"),
    ] {
        assert!(nodes.contains(&(role.to_owned(), name.to_owned())), "{role} {name}");
    }
    assert!(nodes.iter().all(|(role, name)| role != "columnheader" || !name.is_empty()));
    assert_eq!(
        chrome.eval("document.querySelector('#fleet .scroll').ariaLabel"),
        json!("Other nodes")
    );
    // The link at the top leads to the section, and the keyboard continues to its table. Pressing a
    // column head sorts, with an announcement.
    chrome.eval("document.querySelector('#nav-fleet a').focus()");
    chrome.key("Enter");
    focus(&mut chrome, "search-other-nodes");
    chrome.key("Tab");
    chrome.key("Tab");
    assert_eq!(chrome.eval("document.activeElement.textContent"), json!("Node"));
    chrome.key("Enter");
    assert_eq!(
        chrome.eval("document.activeElement.closest('th').getAttribute('aria-sort')"),
        json!("ascending")
    );
    for scheme in ["light", "dark"] {
        chrome.prefers(scheme, true);
        chrome.until(&format!("matchMedia('(prefers-color-scheme: {scheme})').matches"));
        let worst = chrome.eval(CONTRAST);
        assert!(worst[0].as_f64().unwrap() >= 4.5, "{scheme}: {worst}");
    }
    for width in [1400, 720, 360, 320] {
        chrome.size(width, 740);
        chrome.until(&format!("innerWidth === {width}"));
        // The charts are drawn again at their new width a moment later.
        chrome.until(&format!("document.documentElement.scrollWidth <= {width}"));
    }
}

#[test]
#[ignore = "writes the pictures of the docs: `make pictures`"]
fn pictures_of_a_fleet() {
    let fleet = Fleet::start();
    let half_life_ms = 30 * 86_400_000;
    let said = Heartbeat {
        epoch: 1,
        version: "0.1.0".to_owned(),
        scope: "all".to_owned(),
        half_life_ms,
        position: UNHEARD,
        ..Heartbeat::default()
    };
    fleet.say(NodeId::random(), &said);
    fleet_once(&fleet.a, |fleet| fleet["peers"].as_array().is_some_and(|peers| peers.len() == 2));
    let mut chrome = open(&fleet.a, 1440);
    chrome.size(1440, 470);
    chrome.prefers("light", true);
    chrome.eval("document.querySelector('#fleet').scrollIntoView()");
    super::pictures::take(&mut chrome, "dashboard-fleet.png");
}
