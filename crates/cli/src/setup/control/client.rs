//! The side of a command: one request to the process that uses a data directory.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use super::{ControlAnswer, ControlRequest, MAX_LINE, SOCKET, socket_path};
use crate::terminal::exit::Failure;
use crate::terminal::output::plain;

/// The time to write a request.
const WRITE_TIME: Duration = Duration::from_secs(5);
/// The time for the end of a pause.
const UNPAUSE_TIME: Duration = Duration::from_secs(10);
/// The time to read the settings again, with a router table of any size.
const RELOAD_TIME: Duration = Duration::from_secs(60);
/// The time to forget something: the process reads its whole log for that.
const FORGET_TIME: Duration = Duration::from_secs(600);

/// Asks the process that uses `dir`. Returns its answer; none if no process listens.
///
/// # Errors
/// The process refuses the request, fails to perform it, or does not answer in time.
pub(crate) fn ask(dir: &Path, request: &ControlRequest) -> Result<Option<ControlAnswer>, Failure> {
    let failed = |why: &dyn std::fmt::Display| {
        Failure::failed(format_args!(
            "the process that uses {} did not do it: {why}",
            dir.display()
        ))
    };
    let stream = match socket_path(dir, SOCKET).and_then(|(path, _open)| UnixStream::connect(path))
    {
        Ok(stream) => stream,
        Err(error)
            if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused) =>
        {
            return Ok(None);
        }
        Err(error) => return Err(failed(&error)),
    };
    let line = exchange(&stream, request).map_err(|error| match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => failed(&"no answer in time"),
        _ => failed(&error),
    })?;
    let answer: ControlAnswer =
        serde_json::from_slice(&line).map_err(|_| failed(&"its answer is not valid"))?;
    match &answer.error {
        Some(error) => {
            Err(Failure::failed(format_args!("{}: {}", plain(&answer.actor()), plain(error))))
        }
        None => Ok(Some(answer)),
    }
}

/// Sends a request and returns the line of the answer.
fn exchange(mut stream: &UnixStream, request: &ControlRequest) -> std::io::Result<Vec<u8>> {
    let time = match request {
        ControlRequest::Unpause { .. } => UNPAUSE_TIME,
        ControlRequest::Forget { .. } => FORGET_TIME,
        ControlRequest::Reload {} => RELOAD_TIME,
    };
    stream.set_write_timeout(Some(WRITE_TIME))?;
    stream.set_read_timeout(Some(time))?;
    let mut line = serde_json::to_vec(request)?;
    line.push(b'\n');
    stream.write_all(&line)?;
    line.clear();
    BufReader::new(stream.take(MAX_LINE)).read_until(b'\n', &mut line)?;
    Ok(line)
}
