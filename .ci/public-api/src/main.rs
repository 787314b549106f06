//! Lists the public API that a file of rustdoc's JSON describes, one item a line:
//! `public-api FILE`.
//!
//! Blanket implementations are left out, because they say nothing of the crate. Of the automatic
//! traits `Send` and `Sync` are listed: a type that loses one of them breaks its users, and no line
//! of the source says so.
#![forbid(unsafe_code)]

use std::io::Write;

use public_api::Builder;

/// Automatic traits that nobody chooses a type for.
const LEFT_OUT: [&str; 6] =
    ["Freeze", "Unpin", "UnsafeUnpin", "UnwindSafe", "RefUnwindSafe", "StructuralPartialEq"];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let file = std::env::args_os().nth(1).ok_or("the argument is a file of rustdoc's JSON")?;
    let api = Builder::from_rustdoc_json(std::path::PathBuf::from(file))
        .omit_blanket_impls(true)
        .build()?;
    let mut out = std::io::stdout().lock();
    for item in api.items() {
        let line = item.to_string();
        if !is_left_out(&line) {
            writeln!(out, "{line}")?;
        }
    }
    Ok(())
}

fn is_left_out(line: &str) -> bool {
    let Some((path, _)) = line.strip_prefix("impl").and_then(|line| line.split_once(" for "))
    else {
        return false;
    };
    path.rsplit("::").next().is_some_and(|name| LEFT_OUT.contains(&name))
}
