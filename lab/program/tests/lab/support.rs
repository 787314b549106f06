//! Runs of the program in a separate directory, and requests to what it serves.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};

pub(crate) use fetchwise_testsite::program::{PATIENCE, Ran, lines, send_signal, wait_for};
use url::Url;

/// The program with these arguments, in a folder.
pub(crate) fn command(folder: &tempfile::TempDir, args: &[&str]) -> Command {
    let mut command =
        fetchwise_testsite::program::command(env!("CARGO_BIN_EXE_fetchwise-lab"), folder.path());
    command.args(args).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

pub(crate) fn run(folder: &tempfile::TempDir, args: &[&str]) -> Ran {
    Ran::from(command(folder, args).output().unwrap())
}

/// Returns the body of a response by HTTP/1.0.
pub(crate) fn ask(method: &str, url: &str, body: &str) -> String {
    let url = Url::parse(url).unwrap();
    let host = url.host_str().unwrap();
    let mut stream = TcpStream::connect((host, url.port().unwrap())).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let path = &url[url::Position::BeforePath..];
    write!(
        stream,
        "{method} {path} HTTP/1.0\r\nHost: {host}\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer.split_once("\r\n\r\n").unwrap().1.to_owned()
}
