//! The server of the pipeline's subject in a separate process, so that its processor time does not
//! count for the client.

use std::io::{BufRead, BufReader, Read as _};
use std::process::{Child, Command, Stdio};

use crate::loopback;

/// Serves until its standard input ends, which is when the parent process ends. Prints its port.
pub(crate) fn run() {
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(0);
    });
    loopback::run(|port| println!("{port}"));
}

/// A handle of the server process.
pub(crate) struct Server {
    child: Child,
    pub(crate) port: u16,
}

impl Server {
    pub(crate) fn start() -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        let mut child = command
            .args(["--child", "server"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Self { child, port: line.trim().parse().unwrap() }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
