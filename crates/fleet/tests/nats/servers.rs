//! Real brokers on loopback: one, or a cluster of three, with their stores in a temporary folder.
//!
//! Owns: starting, killing, stopping and wiping them.
//!
//! Invariants: a process that is ended was started here. It ends with the test, even if the test is
//! killed.
//!
//! Must not know: fetchwise. The tests of other crates use this file, too.

use std::fs;
use std::io::Write as _;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use fetchwise_testsite::poll::found;
use fetchwise_testsite::requirements::skip;
use tokio::net::TcpSocket;

/// Some brokers.
pub struct Servers {
    folder: tempfile::TempDir,
    servers: Vec<Server>,
}

struct Server {
    port: ReservedPort,
    /// For the other brokers.
    _route: ReservedPort,
    config: PathBuf,
    store: PathBuf,
    running: Option<Running>,
}

struct Running {
    server: Child,
    /// A guard that ends the server when this process ends in any way: then the guard's input ends.
    guard: Child,
}

impl Running {
    fn end(mut self) {
        // The guard first, so that it never kills another process that got the server's id.
        self.guard.kill().unwrap();
        self.guard.wait().unwrap();
        self.server.kill().unwrap();
        self.server.wait().unwrap();
    }
}

/// Returns the server that `.ci/nats-server` installs.
pub fn program() -> PathBuf {
    let program = path();
    assert!(program.exists(), "no {}: `make nats-server` installs it", program.display());
    program
}

fn path() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let target = std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| root.join("target"), |dir| root.join(dir));
    target.join("nats-server/nats-server")
}

/// Returns whether brokers are to be started: if `FETCHWISE_SYSTEM_TESTS` is set. Otherwise prints
/// that the test is skipped, whether a server is installed or not.
///
/// # Panics
/// If brokers are to be started and the server is not installed.
#[allow(dead_code, reason = "some tests fail without a server")]
pub fn is_available() -> bool {
    let is_requested = std::env::var_os("FETCHWISE_SYSTEM_TESTS").is_some();
    if is_requested {
        assert!(path().exists(), "no nats-server: `make nats-server` installs it");
    } else {
        skip("tests with NATS brokers (`make test-system` runs them)");
    }
    is_requested
}

/// A port on loopback that nobody else gets, and on which a connection is refused until a server of
/// the test listens. A socket that does not listen holds it, so the server may end and start again.
#[derive(Debug)]
pub struct ReservedPort {
    port: u16,
    _holder: TcpSocket,
}

impl ReservedPort {
    pub fn new() -> Self {
        let holder = TcpSocket::new_v4().unwrap();
        // As the server's own socket has it: so the two may have the same port.
        holder.set_reuseaddr(true).unwrap();
        holder.bind(([127, 0, 0, 1], 0).into()).unwrap();
        Self { port: holder.local_addr().unwrap().port(), _holder: holder }
    }

    /// Returns the address with this port.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }
}

#[allow(dead_code, reason = "each test uses a part of it")]
impl Servers {
    /// Starts `n` brokers, and waits until they accept connections.
    pub fn start(n: usize) -> Self {
        Self::start_with(n, "")
    }

    /// Works like [`start`](Self::start), with more lines in each configuration.
    pub fn start_with(n: usize, more: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let ports: Vec<_> = (0..n).map(|_| (ReservedPort::new(), ReservedPort::new())).collect();
        let routes: Vec<String> =
            ports.iter().map(|(_, route)| format!("nats://{}", route.address())).collect();
        let mut servers = Vec::new();
        for (number, (port, route)) in ports.into_iter().enumerate() {
            let store = folder.path().join(format!("n{number}"));
            let mut config = format!(
                "server_name: n{number}\nlisten: {:?}\nlame_duck_duration: \"30s\"\n\
                 jetstream {{ store_dir: {:?}, max_memory_store: 64MB, max_file_store: 4GB }}\n{more}\n",
                port.address(),
                store.display().to_string()
            );
            if n > 1 {
                config.push_str(&format!(
                    "cluster {{ name: fw, no_advertise: true, listen: {:?}, routes: [{}] }}\n",
                    route.address(),
                    routes.join(", ")
                ));
            }
            let path = folder.path().join(format!("n{number}.conf"));
            fs::File::create(&path).unwrap().write_all(config.as_bytes()).unwrap();
            servers.push(Server { port, _route: route, config: path, store, running: None });
        }
        let mut servers = Self { folder, servers };
        for number in 0..n {
            servers.revive(number);
        }
        servers
    }

    /// Returns the addresses of all brokers.
    pub fn urls(&self) -> Vec<String> {
        self.servers.iter().map(|server| format!("nats://{}", server.port.address())).collect()
    }

    /// Returns their ports.
    pub fn ports(&self) -> Vec<u16> {
        self.servers.iter().map(|server| server.port.port).collect()
    }

    pub fn len(&self) -> usize {
        self.servers.len()
    }

    /// Sends SIGKILL to a broker.
    pub fn kill(&mut self, number: usize) {
        if let Some(running) = self.servers[number].running.take() {
            running.end();
        }
    }

    /// Starts a killed broker again.
    pub fn revive(&mut self, number: usize) {
        let log = self.folder.path().join(format!("n{number}.log"));
        let server = &mut self.servers[number];
        if server.running.is_some() {
            return;
        }
        let out = fs::OpenOptions::new().create(true).append(true).open(&log).unwrap();
        let mut command = Command::new(program());
        command
            .arg("-c")
            .arg(&server.config)
            .stdin(Stdio::null())
            .stdout(out.try_clone().unwrap())
            .stderr(out);
        let child = command.spawn().unwrap();
        let guard = Command::new("sh")
            .args(["-c", "cat >/dev/null; kill -9 $0", &child.id().to_string()])
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        let running = server.running.insert(Running { server: child, guard });
        let address = server.port.address();
        found("a nats-server accepts connections", || {
            let ended = running.server.try_wait().unwrap();
            assert!(ended.is_none(), "a nats-server has ended: {}", read_log(&log));
            TcpStream::connect(&address).map_err(|error| format!("{error}: {}", read_log(&log)))
        });
    }

    /// Sends SIGSTOP to a broker.
    pub fn stop(&self, number: usize) {
        self.signal(number, "-STOP");
    }

    /// Sends SIGCONT to a stopped broker.
    pub fn resume(&self, number: usize) {
        self.signal(number, "-CONT");
    }

    fn signal(&self, number: usize, signal: &str) {
        let running = self.servers[number].running.as_ref().unwrap();
        assert!(
            Command::new("kill")
                .args([signal, &running.server.id().to_string()])
                .status()
                .unwrap()
                .success()
        );
    }

    /// Kills a broker and deletes its store.
    pub fn wipe(&mut self, number: usize) {
        self.kill(number);
        fs::remove_dir_all(&self.servers[number].store).unwrap();
    }

    /// Truncates the files of a killed broker's stream or flips bits in them, like a failing disk.
    /// Returns the number of files; `draw` returns a number below its argument.
    pub fn damage(
        &self,
        number: usize,
        stream: &str,
        is_cut: bool,
        mut draw: impl FnMut(u64) -> u64,
    ) -> usize {
        assert!(self.servers[number].running.is_none(), "it would write while it is damaged");
        let folder =
            self.servers[number].store.join("jetstream/$G/streams").join(stream).join("msgs");
        let mut damaged = 0;
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let mut bytes = fs::read(&path).unwrap();
            if bytes.is_empty() || path.extension().is_none_or(|extension| extension != "blk") {
                continue;
            }
            let len = bytes.len() as u64;
            if is_cut {
                bytes.truncate((len - 1 - draw(len / 2 + 1)) as usize);
            } else {
                for _ in 0..8 {
                    bytes[draw(len) as usize] ^= 1 << draw(8);
                }
            }
            fs::write(&path, bytes).unwrap();
            damaged += 1;
        }
        damaged
    }

    /// Returns the folder of a broker's store.
    pub fn store(&self, number: usize) -> &Path {
        &self.servers[number].store
    }

    /// Returns a broker's log.
    pub fn log(&self, number: usize) -> String {
        read_log(&self.folder.path().join(format!("n{number}.log")))
    }
}

fn read_log(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

impl Drop for Servers {
    fn drop(&mut self) {
        for server in &mut self.servers {
            if let Some(running) = server.running.take() {
                running.end();
            }
        }
    }
}
