//! The fork generation of a process: the number of forks since the module was loaded.
//!
//! A journal has a writer thread, which does not survive a fork. Each owner of a journal remembers
//! the generation that it was made in. In any other generation it refuses to work, and does not
//! wait for threads that do not exist. The check costs one atomic load.

use std::sync::atomic::{AtomicU64, Ordering};

use pyo3::prelude::*;

static GENERATION: AtomicU64 = AtomicU64::new(0);

/// Returns the generation of this process.
pub(crate) fn generation() -> u64 {
    // Relaxed: it changes while a process has one thread.
    GENERATION.load(Ordering::Relaxed)
}

/// Python calls this in the child of a fork.
#[pyfunction]
fn _forked() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
}

/// Registers the function that Python calls after a fork.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    let os = py.import("os")?;
    if os.hasattr("register_at_fork")? {
        let kwargs = pyo3::types::PyDict::new(py);
        kwargs.set_item("after_in_child", wrap_pyfunction!(_forked, module)?)?;
        os.call_method("register_at_fork", (), Some(&kwargs))?;
    }
    Ok(())
}
