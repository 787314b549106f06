//! What the library costs to compile: crates and seconds, with nothing, with the defaults and with the pipeline.
//!
//! Runs cargo on this checkout, offline, into an empty directory, so that nothing built before helps.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use crate::Scale;
use crate::book::Section;
use crate::text;

const FEATURES: [(&str, &[&str]); 3] =
    [("none", &["--no-default-features"]), ("the defaults", &[]), ("`pipeline`", &["--features", "pipeline"])];

pub(crate) fn measure(scale: Scale) -> Section {
    let mut section = Section::new("Compile time");
    section.text(
        "`cargo build` of the library from nothing, its dependencies included and downloaded before; *after a change*: the \
         library itself once more. *Crates* counts all that are compiled, the library, macros and what build scripts need \
         included. One run each, on all cores.",
    );
    // A quick run shows that it works on the smallest.
    let features = &FEATURES[..scale.pick(1, FEATURES.len())];
    let profiles: &[&[&str]] = scale.pick(&[&[]], &[&[], &["--release"]]);
    let mut rows = Vec::new();
    for (name, arguments) in features {
        for profile in profiles {
            let target = tempfile::tempdir().unwrap();
            let all = build(target.path(), arguments, profile);
            run(cargo("clean", target.path(), profile).args(["-p", "fetchwise"]));
            let own = build(target.path(), arguments, profile);
            rows.push(vec![
                (*name).to_owned(),
                if profile.is_empty() { "debug" } else { "release" }.to_owned(),
                crates(arguments).to_string(),
                text::ns(all * 1e9),
                text::ns(own * 1e9),
            ]);
        }
    }
    section.table(&["features", "profile", "crates", "from nothing", "after a change"], rows);
    section
}

/// Seconds that a build takes.
fn build(target: &Path, features: &[&str], profile: &[&str]) -> f64 {
    let begun = Instant::now();
    run(cargo("build", target, profile).args(["-p", "fetchwise", "--lib"]).args(features));
    begun.elapsed().as_secs_f64()
}

fn cargo(what: &str, target: &Path, profile: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(env!("CARGO_MANIFEST_DIR"));
    command.args([what, "--quiet", "--locked", "--offline", "--target-dir"]).arg(target).args(profile);
    command
}

fn run(command: &mut Command) -> Vec<u8> {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// How many crates are compiled.
fn crates(features: &[&str]) -> usize {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(env!("CARGO_MANIFEST_DIR"));
    command.args(["tree", "--locked", "--offline", "-p", "fetchwise", "-e", "normal,build", "--prefix", "none"]);
    let tree = run(command.args(["--no-dedupe", "--format", "{p}"]).args(features));
    String::from_utf8_lossy(&tree).lines().collect::<BTreeSet<_>>().len()
}
