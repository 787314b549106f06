//! The shared progress of the demo: crawl tasks write it, the screen draws it, both can end it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::commands::demo::model::Story;

/// The progress of the demo, shared by the crawl tasks and the screen.
pub(super) struct Show {
    story: Mutex<Story>,
    is_over: AtomicBool,
}

impl Show {
    pub(super) fn new(story: Story) -> Self {
        Self { story: Mutex::new(story), is_over: AtomicBool::new(false) }
    }

    /// Returns the progress. It stays readable after a panic of a task that wrote it.
    pub(super) fn story(&self) -> MutexGuard<'_, Story> {
        self.story.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the demo. Relaxed: a task that sees it late makes one more request or draws one more frame.
    pub(super) fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }
}
