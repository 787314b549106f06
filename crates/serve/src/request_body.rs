//! Request bodies: bytes within limits of size, time and memory, and JSON parsed from them.
//!
//! Owns: the bytes of all bodies in memory. A body counts until it is dropped, which is after its
//! request was served.
//!
//! Invariants: bodies take a bounded number of bytes, for all clients and for each. A parsed value
//! takes at most a fixed multiple of its text: no field accepts an unbounded number of values.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::Body;
use axum::http::StatusCode;
use http_body_util::BodyExt;
use serde::de::{DeserializeSeed, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::options::Options;
use super::problem::Problem;
use crate::auth::Client;
use fetchwise::SweepTrigger;
use fetchwise::unknown_name::UnknownName;

/// A body of up to this size is small: it needs no reservation.
const SMALL_BYTES: usize = 64 << 10;
/// Maximum bytes of all small bodies.
const SMALL_BYTES_IN_ALL: usize = 32 << 20;
/// The bodies of the maximum size for which there is room.
const LARGE_IN_ALL: usize = 4;
/// The part of all room that one client may use.
const PER_CLIENT: usize = 2;
/// Bytes are counted in units of this size.
const UNIT: usize = 1 << 10;
/// The number of known clients above which idle ones are dropped.
const CLIENTS_BEFORE_SWEEP: usize = 1000;
/// Maximum number of elements in a list or object inside an item, such as its tags.
const MAX_ELEMENTS: usize = 1000;
/// The characters of an unknown name that its error shows.
const MAX_NAME_CHARS: usize = 100;
/// Maximum number of values in a free-form field, such as the headers of a response.
const MAX_VALUES: usize = 10_000;

/// The room for bodies.
#[derive(Debug)]
pub(crate) struct Bodies {
    max_body: usize,
    time: Duration,
    small: ByteQuota,
    large: ByteQuota,
}

/// A body, which holds its room.
#[derive(Debug)]
pub(crate) struct RequestBody {
    bytes: Vec<u8>,
    _held: HeldBytes,
}

impl std::ops::Deref for RequestBody {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Bodies {
    /// Creates the room for bodies within `options`.
    pub(crate) fn new(options: &Options) -> Self {
        Self {
            max_body: options.max_body,
            time: options.body_time,
            small: ByteQuota::new(SMALL_BYTES_IN_ALL),
            large: ByteQuota::new(options.max_body.saturating_mul(LARGE_IN_ALL)),
        }
    }

    /// Reads the body of a client. A large one waits until there is room for all of it before its
    /// bytes are read.
    ///
    /// # Errors
    /// 413 if it is too large, 408 if it does not arrive in time, 400 if it breaks off, 503 if
    /// there is no room.
    pub(crate) async fn read(
        &self,
        client: Client,
        mut body: Body,
    ) -> Result<RequestBody, Problem> {
        let announced =
            usize::try_from(axum::body::HttpBody::size_hint(&body).lower()).unwrap_or(usize::MAX);
        let mut held = match announced > SMALL_BYTES {
            true => self.large(client, announced.min(self.max_body)).await?,
            false => HeldBytes::default(),
        };
        let mut bytes = Vec::new();
        if announced > SMALL_BYTES {
            bytes.try_reserve_exact(announced.min(self.max_body)).map_err(|_| no_room())?;
        }
        let deadline = tokio::time::Instant::now() + self.time;
        loop {
            let frame = match tokio::time::timeout_at(deadline, body.frame()).await {
                Ok(None) => return Ok(RequestBody { bytes, _held: held }),
                Ok(Some(Ok(frame))) => frame,
                Ok(Some(Err(_))) => return Err(Problem::bad_request("the body ended early")),
                Err(_) => return Err(self.too_slow()),
            };
            let Ok(data) = frame.into_data() else { continue };
            let length = bytes.len().saturating_add(data.len());
            if length > self.max_body {
                return Err(self.too_large());
            }
            if length > held.bytes && length > SMALL_BYTES {
                // A body without an announced length may become as large as any.
                held = self.large(client, self.max_body).await?;
            } else if length > held.bytes {
                self.small.grow(client, &mut held, length).ok_or_else(no_room)?;
            }
            bytes.extend_from_slice(&data);
        }
    }

    async fn large(&self, client: Client, bytes: usize) -> Result<HeldBytes, Problem> {
        tokio::time::timeout(self.time, self.large.take(client, bytes))
            .await
            .ok()
            .flatten()
            .ok_or_else(no_room)
    }

    fn too_large(&self) -> Problem {
        Problem::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "body_too_large",
            format!(
                "the body is larger than {} bytes: send less per request, or raise --max-body",
                self.max_body
            ),
        )
    }

    fn too_slow(&self) -> Problem {
        Problem::new(
            StatusCode::REQUEST_TIMEOUT,
            "body_timeout",
            format!("the body did not arrive within {} s", self.time.as_secs()),
        )
    }
}

fn no_room() -> Problem {
    Problem::unavailable(
        "too_many_bodies",
        "too many bytes in unfinished requests: send fewer requests at once",
    )
}

/// The bytes that all clients together, and each of them, may have in unfinished bodies.
#[derive(Debug)]
struct ByteQuota {
    all: Arc<Semaphore>,
    units_per_client: usize,
    clients: Mutex<HashMap<Client, Arc<Semaphore>>>,
    sweep: SweepTrigger,
}

/// What of a quota a body occupies.
#[derive(Debug, Default)]
struct HeldBytes {
    /// The room, in bytes.
    bytes: usize,
    places: Option<(OwnedSemaphorePermit, OwnedSemaphorePermit)>,
}

impl ByteQuota {
    fn new(bytes: usize) -> Self {
        let units = bytes.div_ceil(UNIT).clamp(PER_CLIENT, Semaphore::MAX_PERMITS);
        Self {
            all: Arc::new(Semaphore::new(units)),
            units_per_client: units / PER_CLIENT,
            clients: Mutex::default(),
            sweep: SweepTrigger::new(CLIENTS_BEFORE_SWEEP),
        }
    }

    fn of(&self, client: Client) -> Arc<Semaphore> {
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        if self.sweep.is_due(clients.len()) {
            clients.retain(|_, room| Arc::strong_count(room) > 1);
            self.sweep.done(clients.len());
        }
        Arc::clone(
            clients
                .entry(client)
                .or_insert_with(|| Arc::new(Semaphore::new(self.units_per_client))),
        )
    }

    /// Waits for room. The client's own limit comes first, so a client that waits for itself delays
    /// no other.
    async fn take(&self, client: Client, bytes: usize) -> Option<HeldBytes> {
        let units =
            u32::try_from(bytes.div_ceil(UNIT).min(self.units_per_client)).unwrap_or(u32::MAX);
        let own = self.of(client).acquire_many_owned(units).await.ok()?;
        let all = Arc::clone(&self.all).acquire_many_owned(units).await.ok()?;
        Some(HeldBytes { bytes, places: Some((own, all)) })
    }

    /// Extends `held` to `bytes` bytes, if there is room now.
    fn grow(&self, client: Client, held: &mut HeldBytes, bytes: usize) -> Option<()> {
        let more = u32::try_from(bytes.saturating_sub(held.bytes).div_ceil(UNIT)).ok()?;
        let own = self.of(client).try_acquire_many_owned(more).ok()?;
        let all = Arc::clone(&self.all).try_acquire_many_owned(more).ok()?;
        held.bytes += more as usize * UNIT;
        match &mut held.places {
            Some((held_own, held_all)) => {
                held_own.merge(own);
                held_all.merge(all);
            }
            None => held.places = Some((own, all)),
        }
        Some(())
    }
}

/// Parses a value from JSON.
///
/// # Errors
/// 400 with the error and its position, 422 for a field that `T` does not have.
pub(crate) fn parse<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, Problem> {
    known_fields(body, &[fields_of::<T>()])?;
    parse_part(body)
}

/// Parses an object that has the fields of two types.
///
/// # Errors
/// As [`parse`]; a field must belong to one of the two.
pub(crate) fn parse_both<'a, A: Deserialize<'a>, B: Deserialize<'a>>(
    body: &'a [u8],
) -> Result<(A, B), Problem> {
    known_fields(body, &[fields_of::<A>(), fields_of::<B>()])?;
    Ok((parse_part(body)?, parse_part(body)?))
}

fn parse_part<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, Problem> {
    if body.iter().all(u8::is_ascii_whitespace) {
        return Err(Problem::bad_request("the body is empty: this route expects JSON"));
    }
    serde_json::from_slice(body).map_err(|error| invalid(&error))
}

/// Returns the names of the fields that `T` reads; none if it is not a struct.
fn fields_of<'de, T: Deserialize<'de>>() -> &'static [&'static str] {
    let mut fields: &'static [&'static str] = &[];
    // The deserializer stops before it has a value, so this never succeeds.
    let _ = T::deserialize(FieldNames(&mut fields));
    fields
}

/// A deserializer that notes the fields which a struct asks for.
struct FieldNames<'a>(&'a mut &'static [&'static str]);

impl<'de> Deserializer<'de> for FieldNames<'_> {
    type Error = serde::de::value::Error;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Self::Error> {
        Err(Self::Error::custom("not a struct"))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, Self::Error> {
        *self.0 = fields;
        Err(Self::Error::custom("only the names were asked for"))
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

/// Checks that an object has no other fields than those in `known`. Says nothing about anything
/// else: the parser of the body does.
///
/// # Errors
/// 422 with the nearest known name.
pub(crate) fn known_fields(body: &[u8], known: &[&'static [&'static str]]) -> Result<(), Problem> {
    if known.iter().all(|fields| fields.is_empty()) || !body.trim_ascii_start().starts_with(b"{") {
        return Ok(());
    }
    let mut from = serde_json::Deserializer::from_slice(body);
    let Ok(Some(unknown)) = from.deserialize_map(FirstUnknown(known)) else { return Ok(()) };
    let words =
        UnknownName::new("field", &unknown, known.iter().copied().flatten().copied()).to_string();
    Err(Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "unknown_field", words))
}

/// Finds the first field whose name is not known.
struct FirstUnknown<'n>(&'n [&'static [&'static str]]);

impl<'de> Visitor<'de> for FirstUnknown<'_> {
    type Value = Option<String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut first = None;
        while let Some(unknown) = map.next_key_seed(UnknownKey(self.0))? {
            first = first.or(unknown);
            map.next_value::<IgnoredAny>()?;
        }
        Ok(first)
    }
}

/// Compares a key with the known ones and keeps only an unknown one.
struct UnknownKey<'n>(&'n [&'static [&'static str]]);

impl<'de> DeserializeSeed<'de> for UnknownKey<'_> {
    type Value = Option<String>;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Self::Value, D::Error> {
        from.deserialize_str(self)
    }
}

impl Visitor<'_> for UnknownKey<'_> {
    type Value = Option<String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E>(self, name: &str) -> Result<Self::Value, E> {
        let is_known = self.0.iter().any(|fields| fields.contains(&name));
        Ok((!is_known).then(|| name.chars().take(MAX_NAME_CHARS).collect()))
    }
}

fn invalid(error: &serde_json::Error) -> Problem {
    Problem::bad_request(format!("the body is not valid JSON for this route: {error}"))
}

/// Returns the elements of a list, or of an object that has a list under `name`, as their text;
/// none for any other object. It stops at the first element beyond `most`.
///
/// # Errors
/// 400 if the body is not JSON, 422 if there are too many elements.
pub(crate) fn items<'a>(
    body: &'a [u8],
    name: &str,
    most: usize,
) -> Result<Option<Vec<&'a RawValue>>, Problem> {
    if body.iter().all(u8::is_ascii_whitespace) {
        return Err(Problem::bad_request("the body is empty: this route expects JSON"));
    }
    let mut found = Found::Valid;
    let mut from = serde_json::Deserializer::from_slice(body);
    let items = ItemsSeed { name, most, found: &mut found }.deserialize(&mut from);
    let wrong =
        |words: String| Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid_value", words);
    match (found, items) {
        (Found::TooMany, _) => Err(wrong(format!("too many items in one call: at most {most}"))),
        (Found::NotAList, _) => Err(wrong(format!("`{name}` must be a list"))),
        (Found::Valid, items) => {
            let items = items.map_err(|error| invalid(&error))?;
            from.end().map_err(|error| invalid(&error))?;
            Ok(items)
        }
    }
}

/// The reason why reading items stopped.
enum Found {
    Valid,
    TooMany,
    NotAList,
}

/// Reads the items of a body: a list, or an object with a list under `name`.
struct ItemsSeed<'n> {
    name: &'n str,
    most: usize,
    found: &'n mut Found,
}

impl<'de> DeserializeSeed<'de> for ItemsSeed<'_> {
    type Value = Option<Vec<&'de RawValue>>;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Self::Value, D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ItemsSeed<'_> {
    type Value = Option<Vec<&'de RawValue>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object or a list of objects")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = list.next_element::<&RawValue>()? {
            if items.len() == self.most {
                *self.found = Found::TooMany;
                return Err(A::Error::custom("too many items"));
            }
            items.push(item);
        }
        Ok(Some(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut items = None;
        while let Some(is_named) = map.next_key_seed(IsNamed(self.name))? {
            if !is_named {
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            let list = ItemsSeed { name: self.name, most: self.most, found: &mut *self.found };
            items = match map.next_value_seed(ListOnly(list)) {
                Ok(list) => Some(list),
                Err(error) => return Err(error),
            };
        }
        Ok(items)
    }
}

/// Compares a key without storing it.
struct IsNamed<'n>(&'n str);

impl<'de> DeserializeSeed<'de> for IsNamed<'_> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<bool, D::Error> {
        from.deserialize_str(self)
    }
}

impl Visitor<'_> for IsNamed<'_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E>(self, name: &str) -> Result<bool, E> {
        Ok(name == self.0)
    }
}

/// Reads the list of an object; nothing else may stand in its place.
struct ListOnly<'n>(ItemsSeed<'n>);

impl<'de> DeserializeSeed<'de> for ListOnly<'_> {
    type Value = Vec<&'de RawValue>;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Self::Value, D::Error> {
        let text = <&RawValue>::deserialize(from)?;
        if !text.get().starts_with('[') {
            *self.0.found = Found::NotAList;
            return Err(D::Error::custom("not a list"));
        }
        let found = serde_json::Deserializer::from_str(text.get())
            .deserialize_any(self.0)
            .map_err(D::Error::custom)?;
        Ok(found.unwrap_or_default())
    }
}

/// Any JSON value of a limited number of values.
#[derive(Clone, Debug, Default)]
pub(crate) struct AnyJson(pub(crate) Value);

impl<'de> Deserialize<'de> for AnyJson {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = <&RawValue>::deserialize(from)?.get();
        if values(text.as_bytes()) > MAX_VALUES {
            return Err(D::Error::custom(format_args!("too many values: at most {MAX_VALUES}")));
        }
        serde_json::from_str(text).map(Self).map_err(D::Error::custom)
    }
}

/// Returns an upper bound for the number of values in a JSON text.
fn values(text: &[u8]) -> usize {
    let (mut count, mut in_string, mut is_escaped) = (1, false, false);
    for byte in text {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if in_string => is_escaped = true,
            b'"' => in_string = !in_string,
            b',' | b'[' | b'{' if !in_string => count += 1,
            _ => {}
        }
    }
    count
}

/// Reads a list of limited length.
pub(crate) fn few<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    from.deserialize_seq(FewStrings)
}

/// Reads a list of limited length, or null.
pub(crate) fn few_if_any<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<Vec<String>>, D::Error> {
    struct Few(Vec<String>);

    impl<'de> Deserialize<'de> for Few {
        fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
            few(from).map(Self)
        }
    }

    Ok(Option::<Few>::deserialize(from)?.map(|few| few.0))
}

/// Reads an object with a limited number of names.
pub(crate) fn few_named<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<BTreeMap<String, String>, D::Error> {
    from.deserialize_map(FewNamed(PhantomData))
}

fn too_many<E: serde::de::Error>() -> E {
    E::custom(format_args!("too many elements: at most {MAX_ELEMENTS}"))
}

struct FewStrings;

impl<'de> Visitor<'de> for FewStrings {
    type Value = Vec<String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of texts")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut all = Vec::new();
        while let Some(one) = list.next_element()? {
            if all.len() == MAX_ELEMENTS {
                return Err(too_many());
            }
            all.push(one);
        }
        Ok(all)
    }
}

struct FewNamed(PhantomData<()>);

impl<'de> Visitor<'de> for FewNamed {
    type Value = BTreeMap<String, String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of texts")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut all = BTreeMap::new();
        while let Some((name, value)) = map.next_entry()? {
            if all.len() == MAX_ELEMENTS {
                return Err(too_many());
            }
            all.insert(name, value);
        }
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{IpAddr, Ipv4Addr};

    fn client(number: u8) -> Client {
        Client::Address(IpAddr::V4(Ipv4Addr::new(127, 0, 0, number)))
    }

    fn texts(body: &[u8], most: usize) -> Result<Option<Vec<&str>>, StatusCode> {
        let found = items(body, "urls", most).map_err(|problem| problem.status())?;
        Ok(found.map(|items| items.into_iter().map(RawValue::get).collect()))
    }

    #[test]
    fn items_are_the_elements_of_a_list_or_of_a_named_list() {
        assert_eq!(texts(br#"[1, {"a": 2} ]"#, 2), Ok(Some(vec!["1", r#"{"a": 2}"#])));
        assert_eq!(texts(br#"{"x": [1], "urls": ["a"], "y": {}}"#, 2), Ok(Some(vec![r#""a""#])));
        assert_eq!(texts(br#"{"x": [1]}"#, 2), Ok(None));
        assert_eq!(texts(b"[1,2,3]", 2), Err(StatusCode::UNPROCESSABLE_ENTITY));
        assert_eq!(texts(br#"{"urls": [1,2,3]}"#, 2), Err(StatusCode::UNPROCESSABLE_ENTITY));
        assert_eq!(texts(br#"{"urls": 3}"#, 2), Err(StatusCode::UNPROCESSABLE_ENTITY));
        for wrong in [&b"7"[..], b"[1", b"[1] x", b" ", br#"{"urls": [1}"#, b"\xff"] {
            assert_eq!(texts(wrong, 2), Err(StatusCode::BAD_REQUEST), "{wrong:?}");
        }
    }

    #[test]
    fn reading_items_stops_at_the_first_one_too_many() {
        // The rest is not JSON, which nobody reads.
        assert_eq!(texts(b"[{},{},{},#", 2), Err(StatusCode::UNPROCESSABLE_ENTITY));
    }

    #[test]
    fn a_free_field_has_a_limited_number_of_values() {
        let list = |length: usize| format!("[{}0]", "{\"\":0},".repeat(length));
        assert!(serde_json::from_str::<AnyJson>(&list(1000)).is_ok());
        assert!(serde_json::from_str::<AnyJson>(&list(MAX_VALUES)).is_err());
        let text = format!("[\"{}\"]", r#"\\\",[{"#.repeat(MAX_VALUES));
        assert!(
            serde_json::from_str::<AnyJson>(&text).is_ok(),
            "a text is one value whatever it contains"
        );
    }

    #[tokio::test]
    async fn one_client_cannot_take_all_room() {
        let options = Options {
            max_body: 1 << 20,
            body_time: Duration::from_millis(1),
            ..Options::default()
        };
        let bodies = Bodies::new(&options);
        let large = || Body::from(vec![b' '; 1 << 20]);
        let first = bodies.read(client(1), large()).await.unwrap();
        let second = bodies.read(client(1), large()).await.unwrap();
        assert_eq!(
            bodies.read(client(1), large()).await.unwrap_err().error_type(),
            "too_many_bodies"
        );
        let others = bodies.read(client(2), large()).await.unwrap();
        drop((first, others));
        assert_eq!(bodies.read(client(1), large()).await.unwrap().len(), 1 << 20);
        drop(second);
    }

    #[tokio::test]
    async fn small_bodies_have_a_bound_too() {
        let bodies = Bodies { small: ByteQuota::new(4 << 10), ..Bodies::new(&Options::default()) };
        let body = |length: usize| Body::from(vec![b' '; length]);
        let first = bodies.read(client(1), body(1500)).await.unwrap();
        assert_eq!(
            bodies.read(client(1), body(100)).await.unwrap_err().error_type(),
            "too_many_bodies"
        );
        assert!(bodies.read(client(2), body(100)).await.is_ok());
        drop(first);
        assert!(bodies.read(client(1), body(2000)).await.is_ok());
    }
}
