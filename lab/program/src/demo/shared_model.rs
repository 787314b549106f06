//! The shared progress of the demo: crawl tasks write it, the screen draws it, both can end it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::demo::model::DemoModel;

/// The progress of the demo, shared by the crawl tasks and the screen.
pub(super) struct SharedModel {
    model: Mutex<DemoModel>,
    is_over: AtomicBool,
}

impl SharedModel {
    pub(super) fn new(model: DemoModel) -> Self {
        Self { model: Mutex::new(model), is_over: AtomicBool::new(false) }
    }

    /// Returns the progress. It stays readable after a panic of a task that wrote it.
    pub(super) fn model(&self) -> MutexGuard<'_, DemoModel> {
        self.model.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the demo. Relaxed: a task that sees it late makes one more request or draws one more
    /// frame.
    pub(super) fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }
}
