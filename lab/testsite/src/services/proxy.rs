//! A forward proxy: HTTP (plain requests and CONNECT) and SOCKS5 on one port, distinguished by the
//! first byte.
//!
//! Invariants: it dials loopback only. Every requested host is taken to be at the address that the
//! proxy was started with.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Idle time after which a connection is closed.
const IDLE: Duration = Duration::from_secs(10);

/// A running proxy. Dropping it stops it.
#[derive(Debug)]
pub struct ForwardProxy {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<String>>>,
    stop: Arc<AtomicBool>,
    accepting: Option<JoinHandle<()>>,
}

/// Behaviour of a proxy.
#[derive(Clone, Debug)]
pub struct ProxyOptions {
    /// Address where the proxy finds every host.
    pub upstream: IpAddr,
    /// Required user and password.
    pub credentials: Option<(String, String)>,
    /// Whether the proxy refuses every request.
    pub refuses: bool,
}

impl ForwardProxy {
    /// Starts a proxy on a free port of `ip`. Both `ip` and the upstream address must be loopback
    /// addresses.
    ///
    /// # Errors
    /// Fails for an address that is not loopback or cannot be bound, and when no thread can be
    /// started.
    pub fn start(ip: IpAddr, options: ProxyOptions) -> io::Result<Self> {
        if !ip.is_loopback() || !options.upstream.is_loopback() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "a test proxy needs loopback addresses",
            ));
        }
        let listener = TcpListener::bind((ip, 0))?;
        let address = listener.local_addr()?;
        let (requests, stop) =
            (Arc::<Mutex<Vec<String>>>::default(), Arc::new(AtomicBool::new(false)));
        let (recorded, stopping) = (Arc::clone(&requests), Arc::clone(&stop));
        let accepting = thread::Builder::new().name("proxy".to_owned()).spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                if stopping.load(Ordering::Acquire) {
                    return;
                }
                let (requests, options) = (Arc::clone(&recorded), options.clone());
                // The client notices a broken connection itself.
                let _ = thread::Builder::new().spawn(move || serve(stream, &options, &requests));
            }
        })?;
        Ok(Self { address, requests, stop, accepting: Some(accepting) })
    }

    /// Returns the address that the proxy listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the requests so far: `GET http://...`, `CONNECT host:port`, `SOCKS host:port`.
    pub fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for ForwardProxy {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        // Wakes the accepting thread.
        let _ = TcpStream::connect(self.address);
        if let Some(accepting) = self.accepting.take() {
            let _ = accepting.join();
        }
    }
}

fn serve(
    mut client: TcpStream,
    options: &ProxyOptions,
    requests: &Mutex<Vec<String>>,
) -> io::Result<()> {
    client.set_read_timeout(Some(IDLE))?;
    let mut first = [0];
    client.read_exact(&mut first)?;
    if first[0] == 5 {
        socks(client, options, requests)
    } else {
        http(client, first[0], options, requests)
    }
}

fn record(requests: &Mutex<Vec<String>>, what: String) {
    requests.lock().unwrap_or_else(PoisonError::into_inner).push(what);
}

fn http(
    mut client: TcpStream,
    first: u8,
    options: &ProxyOptions,
    requests: &Mutex<Vec<String>>,
) -> io::Result<()> {
    let mut head = vec![first];
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        client.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let mut lines = head.lines();
    let request = lines.next().unwrap_or_default();
    let mut words = request.split(' ');
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    record(requests, format!("{method} {target}"));
    let sent = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("proxy-authorization").then(|| value.trim().to_owned())
    });
    let wanted = options
        .credentials
        .as_ref()
        .map(|(user, password)| format!("Basic {}", base64(&format!("{user}:{password}"))));
    if wanted.is_some() && wanted != sent {
        return client.write_all(
            b"HTTP/1.1 407 No\r\nProxy-Authenticate: Basic\r\nContent-Length: 0\r\n\r\n",
        );
    }
    if options.refuses {
        return client.write_all(b"HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n");
    }
    if method == "CONNECT" {
        let mut server = TcpStream::connect((options.upstream, port_of(target, 443)))?;
        client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n")?;
        return relay(client, &mut server);
    }
    let rest = target.strip_prefix("http://").unwrap_or_default();
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let mut server = TcpStream::connect((options.upstream, port_of(authority, 80)))?;
    let mut forwarded = format!("{method} /{path} HTTP/1.1\r\n");
    for line in lines.filter(|line| !line.is_empty()) {
        let name = line.split(':').next().unwrap_or_default().to_ascii_lowercase();
        if !name.starts_with("proxy-") && name != "connection" {
            forwarded.push_str(&format!("{line}\r\n"));
        }
    }
    forwarded.push_str("Connection: close\r\n\r\n");
    server.write_all(forwarded.as_bytes())?;
    relay(client, &mut server)
}

/// Serves SOCKS5 (RFC 1928), with a user and a password (RFC 1929) if they are required.
fn socks(
    mut client: TcpStream,
    options: &ProxyOptions,
    requests: &Mutex<Vec<String>>,
) -> io::Result<()> {
    let methods = take(&mut client, 1)?[0];
    let methods = take(&mut client, usize::from(methods))?;
    let wanted = if options.credentials.is_some() { 2 } else { 0 };
    if !methods.contains(&wanted) {
        return client.write_all(&[5, 0xff]);
    }
    client.write_all(&[5, wanted])?;
    if let Some((user, password)) = &options.credentials {
        let user_len = take(&mut client, 2)?[1];
        let sent_user = take(&mut client, usize::from(user_len))?;
        let password_len = take(&mut client, 1)?[0];
        let sent_password = take(&mut client, usize::from(password_len))?;
        let fits = sent_user == user.as_bytes() && sent_password == password.as_bytes();
        client.write_all(&[1, u8::from(!fits)])?;
        if !fits {
            return Ok(());
        }
    }
    let head = take(&mut client, 4)?;
    let host = match head[3] {
        1 => {
            IpAddr::from(<[u8; 4]>::try_from(take(&mut client, 4)?).unwrap_or_default()).to_string()
        }
        3 => {
            let len = take(&mut client, 1)?[0];
            String::from_utf8_lossy(&take(&mut client, usize::from(len))?).into_owned()
        }
        _ => IpAddr::from(<[u8; 16]>::try_from(take(&mut client, 16)?).unwrap_or_default())
            .to_string(),
    };
    let port = take(&mut client, 2)?;
    let port = u16::from_be_bytes([port[0], port[1]]);
    record(requests, format!("SOCKS {host}:{port}"));
    let answer = |code: u8| [5, code, 0, 1, 0, 0, 0, 0, 0, 0];
    if options.refuses {
        // "Connection not allowed by ruleset".
        return client.write_all(&answer(2));
    }
    match TcpStream::connect((options.upstream, port)) {
        Ok(mut server) => {
            client.write_all(&answer(0))?;
            relay(client, &mut server)
        }
        // "Connection refused".
        Err(_) => client.write_all(&answer(5)),
    }
}

fn take(from: &mut TcpStream, count: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; count];
    from.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// Copies bytes in both directions until either side ends.
fn relay(client: TcpStream, server: &mut TcpStream) -> io::Result<()> {
    let (mut from_client, mut to_server) = (client.try_clone()?, server.try_clone()?);
    let up = thread::spawn(move || {
        let _ = io::copy(&mut from_client, &mut to_server);
        let _ = to_server.shutdown(Shutdown::Write);
    });
    let mut client = client;
    let _ = io::copy(server, &mut client);
    let _ = client.shutdown(Shutdown::Both);
    let _ = up.join();
    Ok(())
}

fn port_of(authority: &str, default: u16) -> u16 {
    authority.rsplit_once(':').and_then(|(_, port)| port.parse().ok()).unwrap_or(default)
}

fn base64(text: &str) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for chunk in text.as_bytes().chunks(3) {
        let bits = chunk.iter().fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte))
            << (8 * (3 - chunk.len()));
        for place in 0..4 {
            let letter = LETTERS[(bits >> (18 - 6 * place) & 63) as usize];
            out.push(if place <= chunk.len() { char::from(letter) } else { '=' });
        }
    }
    out
}
