//! `identity registered`.

use fetchwise::identity::{Registrations, vendor_of_blocks};
use fetchwise::rfc3339;
use fetchwise::unknown_name::UnknownName;
use serde::Serialize;

use super::args::RegisteredArgs;
use crate::setup::settings::Settings;
use crate::terminal::exit::{Exit, Failure};
use crate::terminal::output::{Output, note};

#[derive(Serialize)]
struct RegisteredJson<'a> {
    vendor: &'a str,
    registered_at: String,
}

/// Runs the command.
pub(super) fn registered(
    args: &RegisteredArgs,
    settings: &Settings,
    out: &mut Output,
) -> Result<Exit, Failure> {
    let given = args.vendor.to_ascii_lowercase();
    let vendor = vendor_of_blocks(&given);
    // The vendors whose blocks are known: evidence behind another one cannot be told apart.
    let known = settings.detector()?.vendors();
    if !known.iter().any(|name| **name == *vendor) {
        let unknown = UnknownName::new("vendor", &args.vendor, known.iter().map(|name| &**name));
        return Err(Failure::usage(unknown)
            .advise("blocks of a vendor need a rule with its name: see `--rules`"));
    }
    let now = settings.clock.now();
    Registrations::add(&settings.data_dir()?, vendor, now.as_millis()).map_err(Failure::failed)?;
    let registered_at = rfc3339::format(now);
    match out.json {
        true => out.object(&RegisteredJson { vendor, registered_at })?,
        false => out.line(format_args!("{vendor}: registered since {registered_at}"))?,
    }
    note(
        "fetchwise: run the command on each machine that crawls; crawls that are running read it at their next start",
    );
    Ok(Exit::Done)
}
