//! Whether a page has settled: its network is quiet, and its main thread no longer adds to the document.
//!
//! A quiet network alone says little on a busy machine, because a script that has had no processor time makes no
//! requests.
//!
//! Must not know: the connection to the browser.

use std::time::Duration;

/// Looks at what the page shows, once its main thread has come around.
pub(super) const LOOK: &str = include_str!("settle.js");

/// The maximum number of looks at a page that keeps changing, such as one with a carousel.
const MAX_LOOKS: u32 = 10;
/// A look that takes longer than this found the main thread busy.
const BUSY_LOOK: Duration = Duration::from_millis(400);
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
}

impl Look {
    /// Parses the result of [`LOOK`]; none if the document was replaced meanwhile.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.split(' ').map(|number| number.parse::<u64>().ok());
        let (elements, text, ms) = (numbers.next()??, numbers.next()??, numbers.next()??);
        Some(Self { elements, text, took: Duration::from_millis(ms) })
    }
}

impl SettleCheck {
    /// Records a look, and returns whether the page has settled.
    pub(super) fn has_settled(&mut self, look: Look) -> bool {
        self.looks += 1;
        let before = self.last.replace(look);
        if self.looks >= MAX_LOOKS {
            return true;
        }
        let is_same =
            before.is_none_or(|before| before.elements == look.elements && before.text.abs_diff(look.text) <= MAX_TICK);
        // The first look has nothing to compare with. If the main thread was free, nothing waits to run.
        is_same && look.took <= BUSY_LOOK
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(text: &str) -> Look {
        Look::parse(text).unwrap()
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
        let looks = (0..20).take_while(|n| !page.has_settled(look(&format!("{} 10 101", 5 + n)))).count();
        assert_eq!(looks, MAX_LOOKS as usize - 2);
        assert_eq!((Look::parse(""), Look::parse("1 x 3")), (None, None));
    }
}
