//! The conversion of failures to an [`ErrorKind`]: the only file that inspects the error types of
//! hyper, h2, rustls and the dialer.

use std::error::Error;
use std::io;
use std::time::Duration;

use h2::Reason;

use crate::fetch::body::BodyError;
use crate::fetch::dial::DialError;
use crate::fetch::local_faults::is_local_fault;
use crate::fetch::{FetchError, LimitMet};
use fetchwise_types::attempt::error_kind::ErrorKind;

use super::decode::DecodeError;
use super::error_chain::{chain_text, find, is_flood};
use super::redirect::RedirectError;

/// A request without a response.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) kind: ErrorKind,
    pub(super) message: String,
    /// Whether this machine caused the fault.
    pub(super) local: bool,
    /// Limit of the request that ended it.
    pub(super) limit: Option<LimitMet>,
    /// Whether the gate did not admit a redirect.
    pub(super) stopped: bool,
    /// Whether the host refused the connection.
    pub(super) refused: bool,
    /// Whether the fetcher cannot sign now.
    pub(super) unsigned: bool,
    /// Whether another kind of client may not have this failure.
    pub(super) of_client: bool,
}

impl Failure {
    pub(super) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            local: false,
            limit: None,
            stopped: false,
            refused: false,
            unsigned: false,
            of_client: false,
        }
    }

    /// Returns the failure of a response that exceeds `limit`.
    pub(super) fn past(limit: LimitMet, kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { limit: Some(limit), ..Self::new(kind, message) }
    }

    /// Returns the failure of a connection whose server sent too much without content. Nobody
    /// should try again.
    pub(super) fn of_flood() -> Self {
        Self::new(
            ErrorKind::TooLarge,
            "the server floods the connection with data that is neither headers nor a body",
        )
    }

    /// Returns the failure of a request that has to be signed and cannot be.
    pub(super) fn of_signing(why: String) -> Self {
        Self { unsigned: true, ..Self::new(ErrorKind::LocalFault, why) }
    }

    /// Returns the error of the fetcher.
    pub(super) fn into_error(self, duration: Duration) -> FetchError {
        let Self { kind, message, local, limit, stopped, refused, unsigned, of_client } = self;
        if unsigned {
            return FetchError::unsigned(message, duration);
        }
        FetchError {
            local,
            limit,
            stopped,
            refused,
            of_client,
            ..FetchError::new(kind, message, duration)
        }
    }

    /// Returns the failure of a request without a valid HTTP response.
    pub(super) fn of_request(error: &(dyn Error + 'static)) -> Self {
        if let Some(dial) = find::<DialError>(error) {
            let (local, refused) = (dial.is_local(), dial.is_refused());
            return Self { local, refused, ..Self::new(dial.kind(), dial.to_string()) };
        }
        if let Some(tls) = find::<rustls::Error>(error) {
            // rustls reports the start of a plain HTTP response as a corrupt message.
            let is_plain = matches!(
                tls,
                rustls::Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType)
            );
            let hint =
                if is_plain { "; the server speaks no TLS on this port, try http://" } else { "" };
            let of_client = is_of_client(tls);
            return Self { of_client, ..Self::new(ErrorKind::TlsError, format!("{tls}{hint}")) };
        }
        let too_large_1 = find::<hyper::Error>(error).is_some_and(hyper::Error::is_parse_too_large);
        let kind = if too_large_1 || is_flood(error) {
            ErrorKind::TooLarge
        } else {
            ErrorKind::NetworkError
        };
        let local = find::<io::Error>(error).is_some_and(is_local_fault);
        Self { local, ..Self::new(kind, chain_text(error)) }
    }
}

impl From<DecodeError> for Failure {
    fn from(error: DecodeError) -> Self {
        let message = error.to_string();
        match error {
            DecodeError::Body(BodyError::TooLarge { limit }) => {
                Self::past(LimitMet::Body(limit), ErrorKind::TooLarge, message)
            }
            // The disk is local, whatever its fault.
            DecodeError::Body(BodyError::Io(_)) => {
                Self { local: true, ..Self::new(ErrorKind::NetworkError, message) }
            }
            DecodeError::Bomb { ratio, .. } => {
                Self::past(LimitMet::DecompressionRatio(ratio), ErrorKind::TooLarge, message)
            }
            DecodeError::Stacked { .. } => Self::new(ErrorKind::TooLarge, message),
        }
    }
}

impl From<RedirectError> for Failure {
    fn from(error: RedirectError) -> Self {
        let limit = match error {
            RedirectError::TooMany(max) => Some(LimitMet::Redirects(max)),
            _ => None,
        };
        Self { limit, ..Self::new(ErrorKind::RedirectLoop, error.to_string()) }
    }
}

/// Returns whether another kind of client may get past an error of TLS. Browsers know certificates
/// that a server leaves out, and some versions, ciphers and kinds of key that are missing here. A
/// certificate that is over, revoked or another host's is so for every client.
fn is_of_client(error: &rustls::Error) -> bool {
    use rustls::{AlertDescription as Alert, CertificateError as Certificate, Error as Tls};
    match error {
        Tls::InvalidCertificate(why) => matches!(
            why,
            Certificate::UnknownIssuer
                | Certificate::BadEncoding
                | Certificate::UnhandledCriticalExtension
                | Certificate::UnsupportedSignatureAlgorithmContext { .. }
                | Certificate::UnsupportedSignatureAlgorithmForPublicKeyContext { .. }
                | Certificate::InvalidPurpose
                | Certificate::InvalidPurposeContext { .. }
                | Certificate::Other(_)
        ),
        Tls::PeerIncompatible(_) | Tls::NoCertificatesPresented => true,
        Tls::AlertReceived(alert) => matches!(
            alert,
            Alert::HandshakeFailure
                | Alert::ProtocolVersion
                | Alert::InsufficientSecurity
                | Alert::IllegalParameter
                | Alert::DecodeError
                | Alert::InternalError
                | Alert::UnrecognisedName
                | Alert::NoApplicationProtocol
        ),
        _ => false,
    }
}

/// Returns whether the server requires HTTP/1.1 for the request or the connection (RFC 9113,
/// section 7).
pub(super) fn requires_http1(error: &(dyn Error + 'static)) -> bool {
    find::<h2::Error>(error)
        .is_some_and(|error| error.is_remote() && error.reason() == Some(Reason::HTTP_1_1_REQUIRED))
}

/// Returns whether what came is no HTTP/2: a response in HTTP/1.1 has the form of a frame that is
/// too long.
pub(super) fn is_no_http2(error: &(dyn Error + 'static)) -> bool {
    find::<h2::Error>(error).is_some_and(|error| {
        error.is_library()
            && matches!(error.reason(), Some(Reason::FRAME_SIZE_ERROR | Reason::PROTOCOL_ERROR))
    })
}

/// Returns whether a response broke the rules of HTTP/2, such as one with the header `Connection`,
/// and its connection is none the worse for it. Servers that pass on the headers of another one
/// send them, and browsers show such pages.
pub(super) fn is_malformed_http2(error: &(dyn Error + 'static)) -> bool {
    find::<h2::Error>(error).is_some_and(|error| {
        error.is_library() && error.is_reset() && error.reason() == Some(Reason::PROTOCOL_ERROR)
    })
}

/// Returns whether the server announced, in HTTP/2, that it closes the connection and did not
/// process this request.
pub(super) fn is_graceful_goodbye(error: &(dyn Error + 'static)) -> bool {
    find::<h2::Error>(error).is_some_and(|error| {
        error.is_go_away() && error.is_remote() && error.reason() == Some(Reason::NO_ERROR)
    })
}
