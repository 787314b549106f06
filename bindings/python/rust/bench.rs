//! The work of Python's calls in Rust loops, for comparison in `benches/python.py`. Not in any
//! wheel.

use std::hint::black_box;
use std::time::Instant;

use fetchwise::detect::Scratch;
use fetchwise::response::{Header, Page};
use fetchwise::selector::SelectContext;
use fetchwise::time::Timestamp;
use pyo3::prelude::*;

use crate::attempt::Attempt;
use crate::detector::Detector;
use crate::selector::Selector;
use crate::{convert, errors};

/// Returns the nanoseconds of one `select` of a parsed URL.
#[pyfunction]
fn _bench_select(selector: &Selector, url: &Bound<'_, PyAny>, times: u32) -> PyResult<f64> {
    let url = convert::url(url)?;
    let begun = Instant::now();
    for _ in 0..times {
        let situation = SelectContext::first_attempt(Timestamp::now());
        black_box(selector.core.kept.select(&url, &situation))
            .map_err(|error| errors::url(&error))?;
    }
    Ok(begun.elapsed().as_nanos() as f64 / f64::from(times))
}

/// Returns the nanoseconds of one `record` of an existing attempt, including its copy.
#[pyfunction]
fn _bench_record(
    py: Python<'_>,
    selector: &Selector,
    attempt: &Attempt,
    times: u32,
) -> PyResult<f64> {
    let begun = Instant::now();
    for _ in 0..times {
        selector.learn(py, attempt.kept.clone())?;
    }
    Ok(begun.elapsed().as_nanos() as f64 / f64::from(times))
}

/// Returns the bytes per second that this number of threads reads.
#[pyfunction]
fn _bench_classify(
    py: Python<'_>,
    detector: &Detector,
    body: &[u8],
    times: u32,
    threads: u32,
) -> f64 {
    py.detach(|| {
        let begun = Instant::now();
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    let headers = [Header::new("content-type", "text/html")];
                    let mut scratch = Scratch::default();
                    for _ in 0..times {
                        let page = Page {
                            status: 200,
                            headers: &headers,
                            body: black_box(body),
                            ..Page::default()
                        };
                        black_box(detector.reader.inspect(&page, &mut scratch));
                    }
                });
            }
        });
        body.len() as f64 * f64::from(times) * f64::from(threads) / begun.elapsed().as_secs_f64()
    })
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(_bench_select, module)?)?;
    module.add_function(wrap_pyfunction!(_bench_record, module)?)?;
    module.add_function(wrap_pyfunction!(_bench_classify, module)?)
}
