//! The conditions of rules: what must be true of a response beside the evidence. Each condition stands here, in one place: its key in
//! rule files, the type of its value, what values can be used, and the test.
//!
//! To add one, add an entry to [`for_each_condition`], and say in `docs/concepts/detection.md` what it is for. The entry is read from rule
//! files, checked, kept with the compiled rule and tested on pages without another line of code. Limits on visible characters and
//! links are not here: what they allow depends on the rule's grade and on other facts, and the search for evidence needs them.

use crate::html::page_facts::Facts;
use fetchwise_types::response::Page;

/// What conditions are tested on.
#[derive(Clone, Copy)]
pub(crate) struct Seen<'a> {
    pub(crate) page: &'a Page<'a>,
    pub(crate) facts: &'a Facts,
}

/// Hands the list of conditions to a macro. Each has a name, which is the key in rule files; the type of its value; what is wrong
/// with a value, if something is; and whether a response is as the value asks. A condition that a rule does not name holds.
macro_rules! for_each_condition {
    ($with:ident) => {
        $with! {
            /// The status is one of these.
            status: Vec<u16>,
                |wanted| (!wanted.iter().all(|s| (100..=999).contains(s))).then_some("must be from 100 to 999"),
                |wanted, seen| wanted.is_empty() || wanted.contains(&seen.page.status);
            /// At most so many fields, hidden ones apart.
            max_inputs: u32, |_| None, |most, seen| seen.facts.inputs <= *most;
            /// At most so many pictures.
            max_images: u32, |_| None, |most, seen| seen.facts.images <= *most;
            /// At most so many frames.
            max_frames: u32, |_| None, |most, seen| seen.facts.frames <= *most;
            /// At most so many bytes of body.
            max_bytes: u32, |_| None, |most, seen| seen.page.body.len() <= *most as usize;
            /// There is a field for a password, or there is none.
            password: bool, |_| None, |wanted, seen| *wanted == seen.facts.password;
            /// There is an empty element with an id, which a script would fill; or there is none, and no component either.
            mount: bool, |_| None, |wanted, seen| match wanted {
                true => seen.facts.mounts > 0,
                false => seen.facts.mounts == 0 && seen.facts.components == 0,
            };
            /// There is a component: an element with a hyphen in its name.
            component: bool, |_| None, |wanted, seen| !*wanted || seen.facts.components > 0;
            /// There is a script that runs.
            scripts: bool, |_| None, |wanted, seen| !*wanted || seen.facts.scripts > 0;
            /// Search engines are asked to stay away.
            noindex: bool, |_| None, |wanted, seen| !*wanted || seen.facts.noindex;
            /// There is no title.
            title_absent: bool, |_| None, |wanted, seen| !*wanted || seen.facts.title.is_none();
        }
    };
}
pub(crate) use for_each_condition;

macro_rules! conditions {
    ($($(#[$doc:meta])* $name:ident: $type:ty, $check:expr, $test:expr;)+) => {
        /// The conditions that a rule names.
        #[derive(Clone, Debug, Default)]
        pub(crate) struct Conditions {
            $($(#[$doc])* pub(crate) $name: Option<$type>,)+
        }

        impl Conditions {
            /// The first condition whose value cannot be used, and why.
            pub(crate) fn problem(&self) -> Option<(&'static str, &'static str)> {
                $(
                    let check: fn(&$type) -> Option<&'static str> = $check;
                    if let Some(problem) = self.$name.as_ref().and_then(check) {
                        return Some((stringify!($name), problem));
                    }
                )+
                None
            }

            /// Whether all of them hold.
            #[inline]
            pub(crate) fn hold(&self, seen: Seen<'_>) -> bool {
                $(
                    let test: fn(&$type, Seen<'_>) -> bool = $test;
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
