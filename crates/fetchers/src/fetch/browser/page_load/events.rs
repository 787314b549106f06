//! The events of Chromium that the state machine reads, with one type per event.
//!
//! A newer Chromium may omit fields that are not needed here; an event without a needed field does
//! not parse.

use serde::Deserialize;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct WillBeSent {
    pub(super) request_id: String,
    #[serde(default)]
    pub(super) loader_id: String,
    pub(super) frame_id: Option<String>,
    #[serde(rename = "type")]
    pub(super) kind: Option<String>,
    pub(super) request: Target,
}

#[derive(Deserialize)]
pub(super) struct Target {
    pub(super) url: String,
}

#[derive(Deserialize)]
pub(super) struct Received {
    pub(super) response: ReceivedResponse,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ReceivedResponse {
    pub(super) url: String,
    #[serde(default)]
    pub(super) from_disk_cache: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ExtraInfo {
    pub(super) request_id: String,
    pub(super) status_code: Option<u16>,
    #[serde(default)]
    pub(super) headers: serde_json::Map<String, serde_json::Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Data {
    pub(super) request_id: String,
    pub(super) data_length: u64,
    #[serde(default)]
    pub(super) encoded_data_length: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Finished {
    pub(super) request_id: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Failed {
    pub(super) request_id: String,
    #[serde(default)]
    pub(super) error_text: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Paused {
    pub(super) request_id: String,
    pub(super) network_id: Option<String>,
    pub(super) frame_id: Option<String>,
    pub(super) resource_type: Option<String>,
    pub(super) request: Outgoing,
    pub(super) response_error_reason: Option<String>,
    pub(super) response_status_code: Option<u16>,
    pub(super) response_headers: Option<Vec<HeaderEntry>>,
}

/// A request before it goes out, or the one behind a response.
#[derive(Deserialize)]
pub(super) struct Outgoing {
    pub(super) url: String,
    #[serde(default)]
    pub(super) method: String,
    #[serde(default)]
    pub(super) headers: serde_json::Map<String, serde_json::Value>,
}

impl Paused {
    /// Returns whether the request has not gone out yet.
    pub(super) fn is_outgoing(&self) -> bool {
        self.response_status_code.is_none() && self.response_error_reason.is_none()
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct AuthRequired {
    pub(super) request_id: String,
    pub(super) auth_challenge: Challenge,
}

#[derive(Deserialize)]
pub(super) struct Challenge {
    pub(super) source: Option<String>,
}

#[derive(Deserialize)]
pub(super) struct HeaderEntry {
    pub(super) name: String,
    pub(super) value: String,
}

#[derive(Deserialize)]
pub(super) struct Navigated {
    pub(super) frame: Frame,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Frame {
    pub(super) parent_id: Option<String>,
    #[serde(default)]
    pub(super) loader_id: String,
    pub(super) unreachable_url: Option<String>,
}

#[derive(Deserialize)]
pub(super) struct Dialog {
    #[serde(rename = "type")]
    pub(super) kind: String,
}
