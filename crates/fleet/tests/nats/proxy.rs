//! A proxy in front of brokers that can be cut: one port for each of them.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// A proxy in front of some brokers. Its threads end with the process.
pub struct Proxy {
    ports: Vec<u16>,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    is_cut: AtomicBool,
    open: Mutex<Vec<TcpStream>>,
}

impl Proxy {
    /// Starts a proxy for the brokers on these loopback ports.
    pub fn start(to: Vec<u16>) -> Self {
        let shared = Arc::new(Shared::default());
        let ports = to.into_iter().map(|to| listen(to, Arc::clone(&shared))).collect();
        Self { ports, shared }
    }

    /// Returns the addresses of the brokers through the proxy.
    pub fn urls(&self) -> Vec<String> {
        self.ports.iter().map(|port| format!("nats://127.0.0.1:{port}")).collect()
    }

    /// Cuts all connections, or lets them through again.
    pub fn cut(&self, is_cut: bool) {
        self.shared.is_cut.store(is_cut, Ordering::SeqCst);
        if is_cut {
            for stream in self.shared.open.lock().unwrap().drain(..) {
                let _ = stream.shutdown(Shutdown::Both);
            }
        }
    }
}

fn listen(to: u16, shared: Arc<Shared>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for near in listener.incoming().flatten() {
            if shared.is_cut.load(Ordering::SeqCst) {
                continue;
            }
            let Ok(far) = TcpStream::connect(("127.0.0.1", to)) else { continue };
            let ends = [near.try_clone().unwrap(), far.try_clone().unwrap()];
            shared.open.lock().unwrap().extend(ends);
            let back = (far.try_clone().unwrap(), near.try_clone().unwrap());
            std::thread::spawn(move || pass(near, far));
            std::thread::spawn(move || pass(back.0, back.1));
        }
    });
    port
}

fn pass(mut from: TcpStream, mut to: TcpStream) {
    let mut buffer = [0; 16 << 10];
    while let Ok(n @ 1..) = from.read(&mut buffer) {
        if to.write_all(&buffer[..n]).is_err() {
            break;
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}
