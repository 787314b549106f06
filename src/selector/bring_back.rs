//! Evidence that was evicted, brought back into memory before a decision: the decision itself reads
//! memory only.
//!
//! A visit does this by itself. It reads files on the thread that runs the visit: that takes some
//! tens of microseconds at most for a host that left memory, less than another thread would take to
//! do it and report.
//!
//! Must not know: where evicted evidence is kept.

use url::Url;

use super::Selector;
use crate::evidence::{EntryWriter, Key};
use fetchwise_types::heuristic::Heuristic;
use fetchwise_types::heuristic::url::UrlFeatures;

impl Selector {
    /// Brings back into memory the evidence that a decision about `url` needs and that
    /// [`max_keys`](crate::selector::SelectorBuilder::max_keys) moved to disk:
    /// [`Selector::select`] reads no files. `known` are the heuristics in the context of the
    /// decision. May block for some tens of microseconds. Without such evidence it does nothing; a
    /// [visit](Selector::visit) and [`Selector::explain`] do it by themselves.
    ///
    /// ```
    /// use fetchwise::selector::{SelectContext, Selector};
    /// use fetchwise::time::Timestamp;
    ///
    /// let selector = Selector::builder().build()?;
    /// let (url, context) = (url::Url::parse("https://example.org/")?, SelectContext::first_attempt(Timestamp::now()));
    /// selector.bring_back(&url, context.heuristics);
    /// let decision = selector.select(&url, &context)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn bring_back(&self, url: &Url, known: &[Heuristic]) {
        let evidence = &self.learned.evidence;
        if !evidence.keeps_evicted() {
            return;
        }
        let Ok(features) = UrlFeatures::extract(url) else { return };
        let guard = evidence.guard();
        // What is held is not evicted for the next.
        let mut held: Vec<EntryWriter<'_>> = Vec::new();
        let mut bring = |key: Key| {
            held.extend(evidence.entry_to_change(key, &guard).map(EntryWriter::only_held));
        };
        bring(Key::domain(features.domain));
        if !features.is_site() {
            bring(Key::domain(features.site));
        }
        if let Some(suffix) = &features.suffix {
            bring(Key::suffix(suffix.as_str()));
        }
        if evidence.depth(features.path_depth, &guard).is_none() {
            bring(Key::depth(features.path_depth));
        }
        for extractor in &self.extractors {
            extractor.extract(url, &mut |kind, value| bring(Key::of(kind, value)));
        }
        known.iter().for_each(|heuristic| bring(Key::of(&heuristic.kind, &heuristic.value)));
    }
}
