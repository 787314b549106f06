//! HTTP listeners: their tokens, and an address that is not reachable from outside without a token.
//!
//! Must not know: the responses.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::Path;

use fetchwise_serve::Tokens;
use tokio::net::{TcpListener, TcpSocket};

use crate::terminal::exit::Failure;
use crate::terminal::output::{note, plain};

/// The variable that holds the tokens.
const TOKEN: &str = "FETCHWISE_TOKEN";
/// A shorter token can be guessed.
const TOKEN_LEAST: usize = 16;

/// Returns the tokens of the file and of the environment.
pub(crate) fn tokens(file: Option<&Path>) -> Result<Tokens, Failure> {
    let wrong = |error: fetchwise_serve::TokenError| Failure::usage(error);
    let of_file = file.map(Tokens::from_file).transpose().map_err(wrong)?.unwrap_or_default();
    if of_file.plain() > 0 {
        note(format_args!(
            "warning: {} of the tokens in the file are in plain text: its readers can use them (--new-token \
             stores hashes)",
            of_file.plain()
        ));
    }
    let text = match std::env::var(TOKEN) {
        Ok(text) => Some(text).filter(|text| !text.is_empty()),
        Err(std::env::VarError::NotPresent) => None,
        Err(std::env::VarError::NotUnicode(_)) => {
            return Err(Failure::usage(format_args!("{TOKEN} is not valid UTF-8")));
        }
    };
    if text
        .as_deref()
        .is_some_and(|text| text.split_whitespace().any(|token| token.len() < TOKEN_LEAST))
    {
        note(format_args!(
            "warning: a token in {TOKEN} is shorter than {TOKEN_LEAST} characters and can be guessed"
        ));
    }
    let of_variable = text.as_deref().map(Tokens::from_text).transpose();
    let of_variable =
        of_variable.map_err(|error| Failure::usage(format_args!("{TOKEN}: {error}")))?;
    Ok(of_file.and(of_variable.unwrap_or_default()))
}

/// The number of clients that can connect before the first of them is accepted. With the usual 128,
/// a burst of clients overflows the queue, and each client beyond it waits a second for its next
/// try. The system may lower the number.
const BACKLOG: u32 = 4096;

/// Hints for an address that cannot be used.
pub(crate) struct ListenHints {
    /// An example of a valid address.
    pub(crate) example: &'static str,
    /// How to get a token.
    pub(crate) token: &'static str,
}

/// Listens on `address`. Without tokens, other machines must not be able to reach it.
pub(crate) async fn listen(
    address: &str,
    tokens: &Tokens,
    advice: &ListenHints,
) -> Result<TcpListener, Failure> {
    let addresses = resolve(address, advice).await?;
    if tokens.is_empty()
        && let Some(open) =
            addresses.iter().find(|address| !address.ip().to_canonical().is_loopback())
    {
        return Err(Failure::usage(format_args!(
            "refusing to listen on {} without a token: other machines can reach it",
            open.ip()
        ))
        .advise(format!("{}, or listen on 127.0.0.1", advice.token)));
    }
    bind(&addresses).map_err(|error| unusable(address, advice, &error))
}

/// Listens on `address` for everyone.
pub(crate) async fn listen_publicly(
    address: &str,
    advice: &ListenHints,
) -> Result<TcpListener, Failure> {
    let addresses = resolve(address, advice).await?;
    bind(&addresses).map_err(|error| unusable(address, advice, &error))
}

/// Listens on the first of `addresses` that can be used.
fn bind(addresses: &[SocketAddr]) -> std::io::Result<TcpListener> {
    let mut failed = std::io::Error::new(ErrorKind::InvalidInput, "the name has no address");
    for address in addresses {
        match bind_one(*address) {
            Ok(listener) => return Ok(listener),
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

fn bind_one(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // A restart can use the port at once. On Windows, the option would let two processes share it.
    #[cfg(not(windows))]
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

async fn resolve(address: &str, advice: &ListenHints) -> Result<Vec<SocketAddr>, Failure> {
    let found = tokio::net::lookup_host(address)
        .await
        .map_err(|error| unusable(address, advice, &error))?;
    Ok(found.collect())
}

/// Returns the failure for an address that cannot be used.
fn unusable(address: &str, advice: &ListenHints, error: &std::io::Error) -> Failure {
    let failure = Failure::usage(format_args!("cannot listen on {}: {error}", plain(address)));
    match error.kind() {
        ErrorKind::AddrInUse => failure.advise(
            "another process listens there: end it, or choose another port (0 takes a free one)",
        ),
        _ => failure.advise(format!(
            "give an address and a port of this machine, such as {}",
            advice.example
        )),
    }
}
