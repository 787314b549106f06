//! Signatures of requests. Signing takes some 30 microseconds and runs with the interpreter's lock;
//! keys are read without it.

use std::path::PathBuf;

use fetchwise_bindings_core::signer::{self, Signer as CoreSigner, SignerSource};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::{convert, errors};

/// A signer of requests (Web Bot Auth), with the keys of ``fetchwise identity``.
///
/// ``config`` is a TOML file with the section ``[identity]``. ``agent``, ``keys`` (a directory) and
/// ``key`` (a PEM) take precedence over it. The keys are read again every hour. One signer serves
/// all threads.
///
/// >>> signer = fetchwise.Signer(config="fetchwise.toml")  # doctest: +SKIP
/// >>> signer.headers("https://example.org/")  # doctest: +SKIP
/// {'Signature-Agent': ..., 'Signature-Input': ..., 'Signature': ...}
#[pyclass(frozen, module = "fetchwise", name = "Signer")]
pub(crate) struct Signer {
    core: Box<CoreSigner>,
}

#[pymethods]
impl Signer {
    #[new]
    #[pyo3(signature = (*, config=None, agent=None, keys=None, key=None))]
    fn new(
        py: Python<'_>,
        config: Option<PathBuf>,
        agent: Option<&str>,
        keys: Option<PathBuf>,
        key: Option<&str>,
    ) -> PyResult<Self> {
        let (agent, key) = (agent.map(str::to_owned), key.map(str::to_owned));
        let opened = py.detach(|| {
            let (agent, key) = (agent.as_deref(), key.as_deref());
            signer::open(SignerSource {
                config: config.as_deref(),
                agent,
                keys: keys.as_deref(),
                key,
            })
        });
        Ok(Self { core: Box::new(opened.map_err(errors::config)?) })
    }

    /// The origin that publishes the keys.
    #[getter]
    fn agent(&self) -> &str {
        self.core.agent().origin()
    }

    /// Returns the headers of one request's signature, which is valid for a minute. Each redirect
    /// and each repetition needs a separate one. A plain http URL is not signed: the result is
    /// empty.
    #[pyo3(signature = (url, method="GET"))]
    fn headers<'py>(
        &self,
        py: Python<'py>,
        url: &Bound<'py, PyAny>,
        method: &str,
    ) -> PyResult<Bound<'py, PyDict>> {
        let out = PyDict::new(py);
        for (name, value) in
            signer::headers(&self.core, method, &convert::url(url)?).map_err(errors::misuse)?
        {
            out.set_item(name, value)?;
        }
        Ok(out)
    }

    /// Notes the names of a response's headers: they show what form of signature the host reads.
    fn observe(&self, url: &Bound<'_, PyAny>, names: Vec<String>) -> PyResult<()> {
        signer::observe(&self.core, &convert::url(url)?, &names);
        Ok(())
    }

    /// Reads the keys again, after a rotation.
    fn reload(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| signer::reload(&self.core)).map_err(errors::config)
    }

    fn __repr__(&self) -> String {
        format!("Signer(agent={:?})", self.core.agent().origin())
    }
}
