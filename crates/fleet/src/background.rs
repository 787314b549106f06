//! What takes long, done by another thread.

use crate::error::FleetError;

/// Does what takes long beside everything else.
pub(crate) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, FleetError> {
    tokio::task::spawn_blocking(work).await.map_err(|_| FleetError::Ended)
}
