//! A bridge from Rust futures to `asyncio` futures, without a runtime. One thread takes woken tasks
//! and completes them on their event loop with `call_soon_threadsafe`.
//!
//! Invariants: a waker (the log's writer, or a thread that reports an attempt) never waits for the
//! interpreter's lock, because waking only sends to that thread; a cancelled future releases what
//! it waited for; a closed loop or an ending interpreter is not an error.

use std::future::Future;
use std::pin::Pin;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::{Context, Poll, Wake, Waker};

use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::fork;

/// The result of a future, built when the interpreter is attached.
pub(crate) type Made = Box<dyn FnOnce(Python<'_>) -> PyResult<Py<PyAny>> + Send>;
type Pending = Pin<Box<dyn Future<Output = Made> + Send>>;

/// A Rust future and the `asyncio` future that it completes.
struct Task {
    pending: Mutex<Option<Pending>>,
    event_loop: Py<PyAny>,
    future: Py<PyAny>,
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        courier(self);
    }
}

impl Task {
    /// Returns the result, if it is ready.
    fn poll(self: &Arc<Self>) -> Option<Made> {
        let waker = Waker::from(Arc::clone(self));
        let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        let polled = pending.as_mut()?.as_mut().poll(&mut Context::from_waker(&waker));
        match polled {
            Poll::Ready(made) => {
                *pending = None;
                Some(made)
            }
            Poll::Pending => None,
        }
    }

    fn deliver(&self, made: Made) {
        // None when the interpreter is ending: no one is left to notify.
        let _ = Python::try_attach(|py| {
            let complete = Complete { made: Mutex::new(Some(made)) };
            // A loop that has been closed meanwhile raises, and has no one to notify either.
            let _ = self.event_loop.call_method1(
                py,
                "call_soon_threadsafe",
                (complete, self.future.clone_ref(py)),
            );
        });
    }
}

/// Completes a future on its loop.
#[pyclass(frozen)]
struct Complete {
    made: Mutex<Option<Made>>,
}

#[pymethods]
impl Complete {
    fn __call__(&self, py: Python<'_>, future: &Bound<'_, PyAny>) -> PyResult<()> {
        let made = self.made.lock().unwrap_or_else(PoisonError::into_inner).take();
        match made {
            Some(made) => complete(py, future, made),
            None => Ok(()),
        }
    }
}

fn complete(py: Python<'_>, future: &Bound<'_, PyAny>, made: Made) -> PyResult<()> {
    if future.call_method0("done")?.extract::<bool>()? {
        return Ok(());
    }
    match made(py) {
        Ok(value) => future.call_method1("set_result", (value,))?,
        Err(error) => future.call_method1("set_exception", (error,))?,
    };
    Ok(())
}

/// Releases what a future waited for, when it is done or cancelled.
#[pyclass(frozen)]
struct LetGo {
    task: Weak<Task>,
}

#[pymethods]
impl LetGo {
    fn __call__(&self, _future: &Bound<'_, PyAny>) {
        if let Some(task) = self.task.upgrade() {
            *task.pending.lock().unwrap_or_else(PoisonError::into_inner) = None;
        }
    }
}

/// Passes a woken task to the thread that completes it.
fn courier(task: Arc<Task>) {
    static COURIER: Mutex<Option<(u64, Sender<Arc<Task>>)>> = Mutex::new(None);
    let mut courier = COURIER.lock().unwrap_or_else(PoisonError::into_inner);
    let generation = fork::generation();
    // A fork does not copy the thread of the parent process.
    if courier.as_ref().is_none_or(|(of, _)| *of != generation) {
        let (sender, receiver) = channel::<Arc<Task>>();
        let work = move || {
            for task in receiver {
                if let Some(made) = task.poll() {
                    task.deliver(made);
                }
            }
        };
        if std::thread::Builder::new().name("fetchwise-asyncio".to_owned()).spawn(work).is_err() {
            return;
        }
        *courier = Some((generation, sender));
    }
    if let Some((_, sender)) = courier.as_ref() {
        let _ = sender.send(task);
    }
}

/// Returns a future of the running loop.
fn new_future(py: Python<'_>) -> PyResult<(Py<PyAny>, Bound<'_, PyAny>)> {
    let event_loop = py.import("asyncio")?.call_method0("get_running_loop")?;
    let future = event_loop.call_method0("create_future")?;
    Ok((event_loop.unbind(), future))
}

/// Returns the `asyncio` future that ends when `pending` does.
pub(crate) fn future(
    py: Python<'_>,
    pending: impl Future<Output = Made> + Send + 'static,
) -> PyResult<Bound<'_, PyAny>> {
    let (event_loop, future) = new_future(py)?;
    let task = Arc::new(Task {
        pending: Mutex::new(Some(Box::pin(pending))),
        event_loop,
        future: future.clone().unbind(),
    });
    match task.poll() {
        Some(made) => complete(py, &future, made)?,
        None => {
            future.call_method1("add_done_callback", (LetGo { task: Arc::downgrade(&task) },))?;
        }
    }
    Ok(future)
}

/// Returns the `asyncio` future of blocking work, which runs in a separate thread. Cancelling it
/// stops the wait, not the work.
pub(crate) fn blocking(
    py: Python<'_>,
    work: impl FnOnce() -> Made + Send + 'static,
) -> PyResult<Bound<'_, PyAny>> {
    let (event_loop, future) = new_future(py)?;
    let task = Task { pending: Mutex::new(None), event_loop, future: future.clone().unbind() };
    std::thread::Builder::new()
        .name("fetchwise-work".to_owned())
        .spawn(move || task.deliver(work()))?;
    Ok(future)
}

/// Returns figures as a dict.
pub(crate) fn figures(py: Python<'_>, figures: &[(&str, u64)]) -> PyResult<Py<PyAny>> {
    let out = PyDict::new(py);
    for (name, value) in figures {
        out.set_item(name, value)?;
    }
    Ok(out.into_any().unbind())
}
