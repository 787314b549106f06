//! The validators of a response, with which a client asks whether the page has changed.
//!
//! Must not know: where they are kept.

use serde::{Deserialize, Serialize};

use fetchwise_types::response::{Header, header};

/// The longest validator that is kept.
const MAX_VALIDATOR: usize = 256;

/// The validators that a request sends.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Validators {
    /// For `If-None-Match`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etag: Option<String>,
    /// For `If-Modified-Since`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_modified: Option<String>,
}

impl Validators {
    /// Reads the validators of a response. One that is long, or is not plain text, is none.
    pub fn of(headers: &[Header]) -> Self {
        let read = |name: &str| {
            let value = header(headers, name)?.trim();
            let is_plain = value.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic());
            (!value.is_empty() && value.len() <= MAX_VALIDATOR && is_plain)
                .then(|| value.to_owned())
        };
        Self { etag: read("etag"), last_modified: read("last-modified") }
    }

    /// Returns whether there is none.
    pub fn is_empty(&self) -> bool {
        self.etag.is_none() && self.last_modified.is_none()
    }

    /// Returns whether a 304 with `headers` is about the page with these validators: it names no
    /// other `ETag`.
    pub fn are_confirmed_by(&self, headers: &[Header]) -> bool {
        let weak = |tag: &str| tag.trim().trim_start_matches("W/").to_owned();
        match (&self.etag, header(headers, "etag")) {
            (Some(own), Some(named)) => weak(own) == weak(named),
            _ => true,
        }
    }
}
