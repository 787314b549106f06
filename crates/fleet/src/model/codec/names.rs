//! The static dictionary: names that every message knows without carrying them.
//!
//! Owns: their order. It is part of the format's major version, so names are never moved, removed
//! or added within one.

use std::collections::HashMap;
use std::sync::OnceLock;

/// Heuristic types, their common values, and the built-in fetchers.
pub(super) const KNOWN: [&str; 64] = [
    "domain",
    "site",
    "suffix",
    "domain_suffix",
    "domain_path",
    "path_depth",
    "contains_cdn",
    "contains_static",
    "contains_assets",
    "contains_api",
    "content_type",
    "has_captcha",
    "has_spa",
    "spa_framework",
    "has_paywall",
    "empty_body",
    "high_script_ratio",
    "status_200",
    "host_showed",
    "host_shows",
    "thin",
    "host_platform",
    "true",
    "false",
    "served",
    "walled",
    "text/html",
    "text/plain",
    "application/json",
    "application/pdf",
    "application/xml",
    "image/jpeg",
    "image/png",
    "next",
    "nuxt",
    "react",
    "vue",
    "angular",
    "block_cloudflare",
    "block_datadome",
    "block_akamai",
    "block_perimeterx",
    "block_imperva",
    "block_kasada",
    "block_recaptcha",
    "block_hcaptcha",
    "direct_access",
    "playwright",
    "playwright_stealth",
    "archive_proxy",
    "youtube_downloader",
    "nytime_searcher",
    "html",
    "htm",
    "php",
    "pdf",
    "jpg",
    "jpeg",
    "png",
    "xml",
    "json",
    "css",
    "js",
    "en",
];

/// Returns the index of a static name.
pub(super) fn number_of(name: &str) -> Option<u64> {
    static NUMBERS: OnceLock<HashMap<&'static str, u64>> = OnceLock::new();
    NUMBERS.get_or_init(|| KNOWN.into_iter().zip(0..).collect()).get(name).copied()
}
