//! Tests of the detector through its public API: verdicts on pages, rule files, visible text, and
//! labelled corpora.
#![allow(clippy::unwrap_used, reason = "a test that meets an error has failed")]

mod block_pages;
mod corpus;
mod differential;
mod html_files;
mod naive_html;
mod pages;
mod reload;
mod rule_files;
mod short_pages;
mod verdicts;
mod visible_text;
