//! Conditions of rules: what must be true of a response besides the evidence.
//!
//! Each condition has one entry: its key in rule files, its type, its valid values, and the test.
//! To add one, add an entry to [`for_each_condition`] and document it in
//! `docs/guides/detection-rules.md`. No other code is needed to read it, check it, keep it with the
//! compiled rule, and test it on pages.
//!
//! Limits on visible characters and links are not here: they depend on the rule's grade and on the
//! rest of the page, and the search for evidence needs them.

use crate::html::page_facts::PageFacts;
use fetchwise_types::response::Page;

/// The inputs of conditions.
#[derive(Clone, Copy)]
pub(crate) struct ConditionInput<'a> {
    pub(crate) page: &'a Page<'a>,
    pub(crate) facts: &'a PageFacts,
}

/// Passes the list of conditions to a macro. An entry has a name, which is the key in rule files; a
/// type; a check that returns what is wrong with a value; and a test of a response. A condition
/// that a rule does not name holds.
macro_rules! for_each_condition {
    ($with:ident) => {
        $with! {
            /// The status is one of these.
            status: Vec<u16>,
                |wanted| (!wanted.iter().all(|s| (100..=999).contains(s))).then_some("must be from 100 to 999"),
                |wanted, seen| wanted.is_empty() || wanted.contains(&seen.page.status);
            /// The maximum number of input fields, hidden ones excluded.
            max_inputs: u32, |_| None, |most, seen| seen.facts.inputs <= *most;
            /// The maximum number of pictures.
            max_images: u32, |_| None, |most, seen| seen.facts.images <= *most;
            /// The maximum number of frames.
            max_frames: u32, |_| None, |most, seen| seen.facts.frames <= *most;
            /// The maximum size of the body, in bytes.
            max_bytes: u32, |_| None, |most, seen| seen.page.body.len() <= *most as usize;
            /// There is a password field, or there is none.
            password: bool, |_| None, |wanted, seen| *wanted == seen.facts.password;
            /// There is an empty element with an id, which a script would fill; or there is none,
            /// and no component either.
            mount: bool, |_| None, |wanted, seen| match wanted {
                true => seen.facts.mounts > 0,
                false => seen.facts.mounts == 0 && seen.facts.components == 0,
            };
            /// There is a component: an element with a hyphen in its name.
            component: bool, |_| None, |wanted, seen| !*wanted || seen.facts.components > 0;
            /// The maximum number of scripts that run. A challenge has few of them, an application
            /// with a vendor's connector has many.
            max_scripts: u32, |_| None, |most, seen| seen.facts.scripts <= *most;
            /// There is a script that runs.
            scripts: bool, |_| None, |wanted, seen| !*wanted || seen.facts.scripts > 0;
            /// The page asks search engines not to index it.
            noindex: bool, |_| None, |wanted, seen| !*wanted || seen.facts.noindex;
            /// There is no title.
            title_absent: bool, |_| None, |wanted, seen| !*wanted || seen.facts.title.is_none();
        }
    };
}
pub(crate) use for_each_condition;

macro_rules! conditions {
    ($($(#[$doc:meta])* $name:ident: $type:ty, $check:expr, $test:expr;)+) => {
        /// The conditions of a rule.
        #[derive(Clone, Debug, Default)]
        pub(crate) struct Conditions {
            $($(#[$doc])* pub(crate) $name: Option<$type>,)+
        }

        impl Conditions {
            /// Returns the first condition with an invalid value, and the problem.
            pub(crate) fn problem(&self) -> Option<(&'static str, &'static str)> {
                $(
                    let check: fn(&$type) -> Option<&'static str> = $check;
                    if let Some(problem) = self.$name.as_ref().and_then(check) {
                        return Some((stringify!($name), problem));
                    }
                )+
                None
            }

            /// Returns whether all conditions hold.
            #[inline]
            pub(crate) fn hold(&self, seen: ConditionInput<'_>) -> bool {
                $(
                    let test: fn(&$type, ConditionInput<'_>) -> bool = $test;
                    if !self.$name.as_ref().is_none_or(|wanted| test(wanted, seen)) {
                        return false;
                    }
                )+
                true
            }
        }
    };
}

for_each_condition!(conditions);
