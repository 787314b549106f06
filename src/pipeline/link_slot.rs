//! The slot of a link under its caller's limit of parallel links.
//!
//! Invariants: a link that waits for its host holds no slot. It takes one again before it goes on,
//! before links that have not begun.
//!
//! Must not know: why a link waits.

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The slots of links that are fetched at the same time.
#[derive(Clone, Debug)]
pub struct LinkSlots {
    free: Arc<Semaphore>,
}

/// The slot of a link: see [`Pipeline::fetch_in_slot`](super::Pipeline::fetch_in_slot).
#[derive(Debug)]
pub struct LinkSlot {
    /// `None` if there is no limit.
    slots: Option<Arc<Semaphore>>,
    held: Mutex<Option<OwnedSemaphorePermit>>,
}

impl LinkSlots {
    /// Returns `count` free slots.
    pub fn new(count: usize) -> Self {
        Self { free: Arc::new(Semaphore::new(count.min(Semaphore::MAX_PERMITS))) }
    }

    /// Takes a slot if one is free.
    pub fn try_take(&self) -> Option<LinkSlot> {
        Arc::clone(&self.free).try_acquire_owned().ok().map(|permit| self.slot(permit))
    }

    /// Takes a slot as soon as one is free.
    pub async fn take(&self) -> LinkSlot {
        // The semaphore is never closed. If it were, there would be no limit.
        let permit = Arc::clone(&self.free).acquire_owned().await;
        permit.map_or_else(|_| LinkSlot::unlimited(), |permit| self.slot(permit))
    }

    fn slot(&self, permit: OwnedSemaphorePermit) -> LinkSlot {
        LinkSlot { slots: Some(Arc::clone(&self.free)), held: Mutex::new(Some(permit)) }
    }
}

impl LinkSlot {
    /// Returns a slot that is always free.
    pub fn unlimited() -> Self {
        Self { slots: None, held: Mutex::new(None) }
    }

    /// Waits without the slot.
    pub(super) async fn leave_during<T>(&self, wait: impl Future<Output = T>) -> T {
        self.hold(None);
        let result = wait.await;
        if let Some(slots) = &self.slots {
            self.hold(Arc::clone(slots).acquire_owned().await.ok());
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
    async fn a_slot_is_free_while_its_link_waits() {
        let slots = LinkSlots::new(1);
        let first = slots.try_take().unwrap();
        assert!(slots.try_take().is_none());
        let taken = first.leave_during(async { slots.try_take().is_some() }).await;
        assert!(
            taken && slots.try_take().is_none(),
            "it is free during the wait, and taken again after it"
        );
        drop(first);
        assert!(slots.try_take().is_some());
    }
}
