//! Memory: bytes per site by a counting allocator, in a separate process for each size, and their
//! parts.

use std::process::Command;

use fetchwise::selector::Selector;
use fetchwise::time::Timestamp;

use crate::Scale;
use crate::book::{Bound, Section, Unit};
use crate::measure::resident_bytes;
use crate::text;
use crate::traffic::{self, Shape};

/// The maximum size of a site.
const TARGET: f64 = 300.0;

/// Measures a selector with evidence of `domains` sites, and prints the requested bytes,
/// allocations, resident bytes and keys.
pub(crate) fn child(shape: &str, domains: usize) {
    let (_, shape) = Shape::ALL.into_iter().find(|(name, _)| *name == shape).unwrap();
    let now = Timestamp::now();
    // Memory that a thread and a selector need only once does not count.
    let mut selector = Selector::builder().without_pace().build().unwrap();
    traffic::teach(&selector, 0..10, shape, now);
    selector = Selector::builder().without_pace().build().unwrap();
    let resident = resident_bytes();
    let counted = allocation_counter::measure(|| traffic::teach(&selector, 0..domains, shape, now));
    let resident = resident_bytes() - resident;
    println!(
        "{} {} {} {}",
        counted.bytes_current,
        counted.count_current,
        resident,
        selector.key_count()
    );
}

struct Counted {
    bytes: f64,
    blocks: f64,
    resident: f64,
    keys: f64,
}

fn count(shape: &str, domains: usize) -> Counted {
    let exe = std::env::current_exe().unwrap();
    let output = Command::new(exe)
        .args(["--child", "memory", shape, &domains.to_string()])
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let numbers: Vec<f64> = text.split_whitespace().map(|number| number.parse().unwrap()).collect();
    Counted { bytes: numbers[0], blocks: numbers[1], resident: numbers[2], keys: numbers[3] }
}

pub(crate) fn measure(scale: Scale) -> Section {
    let mut section = Section::new("Memory");
    let sizes: &[usize] = scale.pick(&[1_000, 10_000], &[10_000, 100_000, 1_000_000, 5_000_000]);
    let last = sizes[sizes.len() - 1];
    section.text(
        "Each site has one section and two fetchers. The figures include the map, its slack and the contents of its \
         entries. *Requested* is the sum of a counting allocator. *Resident* is the growth of the process, which \
         includes the allocator's headers, its rounding and the memory that it has not returned. Each row is a \
         separate process.",
    );
    let mut rows = Vec::new();
    let mut plain = 0.0;
    for (name, _) in Shape::ALL {
        // The addition by suffixes is shown at one size.
        for &sites in
            sizes.iter().filter(|&&sites| name == "plain" || sites == scale.pick(last, 1_000_000))
        {
            eprintln!("  {name}, {} sites", text::size(sites));
            let counted = count(name, sites);
            let each = counted.bytes / sites as f64;
            rows.push(vec![
                text::size(sites),
                match name {
                    "plain" => "no suffix".to_owned(),
                    other => format!("`.{other}`"),
                },
                text::bytes(each),
                text::bytes(counted.resident / sites as f64),
                format!("{:.2}", counted.blocks / sites as f64),
                format!("{:.2}", counted.keys / sites as f64),
            ]);
            if name == "plain" {
                section.point("bytes per site", sites as f64, each);
                section.point(
                    "resident bytes per site",
                    sites as f64,
                    counted.resident / sites as f64,
                );
                plain = each;
            }
            if sites >= 1_000_000 || scale == Scale::Quick {
                let what = format!(
                    "memory per site, {} sites, {}",
                    text::size(sites),
                    rows[rows.len() - 1][1]
                );
                section.goal(&what, Unit::Bytes, each, Bound::AtMost(TARGET));
            }
        }
    }
    let head = [
        "sites",
        "URLs",
        "requested, per site",
        "resident, per site",
        "allocations per site",
        "keys per site",
    ];
    section.table(&head, rows);
    breakdown(&mut section, last, plain);
    section
}

/// Cells that a site without a suffix uses: domain and section, by each fetcher.
const CELLS_USED: usize = 2 * traffic::FETCHERS.len();

fn breakdown(section: &mut Section, sites: usize, each: f64) {
    let layout = fetchwise::evidence::layout();
    let cells = |count: usize| (count * layout.cell_bytes) as f64;
    let free = layout.entry_cells - CELLS_USED;
    let least = least_bits(sites);
    section.text(format!(
        "The {each:.0} B of a site without a suffix, at {} sites (by the sizes of the types: a cell has {} B, an \
         entry has {} B with {} cells inside):",
        text::size(sites),
        layout.cell_bytes,
        layout.entry_bytes,
        layout.entry_cells
    ));
    let row = |what: &str, bytes: f64| vec![what.to_owned(), format!("{bytes:.0} B")];
    section.table(
        &["part", "per site"],
        vec![
            row("cells in use: domain and section, by two fetchers", cells(CELLS_USED)),
            row("cells still free: a suffix, by two fetchers, needs no more memory", cells(free)),
            row(
                "the rest of the entry: pointer to what few sites need, count, signals, site, two days",
                layout.entry_bytes as f64 - cells(layout.entry_cells),
            ),
            row("the map: slot, hash and the slack of a table that doubles", each - layout.entry_bytes as f64),
            row("total", each),
            row("theoretical minimum, see below", least / 8.0),
        ],
    );
    section.text(format!(
        "*The theoretical minimum* counts the information alone. The keys take log2 of the ways to choose {n} keys \
         among 2^64, over the sites ({key:.1} bits each). Each of the {CELLS_USED} cells takes counts of attempts, \
         successes and blocks below {COUNTS} and a duration to three digits. It also takes a time to the hour in two \
         years, and the recent and the alert pair to two digits ({cell:.1} bits in all). Such data could not be found \
         by its key, added to without a lock, or decayed in place. fetchwise uses {ratio:.1} times the minimum.",
        n = text::size(sites),
        key = key_bits(sites),
        cell = cell_bits(),
        ratio = each * 8.0 / least,
    ));
    let bought = 200 / layout.cell_bytes;
    section.text(format!(
        "*200 B more or less.* 200 B more buy {bought} more cells in the entry ({} B). A third fetcher at such a site \
         would then need no further allocation and no chain to follow. 200 B less cost either exactness or speed. \
         Weights as `f32` instead of `f64` save {} B over all cells of the entry, but an addition is lost once a \
         weight is 2^24 times larger. Leaving out the free cells saves {} B, but a site with files then needs a \
         second allocation. Each decision about its files then waits for one more line of memory.",
        cells(bought),
        layout.entry_cells * 4 * 4,
        cells(free),
    ));
}

/// The number of counts that a site's cell can distinguish.
const COUNTS: u32 = 1 << 16;

fn key_bits(sites: usize) -> f64 {
    // log2(C(2^64, n)) / n, by Stirling: log2(2^64 / n) + log2(e).
    64.0 - (sites as f64).log2() + std::f64::consts::LOG2_E
}

fn cell_bits() -> f64 {
    let counts = 3.0 * f64::from(COUNTS).log2();
    let duration = 1000f64.log2() + 3f64.log2();
    let time = (2.0 * 365.0 * 24.0f64).log2();
    let recent = 4.0 * 100f64.log2();
    counts + duration + time + recent
}

fn least_bits(sites: usize) -> f64 {
    key_bits(sites) + CELLS_USED as f64 * cell_bits()
}
