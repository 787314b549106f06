//! Whether a page has settled: its network is quiet, and its main thread no longer adds to the
//! document.
//!
//! A quiet network alone says little on a busy machine, because a script that has had no processor
//! time makes no requests.
//!
//! Must not know: the connection to the browser.

use std::time::{Duration, Instant};

/// Looks at what the page shows, once its main thread has come around.
pub(super) const LOOK: &str = include_str!("settle.js");

/// The maximum number of looks at a page that keeps changing, such as one with a carousel.
const MAX_LOOKS: u32 = 10;
/// A look that takes longer than this found the main thread busy.
const BUSY_LOOK: Duration = Duration::from_millis(400);
/// A page with fewer visible characters is short.
const SHORT: u64 = 200;
/// A change of at most this many characters is a clock or a counter.
const MAX_TICK: u64 = 16;

/// The looks at a page.
#[derive(Debug, Default)]
pub(super) struct SettleCheck {
    looks: u32,
    last: Option<Look>,
}

/// What a page showed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Look {
    elements: u64,
    text: u64,
    took: Duration,
    visible: u64,
    runs: bool,
}

impl Look {
    /// Parses the result of [`LOOK`]; none if the document was replaced meanwhile.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.split(' ').map(|number| number.parse::<u64>().ok());
        let (elements, text, ms) = (numbers.next()??, numbers.next()??, numbers.next()??);
        let (visible, runs) = (numbers.next()??, numbers.next()?? != 0);
        Some(Self { elements, text, took: Duration::from_millis(ms), visible, runs })
    }

    /// Returns whether the page has visible text.
    pub(super) fn has_text(&self) -> bool {
        self.visible > 0
    }

    /// Returns whether the page has so little visible text that a frame of it may be all that has
    /// come.
    pub(super) fn is_short(&self) -> bool {
        self.visible < SHORT
    }

    /// Returns whether something in the page may change it: a script, a refresh, a frame.
    pub(super) fn may_change(&self) -> bool {
        self.runs
    }

    /// Returns whether the page showed the same before.
    pub(super) fn shows_same(&self, before: &Self) -> bool {
        before.elements == self.elements && before.text.abs_diff(self.text) <= MAX_TICK
    }
}

/// The wait for a page that has nothing to read yet: until it shows something else, and goes on to
/// show that.
#[derive(Debug)]
pub(super) struct ChangeCheck {
    last: Look,
    /// Time since which it shows the same, once it has changed.
    changed: Option<Instant>,
}

impl ChangeCheck {
    /// Starts with what the page shows.
    pub(super) fn new(last: Look) -> Self {
        Self { last, changed: None }
    }

    /// Records a look, and returns whether the page has changed and has shown the same for `quiet`
    /// since.
    pub(super) fn has_changed(&mut self, look: Look, quiet: Duration, now: Instant) -> bool {
        let is_same = look.shows_same(&self.last);
        self.last = look;
        if !is_same {
            self.changed = Some(now);
        }
        is_same && self.changed.is_some_and(|at| now.saturating_duration_since(at) >= quiet)
    }
}

impl SettleCheck {
    /// Returns the last look.
    pub(super) fn last(&self) -> Option<Look> {
        self.last
    }

    /// Records a look, and returns whether the page has settled.
    pub(super) fn has_settled(&mut self, look: Look) -> bool {
        self.looks += 1;
        let before = self.last.replace(look);
        if self.looks >= MAX_LOOKS {
            return true;
        }
        let is_same = before.is_none_or(|before| look.shows_same(&before));
        // The first look has nothing to compare with. If the main thread was free, nothing waits to
        // run.
        is_same && look.took <= BUSY_LOOK
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(text: &str) -> Look {
        Look::parse(&format!("{text} 9 1")).unwrap()
    }

    #[test]
    fn a_change_counts_once_the_page_goes_on_to_show_it() {
        let (start, quiet) = (Instant::now(), Duration::from_millis(500));
        let mut check = ChangeCheck::new(look("4 10 101"));
        let mut at =
            |ms, shown| check.has_changed(look(shown), quiet, start + Duration::from_millis(ms));
        assert!(!at(900, "4 12 101"), "a clock ticks");
        assert!(!at(1_000, "5 400 101"));
        assert!(!at(1_400, "5 900 101"), "it grows");
        assert!(!at(1_800, "5 900 101"));
        assert!(at(1_900, "5 901 101"));
    }

    #[test]
    fn a_look_tells_what_is_visible_and_what_may_change() {
        let of = |text| Look::parse(text).unwrap();
        assert!(of("4 10 101 3 0").has_text() && !of("4 10 101 0 1").has_text());
        assert!(of("4 10 101 3 1").may_change() && !of("4 10 101 0 0").may_change());
        assert_eq!(Look::parse("4 10 101"), None);
    }

    #[test]
    fn a_free_main_thread_settles_at_once_and_a_busy_one_is_looked_at_again() {
        assert!(SettleCheck::default().has_settled(look("40 900 101")));
        let mut busy = SettleCheck::default();
        assert!(!busy.has_settled(look("4 10 2300")), "scripts waited for the processor");
        assert!(!busy.has_settled(look("90 4000 101")), "and have changed the page since");
        assert!(busy.has_settled(look("90 4001 101")));
    }

    #[test]
    fn a_page_that_never_stops_changing_is_read_at_last() {
        let mut page = SettleCheck::default();
        page.has_settled(look("4 10 900"));
        let looks =
            (0..20).take_while(|n| !page.has_settled(look(&format!("{} 10 101", 5 + n)))).count();
        assert_eq!(looks, MAX_LOOKS as usize - 2);
        assert_eq!((Look::parse(""), Look::parse("1 x 3")), (None, None));
    }
}
