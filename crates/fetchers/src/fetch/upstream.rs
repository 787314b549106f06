//! An upstream proxy, HTTP or SOCKS5, through which connections to a page's host go.
//!
//! Owns: the handshake with the proxy and the meaning of its refusals.
//!
//! Invariants: failures of the proxy are distinguished from failures of the host behind it. The
//! proxy's password is in no message.
//!
//! Must not know: what is sent through the connection, and which destinations are allowed. The
//! [`Dialer`](super::dial::Dialer) asks the guard first.

use std::fmt;
use std::future::{Ready, ready};
use std::io;
use std::task::{Context, Poll};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{HOST, PROXY_AUTHORIZATION};
use http::{HeaderValue, Method, Request, Uri};
use http_body_util::Empty;
use hyper_util::client::legacy::connect::proxy::SocksV5;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tower_service::Service;
use url::Url;

/// A proxy for connections.
#[derive(Clone)]
pub struct Upstream {
    protocol: Protocol,
    host: String,
    port: u16,
    user: Option<(String, String)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Protocol {
    Http,
    Socks5,
}

/// An invalid address of a proxy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}: expected a proxy address such as http://host:3128 or socks5://host:1080")]
pub struct UpstreamError(String);

/// The reason why a proxy did not make a connection.
#[derive(Debug)]
pub(super) enum UpstreamFailure {
    /// The proxy failed or refused.
    Proxy(String),
    /// The proxy could not reach the host.
    Host(String),
}

impl Upstream {
    /// Parses `http://host:port` or `socks5://host:port` (`socks5h` is the same: the proxy looks
    /// names up). The user and the password are in the address, or in `user` as `user:password`.
    ///
    /// # Errors
    /// [`UpstreamError`] with what is wrong, without the password.
    ///
    /// ```
    /// use fetchwise_fetchers::fetch::upstream::Upstream;
    /// let proxy = Upstream::parse("socks5://me:secret@127.0.0.1:9050", None).unwrap();
    /// assert_eq!(proxy.to_string(), "socks5://127.0.0.1:9050");
    /// assert!(Upstream::parse("ftp://127.0.0.1", None).is_err());
    /// ```
    pub fn parse(address: &str, user: Option<&str>) -> Result<Self, UpstreamError> {
        let wrong = |what: &str| UpstreamError(what.to_owned());
        let url =
            Url::parse(address).map_err(|error| wrong(&format!("invalid proxy URL ({error})")))?;
        let (protocol, default_port) = match url.scheme() {
            "http" => (Protocol::Http, 80),
            "socks5" | "socks5h" => (Protocol::Socks5, 1080),
            _ => return Err(wrong("invalid proxy scheme")),
        };
        let host = url
            .host_str()
            .filter(|host| !host.is_empty())
            .ok_or_else(|| wrong("missing proxy host"))?;
        let decoded = |text: &str| percent_decoded(text);
        let user = match user {
            Some(text) => {
                let (name, password) =
                    text.split_once(':').ok_or_else(|| wrong("invalid proxy user"))?;
                Some((name.to_owned(), password.to_owned()))
            }
            None if url.username().is_empty() => None,
            None => Some((decoded(url.username()), decoded(url.password().unwrap_or_default()))),
        };
        if user.as_ref().is_some_and(|(name, password)| name.len().max(password.len()) > 255) {
            return Err(wrong("proxy user or password longer than 255 bytes"));
        }
        Ok(Self { protocol, host: host.to_owned(), port: url.port().unwrap_or(default_port), user })
    }

    /// Returns the proxy's host, as in its address.
    pub(super) fn host(&self) -> &str {
        &self.host
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// Returns whether the proxy takes plain requests with the absolute URL, instead of a tunnel.
    pub(super) fn forwards_requests(&self) -> bool {
        self.protocol == Protocol::Http
    }

    /// Returns the credentials for each request or tunnel (`Basic`).
    pub(super) fn authorization(&self) -> Option<HeaderValue> {
        let (name, password) = self.user.as_ref().filter(|_| self.protocol == Protocol::Http)?;
        let mut value = HeaderValue::try_from(format!(
            "Basic {}",
            STANDARD.encode(format!("{name}:{password}"))
        ))
        .ok()?;
        value.set_sensitive(true);
        Some(value)
    }

    /// Turns `stream`, a connection to the proxy, into one to `host` and `port`.
    pub(super) async fn through(
        &self,
        stream: TcpStream,
        host: &str,
        port: u16,
    ) -> Result<TcpStream, UpstreamFailure> {
        match self.protocol {
            Protocol::Http => self.connect(stream, host, port).await,
            Protocol::Socks5 => self.socks(stream, host, port).await,
        }
    }

    async fn connect(
        &self,
        stream: TcpStream,
        host: &str,
        port: u16,
    ) -> Result<TcpStream, UpstreamFailure> {
        let failed = |what: &dyn fmt::Display| {
            UpstreamFailure::Proxy(format!("invalid response from the proxy {self}: {what}"))
        };
        let target = format!("{host}:{port}");
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| failed(&error))?;
        let connection = tokio::spawn(connection.with_upgrades());
        let mut request =
            Request::builder().method(Method::CONNECT).uri(&target).header(HOST, &target);
        if let Some(authorization) = self.authorization() {
            request = request.header(PROXY_AUTHORIZATION, authorization);
        }
        let request = request.body(Empty::<Bytes>::new()).map_err(|error| failed(&error))?;
        let response = match sender.send_request(request).await {
            Ok(response) => response,
            Err(error) => {
                connection.abort();
                return Err(failed(&error));
            }
        };
        if !response.status().is_success() {
            connection.abort();
            return Err(UpstreamFailure::Proxy(format!(
                "the proxy {self} refused a tunnel to {target} (status {})",
                response.status()
            )));
        }
        let upgraded = hyper::upgrade::on(response).await.map_err(|error| failed(&error))?;
        let parts =
            upgraded.downcast::<TokioIo<TcpStream>>().map_err(|_| failed(&"missing tunnel"))?;
        if !parts.read_buf.is_empty() {
            // The host has not received a request yet.
            return Err(failed(&"unexpected bytes after its response"));
        }
        Ok(parts.io.into_inner())
    }

    async fn socks(
        &self,
        stream: TcpStream,
        host: &str,
        port: u16,
    ) -> Result<TcpStream, UpstreamFailure> {
        let uri = |text: String| {
            text.parse::<Uri>().map_err(|error| {
                UpstreamFailure::Proxy(format!(
                    "invalid target {text} for the proxy {self}: {error}"
                ))
            })
        };
        let mut socks = SocksV5::new(
            uri(format!("socks5://{}:{}", self.host, self.port))?,
            ReadyConnection(Some(TokioIo::new(stream))),
        );
        if let Some((name, password)) = &self.user {
            socks = socks.with_auth(name.clone(), password.clone());
        }
        match socks.call(uri(format!("tcp://{host}:{port}"))?).await {
            Ok(stream) => Ok(stream.into_inner()),
            Err(error) => {
                // The reply codes of RFC 1928 that concern the destination and not the proxy.
                let code = format!("{error:?}");
                let of_host =
                    ["HostUnreachable", "NetworkUnreachable", "ConnectionRefused", "TtlExpired"];
                let text = format!("the proxy {self} failed to connect to {host}:{port}: {error}");
                Err(if of_host.iter().any(|name| code.contains(name)) {
                    UpstreamFailure::Host(text)
                } else {
                    UpstreamFailure::Proxy(text)
                })
            }
        }
    }
}

impl fmt::Display for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match self.protocol {
            Protocol::Http => "http",
            Protocol::Socks5 => "socks5",
        };
        write!(f, "{scheme}://{}:{}", self.host, self.port)
    }
}

impl fmt::Debug for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Upstream({self})")
    }
}

/// A connector that returns an existing connection.
struct ReadyConnection(Option<TokioIo<TcpStream>>);

impl Service<Uri> for ReadyConnection {
    type Response = TokioIo<TcpStream>;
    type Error = io::Error;
    type Future = Ready<io::Result<TokioIo<TcpStream>>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        ready(self.0.take().ok_or_else(|| io::Error::other("a connection is used once")))
    }
}

/// Returns `text` with its percent escapes (`%41`) decoded.
fn percent_decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let hex =
            |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        match (first, tail) {
            (b'%', [high, low, after @ ..]) if hex(*high).is_some() && hex(*low).is_some() => {
                bytes.push(hex(*high).unwrap_or_default() << 4 | hex(*low).unwrap_or_default());
                rest = after;
            }
            _ => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_read_from_either_place_and_never_printed() {
        let inside = Upstream::parse("http://me:p%40ss%3a@proxy.example:3128", None).unwrap();
        let separate = Upstream::parse("http://proxy.example:3128/", Some("me:p@ss:")).unwrap();
        for proxy in [&inside, &separate] {
            assert_eq!(proxy.authorization().unwrap(), "Basic bWU6cEBzczo=");
            assert_eq!(
                format!("{proxy} {proxy:?}"),
                "http://proxy.example:3128 Upstream(http://proxy.example:3128)"
            );
            assert!(!format!("{:?}", proxy.authorization()).contains("bWU6"));
        }
        assert!(Upstream::parse("socks5://e:secret@h", None).unwrap().authorization().is_none());
    }

    #[test]
    fn errors_of_invalid_addresses_do_not_contain_the_password() {
        for (address, user) in [
            ("https://me:secret@h", None),
            ("nonsense", None),
            ("socks5://", None),
            ("http://h", Some("secret")),
        ] {
            let error = Upstream::parse(address, user).unwrap_err().to_string();
            assert!(!error.contains("secret"), "{error}");
        }
    }
}
