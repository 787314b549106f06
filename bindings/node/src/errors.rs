//! Failures as JavaScript errors: one mapping, so that one failure always has one `code`, thrown or
//! rejected.

use std::fmt::Display;

use fetchwise::journal::{AppendError, JournalError, LogError as BadLog};
use fetchwise::selector::SinkError;
use napi::bindgen_prelude::{JsObjectValue, JsValue};
use napi::{Env, JsError};
use napi_derive::napi;

/// The values of `error.code`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// The URL cannot be fetched.
    Url,
    /// Settings, names or rules cannot be used.
    Config,
    /// The log refuses, or cannot be written.
    Log,
    /// Another writer has locked the directory.
    Locked,
    /// The journal is closed.
    Closed,
    /// A value is out of range.
    Value,
    /// A call is not allowed in this state.
    Misuse,
}

impl AsRef<str> for Code {
    fn as_ref(&self) -> &str {
        match self {
            Self::Url => "ERR_FETCHWISE_URL",
            Self::Config => "ERR_FETCHWISE_CONFIG",
            Self::Log => "ERR_FETCHWISE_LOG",
            Self::Locked => "ERR_FETCHWISE_LOCKED",
            Self::Closed => "ERR_FETCHWISE_CLOSED",
            Self::Value => "ERR_FETCHWISE_VALUE",
            Self::Misuse => "ERR_FETCHWISE_MISUSE",
        }
    }
}

/// The reason of a failure, before it becomes a JavaScript error.
#[derive(Clone, Debug)]
pub struct Failure {
    code: Code,
    message: String,
    /// The process that has locked the directory.
    pid: Option<u32>,
}

impl Failure {
    fn new(code: Code, message: impl Display) -> Self {
        Self { code, message: message.to_string(), pid: None }
    }

    pub fn url(message: impl Display) -> Self {
        Self::new(Code::Url, message)
    }

    pub fn config(message: impl Display) -> Self {
        Self::new(Code::Config, message)
    }

    pub fn log(message: impl Display) -> Self {
        Self::new(Code::Log, message)
    }

    pub fn value(message: impl Display) -> Self {
        Self::new(Code::Value, message)
    }

    pub fn misuse(message: impl Display) -> Self {
        Self::new(Code::Misuse, message)
    }

    pub fn closed() -> Self {
        Self::new(Code::Closed, "the journal is closed")
    }

    /// Returns a JavaScript error with `code`, and `pid` if there is one.
    pub fn into_js(self, env: &Env) -> napi::Error {
        let pid = self.pid;
        let made = JsError::from(napi::Error::from(self)).into_unknown(Env::from_raw(env.raw()));
        if let Some(pid) = pid
            && let Ok(mut object) = made.coerce_to_object()
        {
            // The error is unchanged when this fails.
            let _ = object.set_named_property("pid", pid);
            return napi::Error::from(object.to_unknown());
        }
        napi::Error::from(made)
    }
}

impl Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

/// For errors that are thrown at once. Their message contains `pid`.
impl From<Failure> for napi::Error<Code> {
    fn from(failure: Failure) -> Self {
        Self::new(failure.code, failure.message)
    }
}

impl From<JournalError> for Failure {
    fn from(error: JournalError) -> Self {
        match &error {
            JournalError::Log(BadLog::Locked { .. }) => {
                let pid = error.holder_pid();
                let message = format!(
                    "{error}; close the other one, give both this journal, or ask a shared `fetchwise serve`"
                );
                Self { pid, ..Self::new(Code::Locked, message) }
            }
            JournalError::Append(AppendError::Closed) => Self::closed(),
            _ => Self::log(error),
        }
    }
}

impl From<SinkError> for Failure {
    fn from(error: SinkError) -> Self {
        match error.0.downcast_ref::<JournalError>() {
            Some(inner) => inner.clone().into(),
            None => Self::log(&error.0),
        }
    }
}

impl From<fetchwise::Error> for Failure {
    fn from(error: fetchwise::Error) -> Self {
        match &error {
            fetchwise::Error::Url(error) => Self::url(error),
            fetchwise::Error::Journal(source) | fetchwise::Error::Locked { source, .. } => {
                match source.downcast_ref::<JournalError>() {
                    Some(inner) => inner.clone().into(),
                    None => Self::log(source),
                }
            }
            other => Self::config(other),
        }
    }
}

/// Panics. A test uses it to check that a defect in an asynchronous call becomes a JavaScript error
/// and does not end the process.
#[napi(catch_unwind, skip_typescript, js_name = "_panic")]
pub fn panic_for_a_test() {
    panic!("asked for by a test");
}
