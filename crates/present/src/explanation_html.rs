//! An explanation as HTML, for a notebook.
//!
//! Invariant: nothing from outside is markup.

use std::fmt::{self, Write};

use fetchwise::explain_text::DecisionText;
use fetchwise::selector::{Explanation, Selector};

use crate::explanation::Bounds;

/// Returns an explanation for a notebook: the same text, and the candidates.
pub fn explanation_html(selector: &Selector, asked: &str, of: &Explanation) -> String {
    let DecisionText { head, rest } = DecisionText::new(&of.decision, selector);
    let mut out = format!(
        "<div class=\"fetchwise-explanation\"><p><code>{}</code></p><p><b>{}</b> {}</p><ol>",
        Escaped(asked),
        Escaped(&head),
        Escaped(rest.trim_start())
    );
    for reason in of.own_reasons(selector) {
        let _ = write!(out, "<li>{}</li>", Escaped(&reason));
    }
    out.push_str(
        "</ol><table><thead><tr><th>candidate</th><th>cost</th><th>success</th><th>blocked</th><th>index</th>\
         <th>attempts</th></tr></thead><tbody>",
    );
    let bounds = Bounds::of(selector);
    for c in &of.candidates {
        let _ = write!(
            out,
            "<tr><td>{}</td><td>{}</td><td>{:.3}</td><td>{:.3}</td><td>{:.1}</td><td>{:.1}</td></tr>",
            Escaped(&c.fetcher),
            c.cost,
            c.success,
            c.block,
            bounds.index(c.index),
            c.sample_size
        );
    }
    out.push_str("</tbody></table></div>");
    out
}

/// A text inside of HTML, outside of attributes.
struct Escaped<'t>(&'t str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|c| match c {
            '&' => f.write_str("&amp;"),
            '<' => f.write_str("&lt;"),
            '>' => f.write_str("&gt;"),
            c if c.is_control() => f.write_char('\u{fffd}'),
            c => f.write_char(c),
        })
    }
}
