//! The grades of rules: what a rule proves, how much text takes it away, how sure it is. Knows no rule and no page.

use serde::Deserialize;

/// How much a rule proves, and so where it stands in the decision order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Grade {
    /// A header by which the vendor says that it answered instead of the site.
    Mitigated,
    /// A marker that only block pages carry.
    Strong,
    /// An exact challenge title.
    Title,
    /// A challenge sentence.
    Sentence,
    /// A widget that ordinary pages carry too; proves something on a nearly empty page only.
    Weak,
    /// A script that sets a cookie and loads the page again, or a refresh to a challenge.
    Shell,
    /// Names who refused, when the status is a refusal.
    Refusal,
    /// A waiting room.
    Queue,
    /// The vendor is there. Evidence of nothing.
    Presence,
    /// A script framework is there.
    Spa,
    /// The text goes on for subscribers only.
    Paywall,
    /// A title that says the page does not exist.
    NotFound,
    /// A hint at a wall, too weak to be one: a page with next to nothing else is not taken for all that there is.
    Cue,
}

impl Grade {
    /// Its name in rule files and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mitigated => "mitigated",
            Self::Strong => "strong",
            Self::Title => "title",
            Self::Sentence => "sentence",
            Self::Weak => "weak",
            Self::Shell => "shell",
            Self::Refusal => "refusal",
            Self::Queue => "queue",
            Self::Presence => "presence",
            Self::Spa => "spa",
            Self::Paywall => "paywall",
            Self::NotFound => "not_found",
            Self::Cue => "cue",
        }
    }

    /// Whether it is evidence of a block by itself.
    pub(crate) const fn blocks(self) -> bool {
        matches!(self, Self::Mitigated | Self::Strong | Self::Title | Self::Sentence | Self::Weak | Self::Shell)
    }

    /// Whether a page where it is seen may be a wall or a waiting room.
    pub(crate) const fn is_of_walls(self) -> bool {
        self.blocks() || matches!(self, Self::Queue | Self::Cue)
    }

    /// The most visible characters beside which a rule of this grade proves something, unless it says so itself.
    pub(crate) const fn default_max_visible_chars(self) -> u32 {
        match self {
            Self::Mitigated => 5_000,
            Self::Strong => 1_500,
            Self::Title | Self::Queue => 3_000,
            Self::Sentence => 1_000,
            Self::Weak => 250,
            Self::Shell => 60,
            Self::Spa | Self::Cue => 200,
            Self::NotFound => 600,
            Self::Paywall => 6_000,
            Self::Refusal | Self::Presence => u32::MAX,
        }
    }

    /// How sure a verdict by a rule of this grade is, unless the rule says so itself.
    pub(crate) const fn default_confidence(self) -> f32 {
        match self {
            Self::Mitigated => 0.99,
            Self::Strong => 0.98,
            Self::Title => 0.95,
            Self::Refusal | Self::Queue => 0.95,
            Self::Sentence => 0.9,
            Self::Shell => 0.85,
            Self::Weak => 0.75,
            Self::Spa => 0.95,
            _ => 0.5,
        }
    }
}
