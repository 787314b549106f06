//! One name for each end of a visit: in the library, the metrics, the HTTP interface, Python and
//! Node.

use std::path::Path;

use fetchwise::visit::VisitOutcome;

fn file(path: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

/// Returns the quoted words behind the first `mark` up to the next `end`.
fn quoted(text: &str, mark: &str, end: &str) -> Vec<String> {
    let behind = &text[text.find(mark).unwrap_or_else(|| panic!("no {mark}")) + mark.len()..];
    let list = &behind[..behind.find(end).unwrap()];
    list.split(['"', '\'', '`']).skip(1).step_by(2).map(str::to_owned).collect()
}

#[test]
fn every_interface_has_the_same_names_of_ends() {
    let names = VisitOutcome::NAMES.map(str::to_owned).to_vec();
    let openapi: serde_json::Value =
        serde_json::from_str(&file("crates/serve/openapi.json")).unwrap();
    assert_eq!(
        openapi["components"]["schemas"]["EndStep"]["properties"]["end"]["enum"],
        serde_json::json!(names)
    );
    let node = file("bindings/node/binding.d.ts");
    assert_eq!(quoted(&node[node.find("  kind: 'delivered'").unwrap()..], "  kind: ", "\n"), names);
    let python = file("bindings/python/src/fetchwise/_fetchwise.pyi");
    assert_eq!(
        quoted(&python[python.find("Literal[\"delivered\"").unwrap()..], "Literal[", "]"),
        names
    );
    let metrics = file("docs/reference/metrics.md");
    let table = &metrics[metrics.find("**`end`** of a visit is one of:").unwrap()..];
    let mut rows: Vec<String> = table
        .lines()
        .skip(4)
        .take_while(|line| line.starts_with('|'))
        .flat_map(|line| quoted(line, "|", "|"))
        .collect();
    assert_eq!(rows.pop().as_deref(), Some("abandoned"));
    assert_eq!(rows, names);
}
