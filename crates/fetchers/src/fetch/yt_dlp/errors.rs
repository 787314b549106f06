//! The classification of yt-dlp's error messages: an [`ErrorKind`], and the status if the message
//! names one. No I/O.
//!
//! The message is text for people and changes with the site. An unknown message is a network error,
//! which affects evidence only briefly.

use fetchwise_types::attempt::error_kind::ErrorKind;

/// Phrases in lower case and their kinds; the first match counts.
const MESSAGES: &[(&str, ErrorKind)] = &[
    ("sign in to confirm your age", ErrorKind::AuthRequired),
    ("sign in to confirm", ErrorKind::BlockedCaptcha),
    ("not a bot", ErrorKind::BlockedCaptcha),
    ("captcha", ErrorKind::BlockedCaptcha),
    ("private video", ErrorKind::AuthRequired),
    ("video is private", ErrorKind::AuthRequired),
    ("members-only", ErrorKind::AuthRequired),
    ("only available for registered users", ErrorKind::AuthRequired),
    ("login required", ErrorKind::AuthRequired),
    ("use --cookies", ErrorKind::AuthRequired),
    ("in your country", ErrorKind::Blocked403),
    ("geo restrict", ErrorKind::Blocked403),
    ("premieres in", ErrorKind::Queued),
    ("live event will begin", ErrorKind::Queued),
    ("video unavailable", ErrorKind::NotFound),
    ("video is unavailable", ErrorKind::NotFound),
    ("video is not available", ErrorKind::NotFound),
    ("video does not exist", ErrorKind::NotFound),
    ("has been removed", ErrorKind::NotFound),
    ("been terminated", ErrorKind::NotFound),
    ("unsupported url", ErrorKind::WrongTool),
    ("no video formats found", ErrorKind::WrongTool),
    ("requested format is not available", ErrorKind::WrongTool),
    ("is not a valid url", ErrorKind::InvalidUrl),
    ("larger than max-filesize", ErrorKind::TooLarge),
    ("no space left on device", ErrorKind::LocalFault),
    ("timed out", ErrorKind::Timeout),
    ("certificate verify failed", ErrorKind::TlsError),
];

/// Returns the kind of `message`, and the status that it names.
pub(super) fn classify(message: &str) -> (ErrorKind, Option<u16>) {
    let message = message.to_lowercase();
    let status = status_in(&message);
    if let Some((_, kind)) = MESSAGES.iter().find(|(words, _)| message.contains(words)) {
        return (*kind, status);
    }
    let kind = match status {
        Some(401 | 407) => ErrorKind::AuthRequired,
        Some(403 | 429 | 451) => ErrorKind::Blocked403,
        Some(404 | 410) => ErrorKind::NotFound,
        Some(400..=499) => ErrorKind::ClientError,
        Some(500..=599) => ErrorKind::ServerError,
        _ => ErrorKind::NetworkError,
    };
    (kind, status)
}

/// Returns the status in `http error 403: forbidden`.
fn status_in(message: &str) -> Option<u16> {
    let (_, after) = message.split_once("http error ")?;
    let digits: String = after.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok().filter(|status| (100..600).contains(status))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_yt_dlp_are_classified() {
        for (message, kind, status) in [
            ("[youtube] abc: Video unavailable", ErrorKind::NotFound, None),
            (
                "[youtube] abc: Video unavailable. This video has been removed by the uploader",
                ErrorKind::NotFound,
                None,
            ),
            (
                "[youtube] abc: Sign in to confirm you\u{2019}re not a bot. Use --cookies-from-browser or --cookies",
                ErrorKind::BlockedCaptcha,
                None,
            ),
            (
                "[youtube] abc: Sign in to confirm your age. This video may be inappropriate",
                ErrorKind::AuthRequired,
                None,
            ),
            (
                "[youtube] abc: Private video. Sign in if you've been granted access",
                ErrorKind::AuthRequired,
                None,
            ),
            (
                "[vimeo] 1: The uploader has not made this video available in your country",
                ErrorKind::Blocked403,
                None,
            ),
            (
                "[generic] a: Unable to download webpage: HTTP Error 404: Not Found (caused by x)",
                ErrorKind::NotFound,
                Some(404),
            ),
            (
                "unable to download video data: HTTP Error 403: Forbidden",
                ErrorKind::Blocked403,
                Some(403),
            ),
            ("[generic] a: HTTP Error 429: Too Many Requests", ErrorKind::Blocked403, Some(429)),
            ("[generic] a: HTTP Error 451: Unavailable", ErrorKind::Blocked403, Some(451)),
            ("[generic] a: HTTP Error 503: Service Unavailable", ErrorKind::ServerError, Some(503)),
            ("Unsupported URL: http://e.org/", ErrorKind::WrongTool, None),
            (
                "[generic] a: Unable to download webpage: The read operation timed out",
                ErrorKind::Timeout,
                None,
            ),
            (
                "unable to write data: [Errno 28] No space left on device",
                ErrorKind::LocalFault,
                None,
            ),
            ("[x] something unknown", ErrorKind::NetworkError, None),
        ] {
            assert_eq!(classify(message), (kind, status), "{message}");
        }
    }
}
