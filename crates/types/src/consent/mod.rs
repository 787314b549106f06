//! What a site permits: the terms of a page, and whether they permit any purpose of a crawl.
//!
//! Owns: the model ([`Term`], [`Consent`]) and the decision ([`ConsentSettings`]). `read` parses
//! header values, `robots` the groups of robots.txt with their terms and `rsl` those in files of
//! RSL; all need the feature `consent`.
//!
//! Invariants: no input ends in an error. A value that cannot be read says nothing, and what is
//! unknown is permitted.
//!
//! Must not know: how a page is requested, and what happens to one that is reserved.

use std::fmt;
use std::str::FromStr;

#[cfg(feature = "json")]
use serde::{Deserialize, Serialize};

use crate::unknown_name::UnknownName;

#[cfg(feature = "consent")]
mod read;
#[cfg(feature = "consent")]
mod robots;
#[cfg(feature = "consent")]
mod rsl;

#[cfg(feature = "consent")]
pub use read::{header_terms, robots_directives};
#[cfg(feature = "consent")]
pub use robots::{MAX_ROBOTS_BYTES, RobotsGroup, RobotsTerms};
#[cfg(feature = "consent")]
pub use rsl::{MAX_RSL_BYTES, RslTerms};

/// The most terms that are recorded of one page.
pub const MAX_TERMS: usize = 32;

/// Returns the product token at the beginning of a crawler's name, by which sites name it:
/// `ExampleBot` of `ExampleBot/1.0`. Empty if the name begins with anything but a letter, `-` or
/// `_`.
///
/// ```
/// use fetchwise_types::consent::product_token;
/// assert_eq!(product_token("ExampleBot/1.0 (+https://bot.example)"), "ExampleBot");
/// ```
pub fn product_token(name: &str) -> &str {
    let is_token = |c: char| c.is_ascii_alphabetic() || matches!(c, '-' | '_');
    &name[..name.find(|c| !is_token(c)).unwrap_or(name.len())]
}

/// Returns whether a site that writes `name` means the crawler called `agent`: both have the same
/// product token, in any case. A crawler without a product token has its whole name only.
///
/// ```
/// use fetchwise_types::consent::is_named;
/// assert!(is_named("examplebot", "ExampleBot/1.0"));
/// assert!(!is_named("otherbot", "ExampleBot/1.0"));
/// ```
pub fn is_named(name: &str, agent: &str) -> bool {
    let token = product_token(agent);
    match token.is_empty() {
        true => !agent.is_empty() && name.eq_ignore_ascii_case(agent),
        false => product_token(name).eq_ignore_ascii_case(token),
    }
}

/// Returns the terms that are kept of one page: each once, and beyond [`MAX_TERMS`] only those that
/// reserve, since no other is decisive.
pub fn bounded(terms: impl IntoIterator<Item = Term>) -> Vec<Term> {
    let mut kept: Vec<Term> = Vec::new();
    for term in terms {
        let fits = kept.len() < MAX_TERMS || term.allowed == Some(false);
        if fits && !kept.contains(&term) {
            kept.push(term);
        }
    }
    kept
}

macro_rules! names {
    ($(#[$doc:meta])* $type:ident, $what:literal, $($(#[$variant_doc:meta])* $variant:ident = $name:literal,)+) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[cfg_attr(feature = "json", derive(Serialize, Deserialize))]
        pub enum $type {
            $($(#[$variant_doc])* #[cfg_attr(feature = "json", serde(rename = $name))] $variant,)+
        }

        impl $type {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// Returns the name in the config, in JSON and in the log.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)+ }
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.name())
            }
        }

        impl FromStr for $type {
            type Err = UnknownName;

            fn from_str(name: &str) -> Result<Self, UnknownName> {
                let known = Self::ALL.iter().copied().find(|known| known.name() == name);
                known.ok_or_else(|| UnknownName::new($what, name, Self::ALL.iter().map(|known| known.name())))
            }
        }
    };
}

names! {
    /// A purpose for which a crawl collects pages.
    Purpose, "purpose",
    /// A search index that links to the page.
    Search = "search",
    /// The training of a model.
    TrainAi = "train-ai",
    /// Input of a model that responds to a question.
    AiInput = "ai-input",
    /// An archive that shows copies.
    Archive = "archive",
}

names! {
    /// A vocabulary in which sites write terms.
    Vocabulary, "vocabulary of terms",
    /// `Content-Usage` (aipref): `train-ai=n`.
    ContentUsage = "content-usage",
    /// `Content-Signal`: `ai-train=no`.
    ContentSignal = "content-signal",
    /// `X-Robots-Tag` and `<meta name="robots">`: `noindex`.
    XRobotsTag = "x-robots-tag",
    /// Licences in RSL: their addresses, and with [`LicenseUse::Read`] the uses that they permit
    /// and prohibit.
    Rsl = "rsl",
}

names! {
    /// The place at which a term was read.
    TermPlace, "place of terms",
    /// The group of robots.txt for this crawler.
    RobotsTxt = "robots.txt",
    /// A header of the response.
    Header = "header",
    /// A `meta` element of the page.
    Meta = "meta",
}

names! {
    /// What happens to a page that is reserved against every purpose.
    OnReserved, "treatment of reserved pages",
    /// It is not requested, or not kept.
    Skip = "skip",
    /// It comes, and its result says so.
    Mark = "mark",
}

names! {
    /// The use of licences in RSL.
    LicenseUse, "use of licences",
    /// Their addresses are recorded, so that they neither permit nor reserve.
    Record = "record",
    /// The files that robots.txt names are read as well.
    Read = "read",
}

/// One term of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "json", derive(Serialize, Deserialize))]
pub struct Term {
    /// Its vocabulary.
    #[cfg_attr(feature = "json", serde(rename = "terms"))]
    pub vocabulary: Vocabulary,
    /// Where it was read.
    #[cfg_attr(feature = "json", serde(rename = "source"))]
    pub place: TermPlace,
    /// The purpose that it is about.
    #[cfg_attr(feature = "json", serde(default, skip_serializing_if = "Option::is_none"))]
    pub purpose: Option<Purpose>,
    /// Whether it permits that purpose.
    #[cfg_attr(feature = "json", serde(default, skip_serializing_if = "Option::is_none"))]
    pub allowed: Option<bool>,
    /// The address of a licence.
    #[cfg_attr(feature = "json", serde(default, skip_serializing_if = "Option::is_none"))]
    pub license: Option<Box<str>>,
}

impl Term {
    /// Returns a term about one purpose.
    pub fn new(vocabulary: Vocabulary, place: TermPlace, purpose: Purpose, allowed: bool) -> Self {
        Self { vocabulary, place, purpose: Some(purpose), allowed: Some(allowed), license: None }
    }

    /// Returns a licence in RSL.
    pub fn license(place: TermPlace, address: &str) -> Self {
        Self {
            vocabulary: Vocabulary::Rsl,
            place,
            purpose: None,
            allowed: None,
            license: Some(address.into()),
        }
    }
}

impl fmt::Display for Term {
    /// Writes the term as in the log: `train-ai=n content-usage robots.txt`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let (Some(purpose), Some(allowed)) = (self.purpose, self.allowed) {
            write!(f, "{purpose}={}", if allowed { 'y' } else { 'n' })?;
        }
        if let Some(license) = &self.license {
            write!(f, "license={license}")?;
        }
        write!(f, " {} {}", self.vocabulary, self.place)
    }
}

/// The terms of a page, and the purposes that they leave.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "json", derive(Serialize, Deserialize))]
pub struct Consent {
    /// The terms, each once.
    pub terms: Vec<Term>,
    /// The purposes of the crawl that no term reserves. A crawl that names no purpose has all of
    /// them.
    pub allowed_for: Vec<Purpose>,
}

impl Consent {
    /// Returns the terms as text:
    /// `train-ai=n content-usage robots.txt, search=n x-robots-tag header`.
    pub fn terms_text(&self) -> String {
        self.terms.iter().map(Term::to_string).collect::<Vec<_>>().join(", ")
    }

    /// Returns the purposes as text; `none` if there is none.
    pub fn allowed_text(&self) -> String {
        match self.allowed_for.is_empty() {
            true => "none".to_owned(),
            false => {
                self.allowed_for.iter().map(|purpose| purpose.name()).collect::<Vec<_>>().join(", ")
            }
        }
    }
}

/// The use of terms by a crawl.
///
/// ```
/// use fetchwise_types::consent::{ConsentSettings, Purpose, Term, TermPlace, Vocabulary};
///
/// let training = ConsentSettings { purposes: vec![Purpose::TrainAi], ..ConsentSettings::default() };
/// let term = Term::new(Vocabulary::ContentUsage, TermPlace::RobotsTxt, Purpose::TrainAi, false);
/// let consent = training.judge(vec![term.clone()]).unwrap();
/// assert!(consent.allowed_for.is_empty() && training.withholds(&consent));
/// // A crawl without purposes records the terms and skips nothing.
/// let any = ConsentSettings::default();
/// assert!(!any.withholds(&any.judge(vec![term]).unwrap()));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsentSettings {
    /// The purposes of the crawl. Without one, no page is skipped.
    pub purposes: Vec<Purpose>,
    /// The vocabularies whose terms decide. Those of others are recorded.
    pub respect: Vec<Vocabulary>,
    /// What happens to a page that is reserved against every purpose.
    pub on_reserved: OnReserved,
    /// The use of licences in RSL.
    pub licenses: LicenseUse,
    /// The name by which groups of robots.txt, and directives for one crawler, are selected.
    pub agent: String,
}

impl Default for ConsentSettings {
    fn default() -> Self {
        Self {
            purposes: Vec::new(),
            respect: Vocabulary::ALL.to_vec(),
            on_reserved: OnReserved::Skip,
            licenses: LicenseUse::Record,
            agent: "fetchwise".to_owned(),
        }
    }
}

impl ConsentSettings {
    /// Returns the consent that these terms give; `None` if there is nothing to say: no term, and
    /// no purpose.
    pub fn judge(&self, terms: Vec<Term>) -> Option<Consent> {
        if terms.is_empty() && self.purposes.is_empty() {
            return None;
        }
        let terms = bounded(terms);
        let reserves = |purpose: Purpose| {
            let decides = |term: &&Term| {
                self.respect.contains(&term.vocabulary) && term.purpose == Some(purpose)
            };
            terms.iter().filter(decides).any(|term| term.allowed == Some(false))
        };
        let wanted = if self.purposes.is_empty() { Purpose::ALL } else { &self.purposes };
        let allowed_for = wanted.iter().copied().filter(|purpose| !reserves(*purpose)).collect();
        Some(Consent { terms, allowed_for })
    }

    /// Returns whether a page with this consent is skipped: the crawl has purposes, and the terms
    /// permit none of them.
    pub fn withholds(&self, consent: &Consent) -> bool {
        self.on_reserved == OnReserved::Skip
            && !self.purposes.is_empty()
            && consent.allowed_for.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reserved(purpose: Purpose) -> Term {
        Term::new(Vocabulary::ContentSignal, TermPlace::Header, purpose, false)
    }

    #[test]
    fn a_page_is_skipped_only_if_no_purpose_is_left() {
        let both = ConsentSettings {
            purposes: vec![Purpose::Search, Purpose::TrainAi],
            ..ConsentSettings::default()
        };
        let one = both.judge(vec![reserved(Purpose::TrainAi)]).unwrap();
        assert_eq!((one.allowed_for.clone(), both.withholds(&one)), (vec![Purpose::Search], false));
        let none = both.judge(vec![reserved(Purpose::TrainAi), reserved(Purpose::Search)]).unwrap();
        assert!(both.withholds(&none) && none.allowed_text() == "none");
        let mark = ConsentSettings { on_reserved: OnReserved::Mark, ..both.clone() };
        assert!(!mark.withholds(&none));
        let deaf = ConsentSettings { respect: vec![Vocabulary::ContentUsage], ..both };
        assert_eq!(
            deaf.judge(none.terms.clone()).unwrap().allowed_for.len(),
            2,
            "recorded, and not decisive"
        );
    }

    #[test]
    fn any_disallow_wins_over_an_allow() {
        let settings =
            ConsentSettings { purposes: vec![Purpose::TrainAi], ..ConsentSettings::default() };
        let allow =
            Term::new(Vocabulary::ContentUsage, TermPlace::RobotsTxt, Purpose::TrainAi, true);
        assert_eq!(settings.judge(vec![allow.clone()]).unwrap().allowed_for, [Purpose::TrainAi]);
        for terms in [
            vec![allow.clone(), reserved(Purpose::TrainAi)],
            vec![reserved(Purpose::TrainAi), allow.clone()],
        ] {
            assert!(settings.judge(terms).unwrap().allowed_for.is_empty());
        }
        assert_eq!(
            settings.judge(vec![]).unwrap().allowed_for,
            [Purpose::TrainAi],
            "unknown permits"
        );
        assert_eq!(ConsentSettings::default().judge(vec![]), None);
        assert_eq!(settings.judge(vec![allow.clone(), allow.clone()]).unwrap().terms, [allow]);
    }

    #[test]
    fn names_read_back_and_an_unknown_one_is_named() {
        assert!(Purpose::ALL.iter().all(|purpose| purpose.name().parse() == Ok(*purpose)));
        assert!(
            Vocabulary::ALL.iter().all(|vocabulary| vocabulary.name().parse() == Ok(*vocabulary))
        );
        let error = "train".parse::<Purpose>().unwrap_err().to_string();
        assert!(error.contains("did you mean \"train-ai\"?"), "{error}");
        let term = reserved(Purpose::AiInput).to_string();
        assert_eq!(term, "ai-input=n content-signal header");
    }
}
