//! Long work on libuv's threads: a closure runs there, and its result becomes a promise here.
//!
//! Invariants: other threads never touch JavaScript; a panic there is a rejection and never ends
//! the process.

use std::panic::{AssertUnwindSafe, catch_unwind};

use napi::bindgen_prelude::{AsyncTask, ToNapiValue, TypeName};
use napi::{Env, Task};

use crate::errors::Failure;

/// Work for another thread, and the conversion of its result on this thread.
pub struct Work<T, R> {
    work: Option<Box<dyn FnOnce() -> Result<T, Failure> + Send>>,
    made: fn(T) -> R,
}

/// Returns the promise of the work.
pub fn promise<T: Send + 'static, R: ToNapiValue + TypeName + 'static>(
    work: impl FnOnce() -> Result<T, Failure> + Send + 'static,
    made: fn(T) -> R,
) -> AsyncTask<Work<T, R>> {
    AsyncTask::new(Work { work: Some(Box::new(work)), made })
}

impl<T: Send + 'static, R: ToNapiValue + TypeName + 'static> Task for Work<T, R> {
    type Output = Result<T, Failure>;
    type JsValue = R;

    fn compute(&mut self) -> napi::Result<Self::Output> {
        let Some(work) = self.work.take() else {
            return Ok(Err(Failure::misuse("this work was already done")));
        };
        Ok(catch_unwind(AssertUnwindSafe(work))
            .unwrap_or_else(|_| Err(Failure::log("defect of fetchwise: it panicked"))))
    }

    fn resolve(&mut self, env: Env, output: Self::Output) -> napi::Result<R> {
        output.map(self.made).map_err(|failure| failure.into_js(&env))
    }
}
