//! The terminal: drawn some times a second, and two keys. Must not know what the picture shows.
//!
//! However it ends, a panic among the ways, the terminal is as it was before.

use std::io;
use std::time::Duration;

use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};

use super::view;
use crate::commands::demo::shared_model::Show;
use crate::commands::fetch::shutdown::Stop;

/// Time between two pictures.
const FRAME: Duration = Duration::from_millis(100);

/// Draws the show until it is over, or somebody wants to leave.
pub(super) fn run(show: &Show, stop: &Stop) -> io::Result<()> {
    let mut terminal = ratatui::try_init()?;
    let drawn = (|| {
        while !show.is_over() && *stop.borrow() == 0 {
            // The story goes on while the picture is drawn.
            let story = show.story().clone();
            terminal.draw(|frame| view::draw(frame, &story))?;
            if event::poll(FRAME)? {
                match pressed(&event::read()?) {
                    Some(Key::Leave) => break,
                    Some(Key::Stop) => {
                        let mut story = show.story();
                        story.is_stopped = !story.is_stopped;
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

/// What a key means. In this mode Ctrl-C is a key, and no signal.
fn pressed(event: &Event) -> Option<Key> {
    let Event::Key(key) = event else { return None };
    if key.kind != KeyEventKind::Press {
        return None;
    }
    // A terminal without a keyboard behind it sends Ctrl with something, and means nothing by it.
    match (key.code, key.modifiers) {
        (KeyCode::Char('c'), KeyModifiers::CONTROL) => Some(Key::Leave),
        (KeyCode::Char('q') | KeyCode::Esc, KeyModifiers::NONE) => Some(Key::Leave),
        (KeyCode::Char('p' | ' '), KeyModifiers::NONE) => Some(Key::Stop),
        _ => None,
    }
}
