//! Numbers formatted for people.

/// Nanoseconds, in the unit that fits.
pub(crate) fn ns(ns: f64) -> String {
    match ns {
        _ if ns < 10.0 => format!("{ns:.1} ns"),
        _ if ns < 1e3 => format!("{ns:.0} ns"),
        _ if ns < 1e4 => format!("{:.2} µs", ns / 1e3),
        _ if ns < 1e6 => format!("{:.1} µs", ns / 1e3),
        _ if ns < 1e9 => format!("{:.2} ms", ns / 1e6),
        _ => format!("{:.2} s", ns / 1e9),
    }
}

/// A rate per second.
pub(crate) fn rate(a_second: f64) -> String {
    format!("{}/s", count(a_second))
}

/// A number, in thousands or millions when it is large.
pub(crate) fn count(number: f64) -> String {
    match number {
        0.0 => "0".to_owned(),
        _ if number >= 1e7 => format!("{:.1} M", number / 1e6),
        _ if number >= 1e6 => format!("{:.2} M", number / 1e6),
        _ if number >= 1e4 => format!("{:.0} k", number / 1e3),
        _ if number >= 1e3 => format!("{:.2} k", number / 1e3),
        _ if number >= 10.0 => format!("{number:.0}"),
        _ => format!("{number:.2}"),
    }
}

/// A size of a run: 1 k, 1 M.
pub(crate) fn size(number: usize) -> String {
    match number {
        _ if number >= 1_000_000 => format!("{} M", number / 1_000_000),
        _ if number >= 1_000 => format!("{} k", number / 1_000),
        _ => number.to_string(),
    }
}

/// A ratio.
pub(crate) fn times(ratio: f64) -> String {
    match ratio {
        _ if ratio >= 100.0 => format!("{ratio:.0}"),
        _ if ratio >= 10.0 => format!("{ratio:.1}"),
        _ => format!("{ratio:.2}"),
    }
}

/// Bytes per second.
pub(crate) fn speed(bytes_a_second: f64) -> String {
    format!("{:.2} GB/s", bytes_a_second / 1e9)
}

/// Bytes.
pub(crate) fn bytes(bytes: f64) -> String {
    match bytes {
        _ if bytes >= 1e9 => format!("{:.2} GB", bytes / 1e9),
        _ if bytes >= 1e6 => format!("{:.1} MB", bytes / 1e6),
        _ if bytes >= 1e4 => format!("{:.1} KB", bytes / 1e3),
        _ => format!("{bytes:.0} B"),
    }
}
