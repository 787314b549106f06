//! Brokers with TLS, and brokers that admit known keys only: the nodes' side, against real brokers.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use bytes::Bytes;
use fetchwise_fleet::model::node_id::NodeId;
use fetchwise_fleet::transport::nats::{Nats, NatsSettings};
use fetchwise_fleet::transport::{SwapOutcome, Table, Transport, TransportError};
use nkeys::KeyPair;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa};
use serde_json::{Value, json};

use crate::conformance::conforms;
use crate::servers::{self, Servers};

const SOON: Duration = Duration::from_secs(120);

/// A certificate authority.
type Authority = CertifiedIssuer<'static, rcgen::KeyPair>;

fn authority(name: &str) -> Authority {
    let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, name);
    CertifiedIssuer::self_signed(params, rcgen::KeyPair::generate().unwrap()).unwrap()
}

/// Writes a PEM file.
fn write_pem(path: &Path, label: &str, der: &[u8]) {
    let text = STANDARD.encode(der);
    let lines: Vec<&str> =
        text.as_bytes().chunks(64).map(|line| std::str::from_utf8(line).unwrap()).collect();
    fs::write(
        path,
        format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", lines.join("\n")),
    )
    .unwrap();
}

/// A folder with the certificates of a broker and its nodes.
struct Papers(tempfile::TempDir);

impl Papers {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Writes the CA file of an authority.
    fn roots(&self, file: &str, authority: &Authority) -> PathBuf {
        write_pem(&self.path(file), "CERTIFICATE", authority.as_ref().der());
        self.path(file)
    }

    /// Writes a certificate and its key for `names`.
    fn certificate(&self, file: &str, names: &[&str], by: &Authority) -> (PathBuf, PathBuf) {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.distinguished_name.push(DnType::CommonName, file);
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, by).unwrap();
        let paths = (self.path(&format!("{file}.pem")), self.path(&format!("{file}.key")));
        write_pem(&paths.0, "CERTIFICATE", certificate.der());
        write_pem(&paths.1, "PRIVATE KEY", &key.serialize_der());
        paths
    }
}

/// Returns the TLS section of a broker's configuration; with `verify` nodes must present a
/// certificate.
fn tls((certificate, key): &(PathBuf, PathBuf), roots: &Path, verify: bool) -> String {
    format!(
        "tls {{ cert_file: {certificate:?}, key_file: {key:?}, ca_file: {roots:?}, verify: {verify}, timeout: 10 }}"
    )
}

fn settings(servers: &Servers, scheme: &str) -> NatsSettings {
    let urls = servers.urls().into_iter().map(|url| url.replace("nats://", scheme));
    NatsSettings::new(urls, "test")
}

/// Returns the error of a node that cannot connect, once it has tried: until then the error names
/// the address only.
async fn kept_out(settings: NatsSettings) -> TransportError {
    let last = settings.urls.last().unwrap().clone();
    let nats = Nats::connect(settings).await.unwrap();
    let error = failed(&nats, |error| !error.to_string().ends_with(&last)).await;
    assert!(nats.publish(NodeId::random(), "a", Bytes::new()).await.is_err());
    error
}

/// Waits until there is such an error instead of a connection.
async fn failed(nats: &Nats, is_it: impl Fn(&TransportError) -> bool) -> TransportError {
    let trying = async {
        loop {
            let error = nats.ready(Duration::ZERO).await.unwrap_err();
            if is_it(&error) {
                return error;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(SOON, trying).await.expect("such an error")
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_accepts_only_brokers_with_a_trusted_certificate() {
    if !servers::is_available() {
        return;
    }
    let (papers, ours, others) = (Papers::new(), authority("ours"), authority("others"));
    let (roots, other_roots) =
        (papers.roots("ours.pem", &ours), papers.roots("others.pem", &others));
    let broker = papers.certificate("broker", &["127.0.0.1"], &ours);
    let servers = Servers::start_with(1, &tls(&broker, &roots, false));
    let right = NatsSettings { tls_ca_file: Some(roots.clone()), ..settings(&servers, "tls://") };
    let nats = Nats::connect(right.clone()).await.unwrap();
    nats.ready(SOON).await.unwrap();
    conforms(&nats).await;
    // Another authority, or the system's, is not sufficient. Nor is it for a plaintext address,
    // which this broker answers with TLS anyway.
    for wrong in [
        NatsSettings { tls_ca_file: Some(other_roots), ..right.clone() },
        settings(&servers, "tls://"),
        settings(&servers, "nats://"),
    ] {
        let error = kept_out(wrong).await;
        assert!(matches!(error, TransportError::Away(_)), "{error:?}");
    }
    // The certificate of another server.
    let elsewhere = papers.certificate("elsewhere", &["broker.example"], &ours);
    let servers = Servers::start_with(1, &tls(&elsewhere, &roots, false));
    let error =
        kept_out(NatsSettings { tls_ca_file: Some(roots.clone()), ..settings(&servers, "tls://") })
            .await;
    assert!(matches!(error, TransportError::Away(_)), "{error:?}");
    // A node does not talk to a broker without TLS.
    let servers = Servers::start(1);
    kept_out(NatsSettings { tls_ca_file: Some(roots), ..settings(&servers, "tls://") }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_verifies_nodes_admits_one_with_a_certificate() {
    if !servers::is_available() {
        return;
    }
    let (papers, ours, others) = (Papers::new(), authority("ours"), authority("others"));
    let roots = papers.roots("ours.pem", &ours);
    let broker = papers.certificate("broker", &["127.0.0.1"], &ours);
    let servers = Servers::start_with(3, &tls(&broker, &roots, true));
    let with = |certificate| NatsSettings {
        tls_ca_file: Some(roots.clone()),
        certificate,
        ..settings(&servers, "tls://")
    };
    let nats =
        Nats::connect(with(Some(papers.certificate("node", &["node"], &ours)))).await.unwrap();
    nats.ready(SOON).await.unwrap();
    let (node_id, body) = (NodeId::random(), Bytes::from_static(b"facts"));
    nats.publish(node_id, "first", body.clone()).await.unwrap();
    assert_eq!(nats.newest(node_id).await.unwrap(), Some(body));
    kept_out(with(None)).await;
    kept_out(with(Some(papers.certificate("stranger", &["node"], &others)))).await;
    // An unreadable file is reported before any connection.
    let missing = with(Some((papers.path("nothing.pem"), papers.path("nothing.key"))));
    let error = Nats::connect(missing).await.err().unwrap();
    assert!(
        matches!(&error, TransportError::Refused(why) if why.contains("nothing.pem")),
        "{error:?}"
    );
}

/// Waits for a refusal: until the broker has reported it, a node merely has no connection.
pub(crate) async fn refused(settings: NatsSettings) -> TransportError {
    let nats = Nats::connect(settings).await.unwrap();
    failed(&nats, |error| matches!(error, TransportError::Refused(_))).await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_nkey_seed_admits_a_node() {
    if !servers::is_available() {
        return;
    }
    let (papers, node) = (Papers::new(), KeyPair::new_user());
    let users = format!("authorization {{ users: [ {{ nkey: {:?} }} ] }}", node.public_key());
    let servers = Servers::start_with(1, &users);
    let seed = |name: &str, key: &KeyPair| {
        // As `nk` writes it, after a comment.
        fs::write(papers.path(name), format!("# a node's\n{}\n", key.seed().unwrap())).unwrap();
        NatsSettings { credentials: Some(papers.path(name)), ..settings(&servers, "nats://") }
    };
    let nats = Nats::connect(seed("node.nk", &node)).await.unwrap();
    nats.ready(SOON).await.unwrap();
    assert!(matches!(
        nats.cells().swap(Table::Hosts, "a", None, Bytes::new()).await.unwrap(),
        SwapOutcome::Done(_)
    ));
    let stranger = KeyPair::new_user();
    let error = refused(seed("stranger.nk", &stranger)).await;
    assert!(!error.to_string().contains(&stranger.seed().unwrap()), "{error}");
    refused(settings(&servers, "nats://")).await;
}

/// Returns a token of `issuer` about `subject`, signed.
fn token(issuer: &KeyPair, subject: &KeyPair, name: &str, says: Value) -> String {
    let claims = json!({
        "jti": name, "iat": 1_700_000_000, "iss": issuer.public_key(), "name": name, "sub": subject.public_key(), "nats": says,
    });
    let head = URL_SAFE_NO_PAD.encode(json!({ "typ": "JWT", "alg": "ed25519-nkey" }).to_string());
    let text = format!("{head}.{}", URL_SAFE_NO_PAD.encode(claims.to_string()));
    let signature = issuer.sign(text.as_bytes()).unwrap();
    format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature))
}

fn account() -> Value {
    let unlimited: serde_json::Map<String, Value> = [
        "subs",
        "data",
        "payload",
        "imports",
        "exports",
        "conn",
        "leaf",
        "mem_storage",
        "disk_storage",
        "streams",
        "consumer",
    ]
    .into_iter()
    .map(|limit| (limit.to_owned(), json!(-1)))
    .chain([("wildcards".to_owned(), json!(true))])
    .collect();
    json!({ "type": "account", "version": 2, "limits": unlimited })
}

fn creds(path: &Path, token: &str, user: &KeyPair) {
    let seed = user.seed().unwrap();
    let text = format!(
        "-----BEGIN NATS USER JWT-----\n{token}\n------END NATS USER JWT------\n\n\
         -----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
    );
    fs::write(path, text).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_creds_file_admits_a_user_of_a_known_account() {
    if !servers::is_available() {
        return;
    }
    let papers = Papers::new();
    let (operator, crawl, system) =
        (KeyPair::new_operator(), KeyPair::new_account(), KeyPair::new_account());
    // An account signed by itself, and one with JetStream limits.
    let mut limits = account();
    let own = token(&operator, &operator, "operator", json!({ "type": "operator", "version": 2 }));
    let of_crawl = token(&operator, &crawl, "crawl", limits.clone());
    for limit in ["mem_storage", "disk_storage", "streams", "consumer"] {
        limits["limits"].as_object_mut().unwrap().remove(limit);
    }
    let of_system = token(&operator, &system, "system", limits);
    let servers = Servers::start_with(
        1,
        &format!(
            "operator: {own:?}\nsystem_account: {}\nresolver: MEMORY\nresolver_preload: {{ {}: {of_crawl:?}, {}: {of_system:?} }}",
            system.public_key(),
            crawl.public_key(),
            system.public_key()
        ),
    );
    let user = KeyPair::new_user();
    let may = json!({ "type": "user", "version": 2, "subs": -1, "data": -1, "payload": -1 });
    let with = |name: &str, by: &KeyPair, user: &KeyPair, may: &Value| {
        creds(&papers.path(name), &token(by, user, name, may.clone()), user);
        NatsSettings { credentials: Some(papers.path(name)), ..settings(&servers, "nats://") }
    };
    let nats = Nats::connect(with("node.creds", &crawl, &user, &may)).await.unwrap();
    nats.ready(SOON).await.unwrap();
    let node_id = NodeId::random();
    nats.publish(node_id, "first", Bytes::from_static(b"facts")).await.unwrap();
    assert!(nats.newest(node_id).await.unwrap().is_some());
    // A user of an account that the broker does not know.
    let stranger = KeyPair::new_account();
    let error = refused(with("stranger.creds", &stranger, &KeyPair::new_user(), &may)).await;
    assert!(error.to_string().contains("credentials"), "{error}");
    // The account may also set a node's permissions.
    let mut reads = may;
    reads["pub"] = json!({ "deny": ["fw.>"] });
    let nats =
        Nats::connect(with("reader.creds", &crawl, &KeyPair::new_user(), &reads)).await.unwrap();
    nats.ready(SOON).await.unwrap();
    let error = nats.publish(node_id, "second", Bytes::new()).await.unwrap_err();
    assert!(matches!(error, TransportError::Refused(_)), "{error:?}");
}
