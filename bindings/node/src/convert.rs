//! Conversion of JavaScript arguments: URLs, headers, bodies, times, counts.
//! Must not know: what any of them means.

use std::time::Duration;

use fetchwise::attempt::Hint;
use fetchwise::heuristic::Heuristic;
use fetchwise::response::Header;
use fetchwise::time::{Clock, Timestamp};
use napi::bindgen_prelude::{
    Array, BufferSlice, Either, Function, JsObjectValue, JsValue, Object, Unknown,
};
use napi::{Env, ValueType};
use url::Url;

use crate::errors::Failure;

/// A body: borrowed bytes, or text.
pub type Body<'a> = Either<BufferSlice<'a>, String>;

/// Returns the bytes of a body.
pub fn bytes<'a>(body: &'a Body<'_>) -> &'a [u8] {
    match body {
        Either::A(bytes) => bytes,
        Either::B(text) => text.as_bytes(),
    }
}

fn odd(error: napi::Error) -> Failure {
    Failure::value(error.reason.clone())
}

/// Returns the result of `String()`.
fn text(given: &Unknown<'_>) -> Result<String, Failure> {
    given.coerce_to_string().and_then(|text| text.into_utf8()?.into_owned()).map_err(odd)
}

/// Returns the result of `JSON.stringify`; text is JSON already.
pub fn json<'env>(env: &'env Env, given: Unknown<'env>) -> Result<String, Failure> {
    if matches!(given.get_type(), Ok(ValueType::String)) {
        return text(&given);
    }
    let json = env
        .get_global()
        .and_then(|global| global.get_named_property::<Object<'env>>("JSON"))
        .map_err(odd)?;
    let stringify = json
        .get_named_property::<Function<'env, Unknown<'env>, Unknown<'env>>>("stringify")
        .map_err(odd)?;
    text(&stringify.call(given).map_err(odd)?)
}

/// Converts a URL: text, or a `URL`.
pub fn url(given: &Unknown<'_>) -> Result<Url, Failure> {
    match given.get_type() {
        Ok(ValueType::String | ValueType::Object) => {
            fetchwise::heuristic::url::parse(&text(given)?).map_err(Failure::url)
        }
        _ => Err(Failure::url("a URL is a string or a URL")),
    }
}

/// Converts a date in milliseconds since 1970, as `Date.now()` returns it, to the time of this
/// process; now when none is given.
pub fn time(ms: Option<f64>) -> Result<Timestamp, Failure> {
    let now = Timestamp::now();
    ms.map_or(Ok(now), |ms| Ok(Clock::System.time_of(date(Some(ms))?)))
}

/// Converts a date in milliseconds since 1970, as `Date.now()` returns it; the present one when
/// none is given.
pub fn date(ms: Option<f64>) -> Result<Timestamp, Failure> {
    let Some(ms) = ms else { return Ok(Timestamp::date()) };
    // Above this, milliseconds are not whole numbers any more.
    if !(0.0..9e15).contains(&ms) {
        return Err(Failure::value(format_args!(
            "invalid time {ms}: expected milliseconds since 1970"
        )));
    }
    Ok(Timestamp::from_millis(ms.round() as i64))
}

/// Returns a date in milliseconds since 1970.
pub fn ms(date: Timestamp) -> f64 {
    date.as_millis() as f64
}

/// Returns the date of a time of this process, in milliseconds since 1970.
pub fn date_ms(time: Timestamp) -> f64 {
    ms(Clock::System.date_of(time))
}

/// Converts a duration in milliseconds.
pub fn span(name: &str, ms: f64) -> Result<Duration, Failure> {
    Duration::try_from_secs_f64(ms / 1000.0).map_err(|_| {
        Failure::value(format_args!("invalid {name} {ms}: expected a number of milliseconds"))
    })
}

/// Converts a whole number from 0 to `most`.
pub fn count(name: &str, given: f64, most: u64) -> Result<u64, Failure> {
    if given.fract() == 0.0 && (0.0..=most as f64).contains(&given) {
        return Ok(given as u64);
    }
    Err(Failure::value(format_args!(
        "invalid {name} {given}: expected a whole number from 0 to {most}"
    )))
}

/// Converts an HTTP status.
pub fn status(given: f64) -> Result<u16, Failure> {
    count("status", given, 999).map(|status| status as u16)
}

/// Converts a number from 0 to 1.
pub fn share(name: &str, given: Option<f64>) -> Result<Option<f64>, Failure> {
    match given {
        Some(value) if !(0.0..=1.0).contains(&value) => Err(Failure::value(format_args!(
            "invalid {name} {value}: expected a number from 0 to 1"
        ))),
        other => Ok(other),
    }
}

/// Converts a hint at the last failure.
pub fn hint(name: Option<&str>) -> Result<Option<Hint>, Failure> {
    name.map(|name| name.parse::<Hint>().map_err(Failure::value)).transpose()
}

/// Converts the caller's heuristics: pairs of type and value.
pub fn known(env: &Env, given: Option<&Object<'_>>) -> Result<Vec<Heuristic>, Failure> {
    let own = |(kind, value): (String, String)| {
        Heuristic::of_caller(&kind, &value).map_err(Failure::value)
    };
    pairs(env, given)?.into_iter().map(own).collect()
}

/// Converts headers: an object, whose values may be arrays, as in Node; pairs; or an iterable of
/// pairs, such as `Headers`.
pub fn headers(env: &Env, given: Option<&Object<'_>>) -> Result<Vec<Header>, Failure> {
    Ok(pairs(env, given)?.into_iter().map(|(name, value)| Header::new(name, value)).collect())
}

fn pairs(env: &Env, given: Option<&Object<'_>>) -> Result<Vec<(String, String)>, Failure> {
    let Some(given) = given else { return Ok(Vec::new()) };
    if given.is_array().map_err(odd)? {
        return pairs_of(given);
    }
    let iterates =
        given.get_named_property::<Unknown<'_>>("entries").and_then(|entries| entries.get_type());
    if iterates.map_err(odd)? == ValueType::Function {
        return pairs_of(&listed(env, given).map_err(odd)?);
    }
    let mut out = Vec::new();
    for name in Object::keys(given).map_err(odd)? {
        let value = given.get_named_property::<Unknown<'_>>(&name).map_err(odd)?;
        put(name, &value, &mut out)?;
    }
    Ok(out)
}

/// Returns the result of `Array.from`.
fn listed<'env>(env: &'env Env, given: &Object<'env>) -> napi::Result<Object<'env>> {
    let array =
        env.get_global()?.get_named_property::<Unknown<'env>>("Array")?.coerce_to_object()?;
    let from: Function<'env, Unknown<'env>, Object<'env>> = array.get_named_property("from")?;
    from.apply(array, given.to_unknown())
}

fn pairs_of(list: &Object<'_>) -> Result<Vec<(String, String)>, Failure> {
    let wrong = || Failure::value("expected an object or pairs of name and value");
    let mut out = Vec::new();
    for place in 0..list.get_array_length().map_err(odd)? {
        let pair: Array<'_> = list.get_element(place).map_err(|_| wrong())?;
        if pair.len() != 2 {
            return Err(wrong());
        }
        let name = pair.get::<Unknown<'_>>(0).map_err(odd)?.ok_or_else(wrong)?;
        let value = pair.get::<Unknown<'_>>(1).map_err(odd)?.ok_or_else(wrong)?;
        put(text(&name)?, &value, &mut out)?;
    }
    Ok(out)
}

/// Adds a name with its value, or values. A header without a value, which Node allows, is skipped.
fn put(name: String, value: &Unknown<'_>, out: &mut Vec<(String, String)>) -> Result<(), Failure> {
    match value.get_type().map_err(odd)? {
        ValueType::Undefined | ValueType::Null => {}
        ValueType::Object => {
            let list = value.coerce_to_object().map_err(odd)?;
            if !list.is_array().map_err(odd)? {
                return Err(Failure::value(format_args!(
                    "invalid value of {name}: expected a string or a list of strings"
                )));
            }
            for place in 0..list.get_array_length().map_err(odd)? {
                out.push((name.clone(), text(&list.get_element(place).map_err(odd)?)?));
            }
        }
        ValueType::Symbol | ValueType::Function => {
            return Err(Failure::value(format_args!(
                "invalid value of {name}: expected a string or a list of strings"
            )));
        }
        _ => out.push((name, text(value)?)),
    }
    Ok(())
}
