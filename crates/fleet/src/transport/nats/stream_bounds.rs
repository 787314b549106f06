//! The bounds of streams, and the recreation of missing ones.
//!
//! Invariants: an incarnation is trusted only as of the last check.
//!
//! Must not know: the content of messages and cells.

use std::sync::atomic::Ordering;
use std::time::Instant;

use async_nats::jetstream::message::StreamMessage;
use async_nats::jetstream::stream::LastRawMessageErrorKind;

use super::error::{ApiError, api_error, other_error};
use crate::transport::nats::connection::Connection;
use crate::transport::nats::provision;
use crate::transport::nats::stream_info::StreamInfo;
use crate::transport::{StreamBounds, TransportError};

impl Connection {
    /// Returns the last message of a subject, as the stream's leader has it.
    pub(super) async fn last_of(
        &self,
        name: &str,
        subject: &str,
    ) -> Result<Option<StreamMessage>, TransportError> {
        self.connected()?;
        let begun = Instant::now();
        let stream =
            self.js.get_stream_no_info(name).await.map_err(|error| other_error(&error, name))?;
        match stream.get_last_raw_message_by_subject(subject).await {
            Ok(message) => Ok(Some(message)),
            Err(error) => match error.kind() {
                LastRawMessageErrorKind::NoMessageFound => Ok(None),
                LastRawMessageErrorKind::JetStream(answer) => {
                    let answer = ApiError {
                        code: u16::try_from(answer.code()).unwrap_or_default(),
                        err_code: answer.error_code().0,
                        description: answer.to_string(),
                    };
                    match api_error(&answer, name) {
                        TransportError::Missing(_) => Err(self.no_listener(name).await),
                        error => Err(error),
                    }
                }
                _ => Err(self
                    .forbidden(begun, &format!("STREAM.MSG.GET.{name}"))
                    .unwrap_or_else(|| other_error(&error, name))),
            },
        }
    }

    /// Returns the bounds of a stream. A missing one is created if this node may do so.
    pub(super) async fn bounds_of(&self, stream: &str) -> Result<StreamBounds, TransportError> {
        self.info_of(stream).await?.bounds()
    }

    /// Works like [`bounds_of`](Self::bounds_of), with all that the broker reports.
    pub(super) async fn info_of(&self, stream: &str) -> Result<StreamInfo, TransportError> {
        for is_again in [false, true] {
            match self
                .api_request::<StreamInfo>(
                    &format!("STREAM.INFO.{stream}"),
                    &serde_json::json!({}),
                    stream,
                )
                .await?
            {
                Ok(info) => return Ok(info),
                Err(error) => match api_error(&error, stream) {
                    TransportError::Missing(_) if self.settings.make && !is_again => {
                        self.recreate_missing().await?
                    }
                    error => return Err(error),
                },
            }
        }
        Err(TransportError::Missing(stream.to_owned()))
    }

    /// Returns the bounds of the message stream.
    pub(super) async fn bounds(&self) -> Result<StreamBounds, TransportError> {
        let bounds = self.bounds_of(&self.names.stream()).await?;
        self.incarnation.store(bounds.incarnation, Ordering::Relaxed);
        self.newest.store(bounds.last, Ordering::Relaxed);
        Ok(bounds)
    }

    /// Returns the incarnation in which a message was just stored at `seq`. A sequence number that
    /// is not beyond the known ones belongs to another stream than the checked one.
    pub(super) async fn incarnation_at(
        &self,
        seq: u64,
        is_duplicate: bool,
    ) -> Result<u64, TransportError> {
        let (known, newest) = (
            self.incarnation.load(Ordering::Relaxed),
            self.newest.fetch_max(seq, Ordering::Relaxed),
        );
        // Concurrent messages are acknowledged in any order.
        if known != 0 && (is_duplicate || seq.saturating_add(4096) > newest) {
            return Ok(known);
        }
        Ok(self.bounds().await?.incarnation)
    }

    /// Creates everything that is missing, if this node may do so.
    pub(super) async fn recreate_missing(&self) -> Result<(), TransportError> {
        if !self.settings.make {
            return Ok(());
        }
        // A second caller finds what the first one has created.
        let _making = self.creating.lock().await;
        provision::create_missing(self).await
    }

    /// Handles a subject without a listener: returns whether its stream is missing, and creates it
    /// if this node may do so.
    pub(super) async fn no_listener(&self, stream: &str) -> TransportError {
        match self.bounds_of(stream).await {
            Ok(_) => TransportError::Away(format!(
                "{stream} did not accept it: it was just created or has no leader"
            )),
            Err(error) => error,
        }
    }
}
