//! The extension module `fetchwise._fetchwise`: fetchwise's selector, visits, detector and journal
//! for Python.
//!
//! Owns: converting arguments, wrapping results, and releasing the interpreter's lock for long
//! work. Invariants: no call into Python while a lock of the library is held, and none during
//! `select`. Must not know: how anything is decided; the library decides.

use std::sync::OnceLock;

use pyo3::exceptions::PyImportError;
use pyo3::prelude::*;

mod asyncio_bridge;
mod attempt;
#[cfg(feature = "bench")]
mod bench;
mod build_selector;
mod convert;
mod decision;
mod detector;
mod errors;
mod explain;
mod fork;
mod journal;
mod json;
mod selector;
mod signer;
mod transfer;
mod visit;

/// The alignment in bytes of Python's allocator. PyO3 puts the fields of a class there, whatever
/// their alignment.
const ALIGNED: usize = 2 * size_of::<usize>();

/// Checks that the type needs no larger alignment. Types that do have to be boxed.
const fn assert_aligned<T>() {
    assert!(align_of::<T>() <= ALIGNED);
}

const _: () = {
    assert_aligned::<selector::Selector>();
    assert_aligned::<build_selector::Fetcher>();
    assert_aligned::<decision::Decision>();
    assert_aligned::<decision::TakeDecision>();
    assert_aligned::<decision::Paused>();
    assert_aligned::<decision::GiveUp>();
    assert_aligned::<decision::NoViableFetcher>();
    assert_aligned::<explain::Explanation>();
    assert_aligned::<attempt::Attempt>();
    assert_aligned::<detector::Detector>();
    assert_aligned::<detector::Verdict>();
    assert_aligned::<detector::FetchResult>();
    assert_aligned::<journal::Journal>();
    assert_aligned::<signer::Signer>();
    assert_aligned::<visit::Visit>();
    assert_aligned::<visit::Step>();
    assert_aligned::<visit::FetchStep>();
    assert_aligned::<visit::WaitStep>();
    assert_aligned::<visit::End>();
};

/// Refuses the second interpreter of a process, which would share objects, locks and the log's
/// writer with the first. Each interpreter has a separate module `sys`.
fn only_interpreter(py: Python<'_>) -> PyResult<()> {
    static FIRST: OnceLock<usize> = OnceLock::new();
    let this = py.import("sys")?.as_ptr() as usize;
    if *FIRST.get_or_init(|| this) == this {
        return Ok(());
    }
    Err(PyImportError::new_err(
        "fetchwise does not support subinterpreters: import it in one interpreter of a process, or start processes",
    ))
}

/// The Rust part of fetchwise. Import `fetchwise` instead.
#[pymodule(gil_used = false)]
fn _fetchwise(module: &Bound<'_, PyModule>) -> PyResult<()> {
    only_interpreter(module.py())?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    let kinds: Vec<&str> =
        fetchwise::attempt::error_kind::ErrorKind::ALL.iter().map(|kind| kind.name()).collect();
    module.add("_ERROR_KINDS", kinds)?;
    module.add_class::<selector::Selector>()?;
    module.add_class::<build_selector::Fetcher>()?;
    module.add_class::<decision::Decision>()?;
    module.add_class::<decision::TakeDecision>()?;
    module.add_class::<decision::Paused>()?;
    module.add_class::<decision::GiveUp>()?;
    module.add_class::<decision::NoViableFetcher>()?;
    module.add_class::<explain::Explanation>()?;
    module.add_class::<attempt::Attempt>()?;
    module.add_class::<detector::Detector>()?;
    module.add_class::<detector::Verdict>()?;
    module.add_class::<detector::FetchResult>()?;
    module.add_class::<journal::Journal>()?;
    module.add_class::<signer::Signer>()?;
    module.add_class::<visit::Visit>()?;
    module.add_class::<visit::Step>()?;
    module.add_class::<visit::FetchStep>()?;
    module.add_class::<visit::WaitStep>()?;
    module.add_class::<visit::End>()?;
    module.add_function(wrap_pyfunction!(transfer::import_attempts, module)?)?;
    module.add_function(wrap_pyfunction!(transfer::export_attempts, module)?)?;
    #[cfg(feature = "bench")]
    bench::register(module)?;
    fork::register(module)?;
    journal::register(module)
}
