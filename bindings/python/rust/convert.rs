//! Conversion of Python arguments: URLs, headers, bodies, times.
//! Must not know: what any of them means.

use fetchwise::attempt::Hint;
use fetchwise::heuristic::Heuristic;
use fetchwise::response::Header;
use fetchwise::time::{Clock, Timestamp};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyByteArray, PyBytes, PyDict, PyList, PyMemoryView, PyString, PyTuple};
use url::Url;

use crate::errors;

/// Converts a URL: a `str`, or anything whose `str()` is one (`yarl.URL`, `httpx.URL`).
pub(crate) fn url(given: &Bound<'_, PyAny>) -> PyResult<Url> {
    let parse =
        |text: &str| fetchwise::heuristic::url::parse(text).map_err(|error| errors::url(&error));
    match given.cast::<PyString>() {
        Ok(text) => parse(text.to_str()?),
        Err(_) => parse(given.str()?.to_str()?),
    }
}

/// Converts a date in seconds since 1970, as `time.time()` returns it, to the time of this process;
/// now when none is given.
pub(crate) fn time(seconds: Option<f64>) -> PyResult<Timestamp> {
    let now = Timestamp::now();
    seconds.map_or(Ok(now), |seconds| Ok(Clock::System.time_of(date(Some(seconds))?)))
}

/// Converts a date in seconds since 1970, as `time.time()` returns it; the present one when none is
/// given.
pub(crate) fn date(seconds: Option<f64>) -> PyResult<Timestamp> {
    let Some(seconds) = seconds else { return Ok(Timestamp::date()) };
    let ms = (seconds * 1000.0).round();
    // Above this, milliseconds are not whole numbers any more.
    if !(0.0..9e15).contains(&ms) {
        return Err(PyValueError::new_err(format!(
            "invalid time {seconds}: expected seconds since 1970"
        )));
    }
    Ok(Timestamp::from_millis(ms as i64))
}

/// Returns a date in seconds since 1970.
pub(crate) fn seconds(date: Timestamp) -> f64 {
    date.as_millis() as f64 / 1000.0
}

/// Returns the date of a time of this process, in seconds since 1970.
pub(crate) fn date_seconds(time: Timestamp) -> f64 {
    seconds(Clock::System.date_of(time))
}

/// Converts a duration in seconds.
pub(crate) fn span(name: &str, seconds: f64) -> PyResult<std::time::Duration> {
    std::time::Duration::try_from_secs_f64(seconds).map_err(|_| {
        PyValueError::new_err(format!("invalid {name} {seconds}: expected a number of seconds"))
    })
}

/// Converts a hint at the last failure.
pub(crate) fn hint(name: Option<&str>) -> PyResult<Option<Hint>> {
    name.map(|name| name.parse::<Hint>().map_err(|error| PyValueError::new_err(error.to_string())))
        .transpose()
}

/// Converts the caller's heuristics: pairs of type and value, or a mapping.
pub(crate) fn known(given: Option<&Bound<'_, PyAny>>) -> PyResult<Vec<Heuristic>> {
    let Some(given) = given else { return Ok(Vec::new()) };
    let own = |(kind, value): (String, String)| {
        Heuristic::of_caller(&kind, &value)
            .map_err(|error| PyValueError::new_err(error.to_string()))
    };
    pairs(given)?.into_iter().map(own).collect()
}

/// Converts headers: a mapping, or pairs, of `str` or `bytes`. A value may be a list, as in Scrapy.
pub(crate) fn headers(given: Option<&Bound<'_, PyAny>>) -> PyResult<Vec<Header>> {
    let Some(given) = given else { return Ok(Vec::new()) };
    Ok(pairs(given)?.into_iter().map(|(name, value)| Header::new(name, value)).collect())
}

fn pairs(given: &Bound<'_, PyAny>) -> PyResult<Vec<(String, String)>> {
    let mut out = Vec::new();
    if given.is_none() {
        return Ok(out);
    }
    if let Ok(dict) = given.cast_exact::<PyDict>() {
        for (name, value) in dict {
            pair(&name, &value, &mut out)?;
        }
        return Ok(out);
    }
    // A list is the most common case. Looking up a missing attribute costs as much as reading a
    // small page.
    if given.is_exact_instance_of::<PyList>() || given.is_exact_instance_of::<PyTuple>() {
        return items_of(given, out);
    }
    let items = match given.hasattr("items")? {
        // A repeated header is two headers if the mapping can represent that.
        true if given.hasattr("multi_items")? => given.call_method0("multi_items")?,
        true => given.call_method0("items")?,
        false => given.clone(),
    };
    items_of(&items, out)
}

fn items_of(
    items: &Bound<'_, PyAny>,
    mut out: Vec<(String, String)>,
) -> PyResult<Vec<(String, String)>> {
    let wrong = || PyTypeError::new_err("expected a mapping or pairs of name and value");
    for item in items.try_iter()? {
        let item = item?;
        match item.cast_exact::<PyTuple>() {
            Ok(two) if two.len() == 2 => pair(&two.get_item(0)?, &two.get_item(1)?, &mut out)?,
            Ok(_) => return Err(wrong()),
            Err(_) => {
                let (name, value): (Bound<'_, PyAny>, Bound<'_, PyAny>) =
                    item.extract().map_err(|_| wrong())?;
                pair(&name, &value, &mut out)?;
            }
        }
    }
    Ok(out)
}

fn pair(
    name: &Bound<'_, PyAny>,
    value: &Bound<'_, PyAny>,
    out: &mut Vec<(String, String)>,
) -> PyResult<()> {
    if value.is_instance_of::<PyList>() || value.is_instance_of::<PyTuple>() {
        for one in value.try_iter()? {
            out.push((text(name)?, text(&one?)?));
        }
        return Ok(());
    }
    out.push((text(name)?, text(value)?));
    Ok(())
}

/// Converts text, or bytes that contain text. Invalid UTF-8 is replaced. Numbers and flags are
/// taken as printed.
fn text(given: &Bound<'_, PyAny>) -> PyResult<String> {
    if let Ok(text) = given.cast::<PyString>() {
        return Ok(text.to_string_lossy().into_owned());
    }
    if let Ok(bytes) = given.cast::<PyBytes>() {
        return Ok(String::from_utf8_lossy(bytes.as_bytes()).into_owned());
    }
    Ok(given.str()?.to_string_lossy().into_owned())
}

/// Converts a body. `bytes` are borrowed, even while other threads run, because they cannot change.
/// A `bytearray` or a `memoryview` is copied.
pub(crate) fn body(given: &Bound<'_, PyAny>) -> PyResult<PyBackedBytes> {
    if given.is_instance_of::<PyMemoryView>() {
        let bytes = given.py().get_type::<PyBytes>().call1((given,))?;
        return Ok(bytes.cast_into::<PyBytes>()?.into());
    }
    if given.is_instance_of::<PyBytes>() || given.is_instance_of::<PyByteArray>() {
        return Ok(given.extract::<PyBackedBytes>()?);
    }
    let kind = given.get_type().name()?;
    Err(PyTypeError::new_err(format!(
        "a body is bytes, a bytearray or a memoryview, not {kind}; text has to be encoded as the page was"
    )))
}
