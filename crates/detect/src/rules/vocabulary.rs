//! Meanings of titles, buttons and labels on block pages.
//!
//! Must not know: any word of any language.

use crate::rules::concepts::Concepts;
use crate::rules::word_scan::Meanings;

/// Sets of meanings by their use.
#[derive(Debug)]
pub(crate) struct Vocabulary {
    title: Meanings,
    pub(crate) button: Meanings,
    about: Meanings,
    pub(crate) reference: Meanings,
    /// Set for short sentences; no word has it.
    pub(crate) short: Meanings,
    /// Set for sentences with a number; no word has it.
    pub(crate) digits: Meanings,
    /// Set for sentences with a mail address, and with a URL; no word has them.
    pub(crate) mailed: Meanings,
    pub(crate) linked: Meanings,
    /// The sentence addresses the visitor.
    pub(crate) yours: Meanings,
    /// Words of a page's frame: a loading note, a copyright line, a cookie note.
    pub(crate) frame: Meanings,
    /// What block pages are about.
    topic: Meanings,
    /// Something is not let through; what stands between a visitor and a site; a filter's
    /// categories and what they are about.
    withheld: Meanings,
    between: Meanings,
    category: Meanings,
    subject: Meanings,
    /// What a filter says of itself, or who keeps it.
    filter: Meanings,
    /// Topics of block pages, whatever they say about them.
    pub(crate) talk: Meanings,
}

impl Vocabulary {
    pub(crate) fn of(concepts: &Concepts) -> Self {
        let named = |names: &[&str]| concepts.named(names);
        Self {
            title: named(&[
                "robot", "captcha", "refused", "unusual", "toomany", "seccheck", "vpn", "not",
            ]),
            button: named(&["retry", "prove", "solve", "not"]),
            about: named(&["about"]),
            short: named(&["short"]),
            digits: named(&["digits"]),
            mailed: named(&["mailed"]),
            linked: named(&["linked"]),
            yours: named(&["yours"]),
            frame: named(&["loading", "cookies", "script", "wait"]),
            topic: named(&[
                "robot", "captcha", "refused", "unusual", "toomany", "vpn", "seccheck", "not",
            ]),
            reference: named(&["reference", "ip"]),
            withheld: named(&["refused", "unopened", "closed", "disabled"]),
            between: named(&["barrier", "proxy", "isp", "net"]),
            category: named(&["category"]),
            subject: named(&["topic"]),
            filter: named(&["acl", "category", "keeper", "barrier", "proxy", "isp", "net"]),
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

    /// Returns whether texts with these meanings may be about block pages.
    pub(crate) fn is_about(&self, meanings: Meanings) -> bool {
        meanings & self.about != 0
    }

    /// Returns whether a text with these meanings may refuse its reader: it is about something that
    /// block pages are about, and it addresses the reader or names an address. A museum forbids
    /// dogs to nobody in particular.
    pub(crate) fn may_refuse(&self, meanings: Meanings) -> bool {
        meanings & self.topic != 0 && meanings & (self.yours | self.reference) != 0
    }

    /// Returns whether a page with these meanings, which names the site that was asked for, may be
    /// of what stands between: it withholds something, and names a filter, a provider or a network,
    /// or the topic of a category.
    pub(crate) fn may_withhold(&self, meanings: Meanings) -> bool {
        let files = meanings & self.category != 0 && meanings & self.subject != 0;
        meanings & self.withheld != 0 && (meanings & self.between != 0 || files)
    }

    /// Returns whether a sentence with these meanings withholds something and names a host.
    pub(crate) fn withholds_host(&self, meanings: Meanings) -> bool {
        meanings & self.withheld != 0 && meanings & self.linked != 0
    }

    /// Returns whether a page with these meanings names what a filter says of itself.
    pub(crate) fn names_filter(&self, meanings: Meanings) -> bool {
        meanings & self.filter != 0
    }

    /// Returns whether a title with these meanings hints at a block in a large frame.
    pub(crate) fn is_title(&self, meanings: Meanings) -> bool {
        meanings & self.title != 0 && meanings & self.about == 0
    }
}
