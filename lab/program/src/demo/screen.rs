//! The terminal of the demo: draws ten times per second, and reads two keys.
//!
//! Invariants: the terminal is restored at the end, even after a panic.
//!
//! Must not know: what is drawn.

use std::io;
use std::time::Duration;

use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};

use super::view;
use crate::demo::shared_model::SharedModel;
use crate::shutdown::Stop;

/// The time between two frames.
const FRAME: Duration = Duration::from_millis(100);

/// Draws until the show is over or the user quits.
pub(super) fn run(show: &SharedModel, stop: &Stop) -> io::Result<()> {
    let mut terminal = ratatui::try_init()?;
    let drawn = (|| {
        while !show.is_over() && *stop.borrow() == 0 {
            // The model keeps changing while a copy is drawn.
            let model = show.model().clone();
            terminal.draw(|frame| view::draw(frame, &model))?;
            if event::poll(FRAME)? {
                match pressed(&event::read()?) {
                    Some(Key::Leave) => break,
                    Some(Key::Stop) => {
                        let mut model = show.model();
                        model.is_stopped = !model.is_stopped;
                    }
                    None => {}
                }
            }
        }
        Ok(())
    })();
    ratatui::try_restore()?;
    drawn
}

enum Key {
    Leave,
    Stop,
}

/// Returns the meaning of a key. In this mode Ctrl-C is a key, not a signal.
fn pressed(event: &Event) -> Option<Key> {
    let Event::Key(key) = event else { return None };
    if key.kind != KeyEventKind::Press {
        return None;
    }
    // A terminal without a keyboard sends Ctrl with some keys, without a meaning.
    match (key.code, key.modifiers) {
        (KeyCode::Char('c'), KeyModifiers::CONTROL) => Some(Key::Leave),
        (KeyCode::Char('q') | KeyCode::Esc, KeyModifiers::NONE) => Some(Key::Leave),
        (KeyCode::Char('p' | ' '), KeyModifiers::NONE) => Some(Key::Stop),
        _ => None,
    }
}
