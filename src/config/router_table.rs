//! Reading and writing of router tables: CSV with the columns domain and fetcher, or TOML.
//!
//! Every route keeps its line.

use std::collections::BTreeMap;
use std::path::Path;

use csv::StringRecord;
use serde::Serialize;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::error::ConfigError;
use super::origin::TextPositions;
use crate::router::{RouteTable, TableError};
use fetchwise_types::registry::Class;
use fetchwise_types::registry::FetcherSpec;

/// Columns of a router table in CSV, and keys of a `[[route]]`.
const COLUMNS: [&str; 2] = ["domain", "fetcher"];
/// Further columns that fetchwise writes. Ignoring them needs no warning.
const WRITTEN: [&str; 2] = ["confidence", "attempts"];

/// Ignored columns or keys of a router table, as messages with their lines.
pub type TableWarnings = Vec<String>;

/// Reads a router table. A file called `.toml` is TOML: `[routes]` with `domain = "fetcher"`,
/// `[[route]]` with `domain` and `fetcher`, or bare `"domain" = "fetcher"` lines. Any other file is
/// CSV. Its header gives the columns, in any order, and other columns are ignored. A file without a
/// header has the columns domain and fetcher.
///
/// # Errors
/// [`ConfigError`] with file and line.
pub fn load_route_table(path: &Path) -> Result<RouteTable, ConfigError> {
    read_route_table(path).map(|(table, _)| table)
}

/// Does the same as [`load_route_table`], and also returns warnings about what was ignored.
///
/// # Errors
/// [`ConfigError`] with file and line.
pub fn read_route_table(path: &Path) -> Result<(RouteTable, TableWarnings), ConfigError> {
    let text = std::fs::read_to_string(path)
        .map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
    let is_toml = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("toml"));
    let mut warnings = Vec::new();
    let table = if is_toml {
        let file =
            DeTable::parse(&text).map_err(|error| ConfigError::syntax(path, &text, &error))?;
        from_toml(&TextPositions::new(&text), file.into_inner(), &mut warnings)
    } else {
        // Spreadsheets begin a file with a byte order mark.
        from_csv(text.strip_prefix('\u{feff}').unwrap_or(&text), &mut warnings)
    };
    let table = table.map_err(|source| ConfigError::Table { path: path.to_owned(), source })?;
    Ok((table, warnings.into_iter().map(|what| format!("{}, {what}", path.display())).collect()))
}

/// Learned route.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LearnedRoute {
    /// Domain, as the heuristic has it.
    pub domain: String,
    /// Selected fetcher.
    pub fetcher: String,
    /// Confidence of the fetcher, 0 to 1.
    pub confidence: f64,
    /// Attempts of the fetcher at the domain.
    pub attempts: u64,
}

/// Formats learned routes as a router table: CSV or, with `is_toml`, TOML. [`load_route_table`]
/// reads it.
///
/// ```
/// use fetchwise::config::{LearnedRoute, learned_table};
///
/// let (domain, fetcher) = ("example.org".to_owned(), "playwright".to_owned());
/// let routes = [LearnedRoute { domain, fetcher, confidence: 0.934, attempts: 17 }];
/// assert_eq!(learned_table(&routes, false), "domain,fetcher,confidence,attempts\nexample.org,playwright,0.93,17\n");
/// assert!(learned_table(&routes, true).starts_with("[[route]]\ndomain = \"example.org\"\n"));
/// ```
pub fn learned_table(routes: &[LearnedRoute], is_toml: bool) -> String {
    #[derive(Serialize)]
    struct File {
        route: Vec<LearnedRoute>,
    }
    let rounded = routes
        .iter()
        .map(|r| LearnedRoute { confidence: (r.confidence * 100.0).round() / 100.0, ..r.clone() });
    if is_toml {
        // Text and numbers always serialize.
        return toml::to_string(&File { route: rounded.collect() }).unwrap_or_default();
    }
    let mut writer = csv::WriterBuilder::new().has_headers(false).from_writer(Vec::new());
    // Writing to memory does not fail.
    let _ = writer.write_record(COLUMNS.iter().chain(&WRITTEN));
    rounded.for_each(|route| drop(writer.serialize(route)));
    String::from_utf8(writer.into_inner().unwrap_or_default()).unwrap_or_default()
}

fn from_toml(
    positions: &TextPositions<'_>,
    file: DeTable<'_>,
    warnings: &mut TableWarnings,
) -> Result<RouteTable, TableError> {
    let (mut table, mut left_out) = (RouteTable::default(), BTreeMap::new());
    for (key, value) in file {
        let line = positions.line_of(key.span().start);
        match (key.get_ref().as_ref(), value.into_inner()) {
            ("routes", DeValue::Table(routes)) => {
                for (domain, fetcher) in routes {
                    let line = positions.line_of(domain.span().start);
                    table.insert_at(line, domain.get_ref(), &name(line, fetcher)?)?;
                }
            }
            ("route", DeValue::Array(routes)) => {
                for route in routes {
                    let line = positions.line_of(route.span().start);
                    let (domain, fetcher) = route_of(positions, line, route, &mut left_out)?;
                    table.insert_at(line, &domain, &fetcher)?;
                }
            }
            (domain, DeValue::String(fetcher)) => table.insert_at(line, domain, &fetcher)?,
            (key, _) => {
                return Err(wrong(
                    line,
                    format!(
                        "invalid key {key:?}: expected routes, route, or a domain with a fetcher"
                    ),
                ));
            }
        }
    }
    let mut left_out: Vec<(usize, String)> =
        left_out.into_iter().map(|(key, line)| (line, key)).collect();
    left_out.sort_unstable();
    for (line, key) in left_out {
        warnings.push(format!(
            "line {line}: ignored unknown key {key:?} of a route: expected domain and fetcher"
        ));
    }
    Ok(table)
}

/// Returns the two keys of a `[[route]]`. Notes the first line of each ignored key.
fn route_of(
    positions: &TextPositions<'_>,
    line: usize,
    route: Spanned<DeValue<'_>>,
    left_out: &mut BTreeMap<String, usize>,
) -> Result<(String, String), TableError> {
    let DeValue::Table(keys) = route.into_inner() else {
        return Err(wrong(line, "invalid route: expected domain and fetcher".to_owned()));
    };
    let (mut domain, mut fetcher) = (None, None);
    for (key, value) in keys {
        let line = positions.line_of(key.span().start);
        match key.get_ref().as_ref() {
            "domain" => domain = Some(name(line, value)?),
            "fetcher" => fetcher = Some(name(line, value)?),
            other if WRITTEN.contains(&other) || left_out.contains_key(other) => {}
            other => drop(left_out.insert(other.to_owned(), line)),
        }
    }
    domain
        .zip(fetcher)
        .ok_or_else(|| wrong(line, "incomplete route: missing domain or fetcher".to_owned()))
}

fn name(line: usize, value: Spanned<DeValue<'_>>) -> Result<String, TableError> {
    match value.into_inner() {
        DeValue::String(text) => Ok(text.into_owned()),
        other => Err(wrong(line, format!("expected a name, got {}", other.type_str()))),
    }
}

fn from_csv(text: &str, warnings: &mut TableWarnings) -> Result<RouteTable, TableError> {
    let mut table = RouteTable::default();
    let mut reader = csv::ReaderBuilder::new()
        .has_headers(false)
        .flexible(true)
        .comment(Some(b'#'))
        .trim(csv::Trim::All)
        .from_reader(text.as_bytes());
    // Columns of domain and fetcher, and the number of columns.
    let (mut places, mut width) = ([0, 1], COLUMNS.len());
    for (number, record) in reader.records().enumerate() {
        let record = record.map_err(|error| {
            wrong(error.position().map_or(0, line_of), format!("invalid CSV: {error}"))
        })?;
        let line = record.position().map_or(0, line_of);
        if number == 0 && (is_header(&record) || !is_route(&record)) {
            places = columns(line, &record, warnings)?;
            width = record.len();
            continue;
        }
        if record.len() != width {
            let found = record.len();
            let expected = match width {
                2 => "2 columns, domain and fetcher".to_owned(),
                width => format!("{width} columns, as in the header"),
            };
            return Err(wrong(line, format!("invalid row: expected {expected}, got {found}")));
        }
        let [domain, fetcher] = places.map(|place| record.get(place).unwrap_or_default());
        if domain.is_empty() || fetcher.is_empty() {
            return Err(wrong(line, "missing domain or fetcher".to_owned()));
        }
        table.insert_at(line, domain, fetcher)?;
    }
    Ok(table)
}

/// Returns whether the first line names both columns.
fn is_header(first: &StringRecord) -> bool {
    COLUMNS.iter().all(|name| first.iter().any(|column| column.eq_ignore_ascii_case(name)))
}

/// Returns whether the first line of a file is already a route. Then it begins with the name or the
/// address of a host, or its second column is a built-in fetcher.
fn is_route(first: &StringRecord) -> bool {
    let is_host = first
        .get(0)
        .is_some_and(|text| text.contains(['.', ':']) || text.eq_ignore_ascii_case("localhost"));
    let is_built_in =
        first.get(1).is_some_and(|name| FetcherSpec::by_name(name).class != Class::Unknown);
    is_host || is_built_in
}

/// Returns the columns of domain and fetcher in the header.
fn columns(
    line: usize,
    header: &StringRecord,
    warnings: &mut TableWarnings,
) -> Result<[usize; 2], TableError> {
    let is = |column: &str, name: &str| column.eq_ignore_ascii_case(name);
    let place = |name: &str| header.iter().position(|column| is(column, name));
    let found = || header.iter().collect::<Vec<_>>().join(", ");
    let [Some(domain), Some(fetcher)] = COLUMNS.map(place) else {
        return Err(wrong(
            line,
            format!("invalid columns {}: expected domain and fetcher", found()),
        ));
    };
    if let Some(name) =
        COLUMNS.iter().find(|name| header.iter().filter(|column| is(column, name)).count() > 1)
    {
        return Err(wrong(line, format!("invalid columns {}: duplicate {name}", found())));
    }
    let read = |column: &&str| COLUMNS.iter().chain(&WRITTEN).any(|name| is(column, name));
    let left_out: Vec<String> =
        header.iter().filter(|column| !read(column)).map(|column| format!("{column:?}")).collect();
    match &*left_out {
        [] => {}
        [one] => {
            warnings.push(format!("line {line}: ignored column {one}: expected domain and fetcher"))
        }
        more => warnings.push(format!(
            "line {line}: ignored columns {}: expected domain and fetcher",
            more.join(", ")
        )),
    }
    Ok([domain, fetcher])
}

fn line_of(position: &csv::Position) -> usize {
    usize::try_from(position.line()).unwrap_or(usize::MAX)
}

fn wrong(line: usize, reason: String) -> TableError {
    TableError::Line { line, reason }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn csv_error(text: &str) -> String {
        csv_table(text).unwrap_err().to_string()
    }

    fn csv_table(text: &str) -> Result<RouteTable, TableError> {
        from_csv(text, &mut Vec::new())
    }

    fn toml_table(text: &str) -> Result<RouteTable, TableError> {
        from_toml(
            &TextPositions::new(text),
            DeTable::parse(text).unwrap().into_inner(),
            &mut Vec::new(),
        )
    }

    #[test]
    fn csv_has_its_columns_in_any_order_or_no_header() {
        for text in [
            "domain,fetcher\nwww.a.org, playwright\n\n# old\n\"b.org\",simple_http\n",
            "Fetcher,Domain\nplaywright,www.a.org\nsimple_http,b.org\n",
            "www.a.org,playwright\nb.org,simple_http\n",
            "intranet,playwright\na.org,playwright\nb.org,simple_http\n",
        ] {
            let table = csv_table(text).unwrap();
            assert_eq!(
                (table.get("a.org"), table.get("b.org")),
                (Some("playwright"), Some("direct_access")),
                "{text}"
            );
        }
    }

    #[test]
    fn missing_columns_are_an_error_that_names_those_expected() {
        for (text, found) in [
            ("host,tool\na.org,playwright\n", "invalid columns host, tool"),
            ("domain\na.org\n", "invalid columns domain"),
        ] {
            let error = csv_error(text);
            assert_eq!(error, format!("line 1: {found}: expected domain and fetcher"));
        }
        assert!(
            csv_error("a.org\n")
                .starts_with("line 1: invalid row: expected 2 columns, domain and fetcher")
        );
        assert!(
            csv_error("domain,fetcher\na.org,x\nb.org,\n")
                .starts_with("line 3: missing domain or fetcher")
        );
        assert_eq!(
            csv_error("a.org,x\nwww.a.org,y\n"),
            "line 2: duplicate route of a.org: x before, y here"
        );
    }

    #[test]
    fn further_columns_are_ignored_with_a_warning() {
        let text =
            "note,fetcher,confidence,domain,attempts,owner\nold,playwright,0.9,a.org,17,me\n";
        let mut warnings = Vec::new();
        let table = from_csv(text, &mut warnings).unwrap();
        assert_eq!((table.get("a.org"), table.len()), (Some("playwright"), 1));
        assert_eq!(
            warnings,
            ["line 1: ignored columns \"note\", \"owner\": expected domain and fetcher"]
        );
        let short = "domain,fetcher,note\na.org,playwright,x\nb.org,playwright\n";
        assert_eq!(
            csv_error(short),
            "line 3: invalid row: expected 3 columns, as in the header, got 2"
        );
        assert!(csv_error("domain,fetcher,domain\n").ends_with("duplicate domain"));
        let toml = "[[route]]\ndomain = 'a.org'\nfetcher = 'playwright'\nconfidence = 0.9\nowner = 'me'\n\
                    [[route]]\ndomain = 'b.org'\nowner = 'me'\nfetcher = 'playwright'";
        let mut warnings = Vec::new();
        let table = from_toml(
            &TextPositions::new(toml),
            DeTable::parse(toml).unwrap().into_inner(),
            &mut warnings,
        )
        .unwrap();
        assert_eq!(table.len(), 2);
        assert_eq!(
            warnings,
            ["line 5: ignored unknown key \"owner\" of a route: expected domain and fetcher"]
        );
    }

    #[test]
    fn written_tables_read_back_whatever_fetchers_are_called() {
        let route = |domain: &str, fetcher: &str| LearnedRoute {
            domain: domain.to_owned(),
            fetcher: fetcher.to_owned(),
            confidence: 1.0 / 3.0,
            attempts: 7,
        };
        let routes = [
            route("a.org", "my, \"own\" #1 = x"),
            route("127.0.0.1", "playwright"),
            route("[::1]", "f\u{7f}"),
        ];
        let dir = tempfile::tempdir().unwrap();
        for (name, is_toml) in [("t.csv", false), ("t.toml", true)] {
            let path = dir.path().join(name);
            std::fs::write(&path, learned_table(&routes, is_toml)).unwrap();
            let (table, warnings) = read_route_table(&path).unwrap();
            assert!(warnings.is_empty(), "{warnings:?}");
            assert_eq!(table.len(), routes.len());
            for route in &routes {
                assert_eq!(table.get(&route.domain), Some(&*route.fetcher), "{name}");
            }
        }
    }

    #[test]
    fn each_form_of_toml_is_read() {
        for text in [
            "[routes]\n'a.org' = 'playwright'",
            "[[route]]\ndomain = 'a.org'\nfetcher = 'playwright'",
            "'a.org' = 'playwright'",
        ] {
            assert_eq!(toml_table(text).unwrap().get("a.org"), Some("playwright"), "{text}");
        }
        let error = toml_table("[routes]\n'a.org' = 7").unwrap_err().to_string();
        assert_eq!(error, "line 2: expected a name, got integer");
        assert!(
            toml_table("[[route]]\ndomain = 'a.org'")
                .unwrap_err()
                .to_string()
                .contains("missing domain or fetcher")
        );
    }

    #[test]
    fn an_unknown_fetcher_is_named_with_line_domain_and_the_nearest_name() {
        let known = ["direct_access", "playwright"];
        let csv = csv_table("domain,fetcher\na.org,playwright\nb.org,playwrite\n").unwrap();
        assert_eq!(
            csv.check(known).unwrap_err().to_string(),
            "line 3: the route of b.org: unknown fetcher \"playwrite\"; did you mean \"playwright\"? \
             expected direct_access or playwright"
        );
        let toml = toml_table("[routes]\n'a.org' = 'playwright'\n'b.org' = 'curl'").unwrap();
        let error = toml.check(known).unwrap_err().to_string();
        assert!(
            error.starts_with("line 3: the route of b.org: unknown fetcher \"curl\"; expected"),
            "{error}"
        );
        assert_eq!(toml.check(["playwright", "curl"]), Ok(()));
    }
}
