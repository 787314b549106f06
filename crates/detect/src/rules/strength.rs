//! Grades of rules: what a rule proves, with how much text it holds, and how sure it is.
//!
//! Must not know: any rule or page.

use serde::Deserialize;

/// The strength of a rule, which gives its place in the order of decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Grade {
    /// A header by which the vendor says that it responded instead of the site.
    Mitigated,
    /// A marker that only block pages contain.
    Strong,
    /// An exact challenge title.
    Title,
    /// A challenge sentence.
    Sentence,
    /// A widget that ordinary pages also contain; it proves something on a nearly empty page only.
    Weak,
    /// A script that sets a cookie and reloads the page, or a refresh to a challenge.
    Shell,
    /// The name of the refusing vendor, if the status is a refusal.
    Refusal,
    /// The name of a product of networks: what refuses is not the site.
    Network,
    /// The page is content, whatever else indicates the opposite: an operator's correction.
    Content,
    /// The server's own failure, which refuses nobody.
    Failure,
    /// A waiting room.
    Queue,
    /// The vendor is present. No evidence of a block.
    Presence,
    /// A script framework is present.
    Spa,
    /// The text continues for subscribers only.
    Paywall,
    /// A title that says that the page does not exist.
    NotFound,
    /// A hint at a block, too weak to make one: a page with next to nothing else may not be all
    /// that there is.
    Cue,
}

impl Grade {
    /// Returns its name in rule files and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mitigated => "mitigated",
            Self::Strong => "strong",
            Self::Title => "title",
            Self::Sentence => "sentence",
            Self::Weak => "weak",
            Self::Shell => "shell",
            Self::Refusal => "refusal",
            Self::Network => "network",
            Self::Content => "content",
            Self::Failure => "failure",
            Self::Queue => "queue",
            Self::Presence => "presence",
            Self::Spa => "spa",
            Self::Paywall => "paywall",
            Self::NotFound => "not_found",
            Self::Cue => "cue",
        }
    }

    /// Returns whether it is evidence of a block by itself.
    pub(crate) const fn blocks(self) -> bool {
        matches!(
            self,
            Self::Mitigated
                | Self::Strong
                | Self::Title
                | Self::Sentence
                | Self::Weak
                | Self::Shell
        )
    }

    /// Returns whether a page that matches it may be a block or a waiting room.
    pub(crate) const fn concerns_blocks(self) -> bool {
        self.blocks() || matches!(self, Self::Queue | Self::Cue)
    }

    /// Returns the default limit of visible characters on a page where a rule of this grade holds.
    pub(crate) const fn default_max_visible_chars(self) -> u32 {
        match self {
            Self::Mitigated => 5_000,
            Self::Strong => 1_500,
            Self::Title | Self::Queue => 3_000,
            Self::Sentence | Self::Network => 1_000,
            Self::Failure => 3_000,
            Self::Weak => 250,
            Self::Shell => 60,
            Self::Spa | Self::Cue => 200,
            Self::NotFound => 600,
            Self::Paywall => 6_000,
            Self::Refusal | Self::Presence | Self::Content => u32::MAX,
        }
    }

    /// Returns the default confidence of a verdict by a rule of this grade.
    pub(crate) const fn default_confidence(self) -> f32 {
        match self {
            Self::Mitigated | Self::Content => 0.99,
            Self::Strong => 0.98,
            Self::Title => 0.95,
            Self::Refusal | Self::Queue | Self::Failure => 0.95,
            Self::Sentence => 0.9,
            Self::Shell => 0.85,
            Self::Weak => 0.75,
            Self::Spa => 0.95,
            _ => 0.5,
        }
    }
}
