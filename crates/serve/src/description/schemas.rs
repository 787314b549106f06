//! Schemas of types, with the names by which the document refers to them.

use schemars::Schema;
use schemars::generate::{SchemaGenerator, SchemaSettings};
use serde_json::{Map, Value, json};

/// Where the document has its schemas.
const SCHEMAS: &str = "/components/schemas";

/// Makes the schema of a type.
pub(super) type SchemaOf = fn(&mut SchemaGenerator) -> Schema;

/// The schemas of what the server reads, and of what it writes. An absent field is another matter
/// in each.
pub(super) struct Schemas {
    reads: SchemaGenerator,
    writes: SchemaGenerator,
}

impl Default for Schemas {
    fn default() -> Self {
        let settings =
            || SchemaSettings::draft2020_12().with(|it| it.definitions_path = SCHEMAS.into());
        Self {
            reads: settings().for_deserialize().into_generator(),
            writes: settings().for_serialize().into_generator(),
        }
    }
}

impl Schemas {
    /// Returns the schema of what the server reads.
    pub(super) fn read(&mut self, of: SchemaOf) -> Value {
        let mut schema = of(&mut self.reads).to_value();
        close(&mut schema);
        each(&mut schema, &mut one_line);
        schema
    }

    /// Returns the schema of what it writes.
    pub(super) fn written(&mut self, of: SchemaOf) -> Value {
        of(&mut self.writes).to_value()
    }

    /// Returns the schemas that have a name.
    pub(super) fn into_components(mut self) -> Map<String, Value> {
        let mut components = Map::new();
        let mut add = |name: String, schema: Value| {
            // A generator numbers a name that another type has already.
            assert!(
                !name.ends_with(|last: char| last.is_ascii_digit()),
                "two types are called {name}"
            );
            let known = components.insert(name.clone(), schema.clone());
            assert!(known.is_none_or(|known| known == schema), "two types are called {name}");
        };
        let read = self.reads.take_definitions(true).into_iter().map(|(name, mut schema)| {
            close(&mut schema);
            (name, schema)
        });
        let written = self.writes.take_definitions(true).into_iter().map(|(name, mut schema)| {
            // What is written has its value.
            each(&mut schema, &mut |schema| drop(schema.remove("default")));
            (name, schema)
        });
        for (name, mut schema) in read.chain(written) {
            each(&mut schema, &mut allow_null);
            each(&mut schema, &mut one_line);
            let mut titled = Vec::new();
            each(&mut schema, &mut |schema| titled.extend(hoist(schema)));
            titled.into_iter().for_each(|(name, schema)| add(name, schema));
            add(name, schema);
        }
        components
    }
}

/// Closes the objects of a request: an unknown field is an error. Only defaults that a client could
/// send remain.
fn close(schema: &mut Value) {
    each(schema, &mut |schema| {
        if schema.get("properties").is_some_and(Value::is_object) {
            schema.entry("additionalProperties").or_insert(json!(false));
        }
        if schema
            .get("default")
            .is_some_and(|default| default.is_null() || default.is_array() || default.is_object())
        {
            schema.remove("default");
        }
    });
}

/// Makes one line of a description, which is a comment of several.
fn one_line(schema: &mut Map<String, Value>) {
    if let Some(Value::String(text)) = schema.get_mut("description") {
        *text = text.replace('\n', " ");
    }
}

/// Adds null to the names of a field that may be null.
fn allow_null(schema: &mut Map<String, Value>) {
    let is_nullable = schema
        .get("type")
        .and_then(Value::as_array)
        .is_some_and(|types| types.contains(&json!("null")));
    if let Some(names) =
        schema.get_mut("enum").and_then(Value::as_array_mut).filter(|_| is_nullable)
    {
        names.push(Value::Null);
    }
}

/// Replaces an object that has a title with a reference, and returns it with its title as its name.
fn hoist(schema: &mut Map<String, Value>) -> Option<(String, Value)> {
    if schema.get("type") != Some(&json!("object")) {
        return None;
    }
    let Value::String(name) = schema.get("title")?.clone() else { return None };
    schema.remove("title");
    let reference = Map::from_iter([("$ref".to_owned(), json!(format!("#{SCHEMAS}/{name}")))]);
    Some((name, Value::Object(std::mem::replace(schema, reference))))
}

/// Calls `change` with each schema inside a schema, and then with the schema itself.
fn each(value: &mut Value, change: &mut impl FnMut(&mut Map<String, Value>)) {
    match value {
        Value::Array(all) => all.iter_mut().for_each(|value| each(value, change)),
        Value::Object(map) => {
            map.values_mut().for_each(|value| each(value, change));
            change(map);
        }
        _ => {}
    }
}
