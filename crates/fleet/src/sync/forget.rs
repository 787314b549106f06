//! Domains that all nodes of a pool forget: one cell per domain.

use fetchwise::time::Timestamp;
use serde::{Deserialize, Serialize};

use crate::transport::{Table, Transport, TransportError};

/// A cell of the table of forgotten domains.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct ForgetCell {
    /// The time up to which everything is forgotten, in milliseconds since 1970.
    pub until: i64,
}

/// Notifies all nodes that a domain is forgotten up to a time.
///
/// # Errors
/// Returns errors of the broker.
pub async fn notify_forgotten(
    transport: &dyn Transport,
    domain: &str,
    until: Timestamp,
) -> Result<(), TransportError> {
    let held = transport.cells().get(Table::Forget, domain).await?;
    let known = held.and_then(|cell| serde_json::from_slice::<ForgetCell>(&cell.value).ok());
    if known.is_some_and(|known| known.until >= until.as_millis()) {
        return Ok(());
    }
    let value = serde_json::to_vec(&ForgetCell { until: until.as_millis() }).unwrap_or_default();
    transport.cells().put(Table::Forget, domain, value.into()).await.map(|_| ())
}
