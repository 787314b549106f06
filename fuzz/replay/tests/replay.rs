//! The seeds of every fuzz target, on every change: a fuzzer takes minutes to build, and these take
//! seconds.
#![allow(clippy::unwrap_used, reason = "a test that meets an error has failed")]
#![allow(
    clippy::duplicate_mod,
    reason = "each target is a program, and has a copy of what it needs"
)]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Declares a module and a test for each target, and the list of all of them.
macro_rules! targets {
    ($($name:ident: $file:literal),* $(,)?) => {
        $(
            #[allow(unused_attributes, reason = "`no_main` is for the fuzzer")]
            #[path = $file]
            mod $name;
        )*
        const TARGETS: &[&str] = &[$(stringify!($name)),*];

        mod seeds_of {
            $(
                #[test]
                fn $name() {
                    super::replay_seeds(stringify!($name), super::$name::replay);
                }
            )*
        }
    };
}

targets! {
    classify: "../../fuzz_targets/classify.rs",
    cold_decode: "../../fuzz_targets/cold_decode.rs",
    consent: "../../fuzz_targets/consent.rs",
    fleet_decode: "../../fuzz_targets/fleet_decode.rs",
    html_tree: "../../fuzz_targets/html_tree.rs",
    journal_decode: "../../fuzz_targets/journal_decode.rs",
    log_decode: "../../fuzz_targets/log_decode.rs",
    rules_toml: "../../fuzz_targets/rules_toml.rs",
    url_extract: "../../fuzz_targets/url_extract.rs",
}

fn fuzz() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn replay_seeds(target: &str, replay: fn(&[u8])) {
    let mut seeds: Vec<PathBuf> = std::fs::read_dir(fuzz().join("seeds").join(target))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    seeds.sort();
    assert!(!seeds.is_empty(), "{target} has no seeds");
    for seed in seeds {
        println!("{}", seed.display());
        replay(&std::fs::read(&seed).unwrap());
    }
}

#[test]
fn every_target_of_the_fuzzer_is_replayed() {
    let manifest = std::fs::read_to_string(fuzz().join("Cargo.toml")).unwrap();
    let of_fuzzer: BTreeSet<&str> = manifest
        .lines()
        .filter_map(|line| line.strip_prefix("path = \"fuzz_targets/")?.strip_suffix(".rs\""))
        .collect();
    assert_eq!(of_fuzzer, TARGETS.iter().copied().collect());
}
