//! The story while it happens: told by the tasks that crawl, drawn by the screen, ended by either.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::commands::demo::model::Story;

/// What is going on, for the tasks that make it happen and for the screen.
pub(super) struct Show {
    story: Mutex<Story>,
    is_over: AtomicBool,
}

impl Show {
    pub(super) fn new(story: Story) -> Self {
        Self { story: Mutex::new(story), is_over: AtomicBool::new(false) }
    }

    /// The story so far. A task that panicked while it told something leaves a story that can still be read.
    pub(super) fn story(&self) -> MutexGuard<'_, Story> {
        self.story.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nothing more will happen. Relaxed: who sees it late asks for one more page, or draws one more picture.
    pub(super) fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }
}
