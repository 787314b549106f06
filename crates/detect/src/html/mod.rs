//! HTML: charset, tokens, visible text, main content, and the facts that rules ask for.
//!
//! Invariants: time is linear in the bytes read; any bytes are accepted.
//!
//! Must not know: rules.

pub(crate) mod attributes;
pub(crate) mod byte_masks;
pub(crate) mod charset;
pub(crate) mod element;
pub(crate) mod main_content;
pub(crate) mod page_facts;
pub(crate) mod page_text;
pub(crate) mod redirect;
pub(crate) mod robots_meta;
pub(crate) mod sniff;
pub(crate) mod text;
pub(crate) mod tokenizer;
pub(crate) mod visibility;
