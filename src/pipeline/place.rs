//! The place of a link under its caller's limit of parallel links.
//!
//! Invariants: a link that waits holds no place. It takes one again before it goes on, before links that have not begun.
//!
//! Must not know: why a link waits.

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The places of links that are fetched at the same time.
#[derive(Clone, Debug)]
pub struct Places {
    free: Arc<Semaphore>,
}

/// The place of a link: see [`Pipeline::fetch_in_place`](super::Pipeline::fetch_in_place).
#[derive(Debug)]
pub struct Place {
    /// `None` if there is no limit.
    places: Option<Arc<Semaphore>>,
    held: Mutex<Option<OwnedSemaphorePermit>>,
}

impl Places {
    /// Returns `count` free places.
    pub fn new(count: usize) -> Self {
        Self { free: Arc::new(Semaphore::new(count.min(Semaphore::MAX_PERMITS))) }
    }

    /// Takes a place if one is free.
    pub fn try_take(&self) -> Option<Place> {
        Arc::clone(&self.free).try_acquire_owned().ok().map(|permit| self.place(permit))
    }

    /// Takes a place as soon as one is free.
    pub async fn take(&self) -> Place {
        // The semaphore is never closed. If it were, there would be no limit.
        let permit = Arc::clone(&self.free).acquire_owned().await;
        permit.map_or_else(|_| Place::unlimited(), |permit| self.place(permit))
    }

    fn place(&self, permit: OwnedSemaphorePermit) -> Place {
        Place { places: Some(Arc::clone(&self.free)), held: Mutex::new(Some(permit)) }
    }
}

impl Place {
    /// Returns a place that is always free.
    pub fn unlimited() -> Self {
        Self { places: None, held: Mutex::new(None) }
    }

    /// Waits without the place.
    pub(super) async fn leave_during<T>(&self, wait: impl Future<Output = T>) -> T {
        self.hold(None);
        let result = wait.await;
        if let Some(places) = &self.places {
            self.hold(Arc::clone(places).acquire_owned().await.ok());
        }
        result
    }

    fn hold(&self, permit: Option<OwnedSemaphorePermit>) {
        *self.held.lock().unwrap_or_else(PoisonError::into_inner) = permit;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_place_is_free_while_its_link_waits() {
        let places = Places::new(1);
        let first = places.try_take().unwrap();
        assert!(places.try_take().is_none());
        let taken = first.leave_during(async { places.try_take().is_some() }).await;
        assert!(taken && places.try_take().is_none(), "it is free during the wait, and taken again after it");
        drop(first);
        assert!(places.try_take().is_some());
    }
}
