//! Runs policies in the shipped worlds and prints one JSON object a line.
//!
//! `cargo run --release --no-default-features --features simulate --example worlds -- W1,W4 default,ladder 9001..9003`

use std::process::ExitCode;

use fetchwise::simulate::{Contestant, Options, SHIPPED, World, simulate};

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let arg = |place: usize, default: &str| args.get(place).map_or_else(|| default.to_owned(), Clone::clone);
    let (first, last) = arg(2, "9001..9003").split_once("..").map_or(Err("seeds are A..B"), |(a, b)| {
        a.parse::<u64>().and_then(|a| Ok((a, b.parse::<u64>()?))).map_err(|_| "seeds are A..B")
    })?;
    let seeds: Vec<u64> = (first..=last).collect();
    let contestants: Vec<Contestant> = arg(1, "default").split(',').map(Contestant::by_name).collect::<Result<_, _>>()?;
    for name in arg(0, "W1,W2,W3,W4,W5,W6,W7").split(',') {
        let world = match SHIPPED.iter().find(|world| world.0 == name) {
            Some((_, text)) => World::parse(text, name)?,
            None => World::read(name.as_ref())?,
        };
        for report in simulate(&world, &contestants, &seeds, &Options::default())? {
            println!("{}", serde_json::to_string(&report)?);
        }
    }
    Ok(())
}
