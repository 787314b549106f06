//! Which meanings titles, buttons and labels of walls have. Knows names of meanings, and no word of any language.

use crate::concepts::{Concepts, Meanings};

/// What titles, headings and buttons of walls are about.
#[derive(Debug)]
pub(crate) struct Vocabulary {
    title: Meanings,
    pub(crate) button: Meanings,
    about: Meanings,
    pub(crate) reference: Meanings,
    /// No word means it: a sentence is short.
    pub(crate) short: Meanings,
    /// Who reads is spoken to.
    pub(crate) yours: Meanings,
    /// What walls talk of, whatever they say of it.
    pub(crate) talk: Meanings,
}

impl Vocabulary {
    pub(crate) fn of(concepts: &Concepts) -> Self {
        let named = |names: &[&str]| concepts.named(names);
        Self {
            title: named(&["robot", "captcha", "refused", "unusual", "toomany", "seccheck", "vpn", "not"]),
            button: named(&["retry", "prove", "solve", "not"]),
            about: named(&["about"]),
            short: named(&["short"]),
            yours: named(&["yours"]),
            reference: named(&["reference", "ip"]),
            talk: named(&[
                "robot",
                "captcha",
                "refused",
                "unusual",
                "toomany",
                "vpn",
                "security",
                "attack",
                "retry",
                "wait",
                "contact",
                "mistake",
                "sorry",
                "script",
                "cookies",
                "browser",
                "reference",
                "help",
            ]),
        }
    }

    /// Whether texts with these meanings may be about walls.
    pub(crate) fn is_about(&self, meanings: Meanings) -> bool {
        meanings & self.about != 0
    }

    /// Whether a title with these meanings gives reason to look for a wall in a large frame.
    pub(crate) fn is_title(&self, meanings: Meanings) -> bool {
        meanings & self.title != 0 && meanings & self.about == 0
    }
}
