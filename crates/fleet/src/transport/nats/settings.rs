//! The NATS settings: broker addresses, authentication, and stream limits.
//!
//! Invariants: traffic to another machine is encrypted unless plaintext is enabled. A printed
//! address contains no password.
//!
//! Must not know: how a connection is made.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use async_nats::{ConnectOptions, ServerAddr};

use super::names::unescaped_by;
use crate::transport::TransportError;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// The maximum retention. It equals that of attempts in the log.
const LONGEST_MAX_AGE: Duration = Duration::from_secs(90 * 24 * 60 * 60);

/// The settings of a fleet's brokers.
#[derive(Clone, Debug)]
pub struct NatsSettings {
    /// The broker addresses: `nats://host:4222` or `tls://host:4222`. One is enough; with several,
    /// the node starts even if one is down.
    pub urls: Vec<String>,
    /// The pool: letters, digits, `-` and `_`.
    pub pool: String,
    /// The credentials file of this node: a JWT with its key (`.creds`), or the seed of an NKey.
    pub credentials: Option<PathBuf>,
    /// The CA certificates (PEM) for the brokers; those of the system by default.
    pub tls_ca_file: Option<PathBuf>,
    /// This node's certificate and key (PEM), for brokers that require one.
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// Whether `nats://` is allowed for another machine.
    pub plaintext: bool,
    /// Whether this node creates missing streams.
    pub make: bool,
    /// The number of replicas of each message. Default: 3 in a cluster and 1 for a single broker.
    pub replicas: Option<usize>,
    /// The time for which the stream keeps a message.
    pub max_age: Duration,
    /// The maximum size of the stream in bytes; limited by the broker only if none.
    pub max_bytes: Option<u64>,
    /// The timeout of a call.
    pub timeout: Duration,
}

impl NatsSettings {
    /// Returns the settings for the brokers at `urls`, which keep messages for a week.
    pub fn new(urls: impl IntoIterator<Item = impl Into<String>>, pool: &str) -> Self {
        Self {
            urls: urls.into_iter().map(Into::into).collect(),
            pool: pool.to_owned(),
            credentials: None,
            tls_ca_file: None,
            certificate: None,
            plaintext: false,
            make: true,
            replicas: None,
            max_age: 7 * DAY,
            max_bytes: None,
            timeout: Duration::from_secs(5),
        }
    }

    /// Returns the broker addresses, validated.
    pub(super) fn addresses(&self) -> Result<Vec<ServerAddr>, TransportError> {
        let invalid = |why: String| Err(TransportError::Invalid(why));
        let mut all = Vec::new();
        for url in &self.urls {
            // The parser's own message may repeat the address, and with it a password.
            let Ok(address) = url.trim().parse::<ServerAddr>() else {
                return invalid(format!(
                    "{} is not a valid broker address: expected nats://host:4222",
                    redacted(url)
                ));
            };
            if !matches!(address.scheme(), "nats" | "tls") {
                return invalid(format!(
                    "{} starts with neither nats:// nor tls://",
                    redacted(url)
                ));
            }
            if address.scheme() == "nats" && !self.plaintext && !is_here(address.host()) {
                return invalid(format!(
                    "{} is another machine, and nats:// is not encrypted: use tls://, or set plaintext = true on a private network",
                    redacted(url)
                ));
            }
            all.push(address);
        }
        if all.is_empty() {
            return invalid("no broker address is given".to_owned());
        }
        let tls = all.iter().filter(|address| address.scheme() == "tls").count();
        if tls != 0 && tls != all.len() {
            return invalid(
                "the brokers of one cluster must all use tls:// or all nats://".to_owned(),
            );
        }
        Ok(all)
    }

    /// Checks everything that needs no broker.
    pub(super) fn check(&self) -> Result<(), TransportError> {
        if self.max_age > LONGEST_MAX_AGE || self.max_age < Duration::from_secs(600) {
            return Err(TransportError::Invalid(
                "invalid max_age of the stream: expected 10 minutes to 90 days".to_owned(),
            ));
        }
        Ok(())
    }

    /// Returns the connection options: this node's identity, and the certificates that it trusts.
    pub(super) async fn options(
        &self,
        addresses: &[ServerAddr],
    ) -> Result<ConnectOptions, TransportError> {
        let is_tls = addresses.iter().any(ServerAddr::tls_required);
        let mut options = ConnectOptions::new()
            .name("fetchwise")
            .retry_on_initial_connect()
            .connection_timeout(self.timeout)
            .request_timeout(Some(self.timeout))
            .ping_interval(Duration::from_secs(5))
            .require_tls(is_tls);
        // The client ignores the user in an address.
        if let Some((name, password)) =
            addresses.iter().find_map(|url| Some((url.username()?, url.password()?)))
        {
            let word = |text: &str| unescaped_by(b'%', text).unwrap_or_else(|| text.to_owned());
            options = options.user_and_password(word(name), word(password));
        }
        if let Some(roots) = &self.tls_ca_file {
            readable(roots, "the CA file")?;
            options = options.add_root_certificates(roots.clone());
        }
        if let Some((certificate, key)) = &self.certificate {
            readable(certificate, "the certificate")?;
            readable(key, "the certificate key")?;
            options = options.add_client_certificate(certificate.clone(), key.clone());
        }
        let Some(path) = &self.credentials else { return Ok(options) };
        let unfit = || {
            TransportError::Refused(format!(
                "{} is neither a .creds file nor an NKey seed",
                path.display()
            ))
        };
        let text = tokio::fs::read_to_string(path).await.map_err(|error| {
            TransportError::Refused(format!(
                "cannot read the credentials in {}: {error}",
                path.display()
            ))
        })?;
        if text.contains("BEGIN NATS USER JWT") {
            // The client's error would quote the file.
            return options.credentials(&text).map_err(|_| unfit());
        }
        let seed =
            text.lines().map(str::trim).find(|line| line.starts_with("SU")).ok_or_else(unfit)?;
        Ok(options.nkey(seed.to_owned()))
    }
}

fn readable(path: &Path, what: &str) -> Result<(), TransportError> {
    let cannot =
        |error| TransportError::Refused(format!("cannot read {what} {}: {error}", path.display()));
    std::fs::File::open(path).map(drop).map_err(cannot)
}

/// Returns whether a host is this machine.
fn is_here(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    host.eq_ignore_ascii_case("localhost")
        || bare.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// Returns an address without its user and password, for printing.
pub(super) fn redacted(url: &str) -> RedactedUrl<'_> {
    RedactedUrl(url.trim())
}

/// See [`redacted`].
pub(super) struct RedactedUrl<'u>(&'u str);

impl fmt::Display for RedactedUrl<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scheme, rest) = self.0.split_once("://").unwrap_or(("", self.0));
        // Nothing before the last @ is printed.
        let host = rest.rsplit_once('@').map_or(rest, |(_, host)| host);
        if !scheme.is_empty() {
            write!(f, "{}://", scheme.escape_debug())?;
        }
        write!(f, "{}", host.escape_debug())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(urls: &[&str]) -> String {
        NatsSettings::new(urls.iter().copied(), "p").addresses().unwrap_err().to_string()
    }

    #[test]
    fn network_traffic_is_encrypted() {
        for fine in [
            "nats://127.0.0.1:4222",
            "nats://localhost",
            "nats://[::1]:4222",
            "tls://broker.example:4222",
        ] {
            assert!(NatsSettings::new([fine], "p").addresses().is_ok(), "{fine}");
        }
        assert!(error(&["nats://broker.example"]).contains("tls://"));
        let plain =
            NatsSettings { plaintext: true, ..NatsSettings::new(["nats://broker.example"], "p") };
        assert!(plain.addresses().is_ok());
        assert!(error(&["tls://a", "nats://127.0.0.1"]).contains("one cluster"));
        assert!(error(&["ws://a"]).contains("neither"));
        assert!(error(&[]).contains("no broker"));
    }

    #[test]
    fn no_password_is_printed() {
        for url in [
            "nats://me:secret@broker.example",
            "http://me:secret@x",
            "me:secret@",
            "nats://me:sec ret:secret@@x",
        ] {
            let error = error(&[url]);
            assert!(!error.contains("secret") && !error.contains("me:"), "{error}");
        }
    }

    #[tokio::test]
    async fn a_credentials_file_is_not_quoted() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("node.creds");
        for text in ["hunter2", "-----BEGIN NATS USER JWT-----\nhunter2\n"] {
            std::fs::write(&path, text).unwrap();
            let settings = NatsSettings {
                credentials: Some(path.clone()),
                ..NatsSettings::new(["nats://127.0.0.1"], "p")
            };
            let error = settings.options(&[]).await.unwrap_err().to_string();
            assert!(error.contains("node.creds") && !error.contains("hunter2"), "{error}");
        }
    }
}
