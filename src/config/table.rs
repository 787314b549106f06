//! Router tables from files: CSV with the columns domain and fetcher, or TOML. Every route knows its line.

use std::path::Path;

use csv::StringRecord;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::error::{ConfigError, line_at};
use crate::registry::Class;
use crate::registry::FetcherSpec;
use crate::router::{RouteTable, TableError};

/// The columns of a router table in CSV.
const COLUMNS: [&str; 2] = ["domain", "fetcher"];

/// Reads a router table: TOML (`[routes]` with `domain = "fetcher"`, `[[route]]` with `domain` and `fetcher`, or bare
/// `"domain" = "fetcher"` lines) when the file is called `.toml`, else CSV. The columns of a CSV file are found by its header,
/// in any order; a file without a header has the columns domain and fetcher.
///
/// # Errors
/// [`ConfigError`] names file and line.
pub fn load_route_table(path: &Path) -> Result<RouteTable, ConfigError> {
    let text = std::fs::read_to_string(path).map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
    let is_toml = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("toml"));
    let table = if is_toml {
        let file = DeTable::parse(&text).map_err(|error| ConfigError::syntax(path, &text, &error))?;
        from_toml(&text, file.into_inner())
    } else {
        from_csv(&text)
    };
    table.map_err(|source| ConfigError::Table { path: path.to_owned(), source })
}

fn from_toml(text: &str, file: DeTable<'_>) -> Result<RouteTable, TableError> {
    let mut table = RouteTable::default();
    for (key, value) in file {
        let line = line_at(text, key.span().start);
        match (key.get_ref().as_ref(), value.into_inner()) {
            ("routes", DeValue::Table(routes)) => {
                for (domain, fetcher) in routes {
                    let line = line_at(text, domain.span().start);
                    table.insert_at(line, domain.get_ref(), &name(line, fetcher)?)?;
                }
            }
            ("route", DeValue::Array(routes)) => {
                for route in routes {
                    let line = line_at(text, route.span().start);
                    let (domain, fetcher) = route_of(line, route)?;
                    table.insert_at(line, &domain, &fetcher)?;
                }
            }
            (domain, DeValue::String(fetcher)) => table.insert_at(line, domain, &fetcher)?,
            (key, _) => {
                return Err(wrong(line, format!("{key:?} is neither routes, route, nor a domain with a fetcher")));
            }
        }
    }
    Ok(table)
}

/// The two keys of a `[[route]]`.
fn route_of(line: usize, route: Spanned<DeValue<'_>>) -> Result<(String, String), TableError> {
    let DeValue::Table(keys) = route.into_inner() else {
        return Err(wrong(line, "a route has a domain and a fetcher".to_owned()));
    };
    let (mut domain, mut fetcher) = (None, None);
    for (key, value) in keys {
        match key.get_ref().as_ref() {
            "domain" => domain = Some(name(line, value)?),
            "fetcher" => fetcher = Some(name(line, value)?),
            other => return Err(wrong(line, format!("{other:?} is no key of a route: expected domain and fetcher"))),
        }
    }
    domain.zip(fetcher).ok_or_else(|| wrong(line, "a route needs a domain and a fetcher".to_owned()))
}

fn name(line: usize, value: Spanned<DeValue<'_>>) -> Result<String, TableError> {
    match value.into_inner() {
        DeValue::String(text) => Ok(text.into_owned()),
        other => Err(wrong(line, format!("expected a name, got {}", other.type_str()))),
    }
}

fn from_csv(text: &str) -> Result<RouteTable, TableError> {
    let mut table = RouteTable::default();
    let mut reader = csv::ReaderBuilder::new()
        .has_headers(false)
        .flexible(true)
        .comment(Some(b'#'))
        .trim(csv::Trim::All)
        .from_reader(text.as_bytes());
    // Where domain and fetcher stand.
    let mut places = [0, 1];
    for (number, record) in reader.records().enumerate() {
        let record = record
            .map_err(|error| wrong(error.position().map_or(0, line_of), format!("not a line of CSV: {error}")))?;
        let line = record.position().map_or(0, line_of);
        if number == 0 && !is_route(&record) {
            places = columns(line, &record)?;
            continue;
        }
        if record.len() != COLUMNS.len() {
            let found = record.len();
            return Err(wrong(line, format!("expected two columns, domain and fetcher, and found {found}")));
        }
        let [domain, fetcher] = places.map(|place| record.get(place).unwrap_or_default());
        if domain.is_empty() || fetcher.is_empty() {
            return Err(wrong(line, "domain or fetcher is empty".to_owned()));
        }
        table.insert_at(line, domain, fetcher)?;
    }
    Ok(table)
}

/// Whether the first line of a file is a route already: it begins with the name or the address of a host, or ends in the name of a
/// fetcher that is built in.
fn is_route(first: &StringRecord) -> bool {
    let is_host = first.get(0).is_some_and(|text| text.contains(['.', ':']) || text.eq_ignore_ascii_case("localhost"));
    let is_built_in = first.get(1).is_some_and(|name| FetcherSpec::by_name(name).class != Class::Unknown);
    is_host || is_built_in
}

/// Where domain and fetcher stand, by the header.
fn columns(line: usize, header: &StringRecord) -> Result<[usize; 2], TableError> {
    let place = |name: &str| header.iter().position(|column| column.eq_ignore_ascii_case(name));
    match COLUMNS.map(place) {
        [Some(domain), Some(fetcher)] if header.len() == COLUMNS.len() => Ok([domain, fetcher]),
        _ => {
            let found: Vec<&str> = header.iter().collect();
            Err(wrong(line, format!("the columns are {}; expected domain and fetcher", found.join(", "))))
        }
    }
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
        from_csv(text).unwrap_err().to_string()
    }

    fn toml_table(text: &str) -> Result<RouteTable, TableError> {
        from_toml(text, DeTable::parse(text).unwrap().into_inner())
    }

    #[test]
    fn csv_has_its_columns_in_any_order_or_no_header() {
        for text in [
            "domain,fetcher\nwww.a.org, playwright\n\n# old\n\"b.org\",simple_http\n",
            "Fetcher,Domain\nplaywright,www.a.org\nsimple_http,b.org\n",
            "www.a.org,playwright\nb.org,simple_http\n",
            "intranet,playwright\na.org,playwright\nb.org,simple_http\n",
        ] {
            let table = from_csv(text).unwrap();
            assert_eq!((table.get("a.org"), table.get("b.org")), (Some("playwright"), Some("direct_access")), "{text}");
        }
    }

    #[test]
    fn other_columns_are_an_error_that_names_those_expected() {
        for (text, found) in [
            ("host,tool\na.org,playwright\n", "the columns are host, tool;"),
            ("domain,fetcher,note\na.org,playwright,x\n", "the columns are domain, fetcher, note;"),
            ("domain\na.org\n", "the columns are domain;"),
        ] {
            let error = csv_error(text);
            assert_eq!(error, format!("line 1: {found} expected domain and fetcher"));
        }
        assert!(csv_error("a.org\n").starts_with("line 1: expected two columns, domain and fetcher"));
        assert!(csv_error("domain,fetcher\na.org,x\nb.org,\n").starts_with("line 3: domain or fetcher is empty"));
        assert_eq!(csv_error("a.org,x\nwww.a.org,y\n"), "line 2: a.org is routed to x already, and here to y");
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
        assert!(toml_table("[[route]]\ndomain = 'a.org'").unwrap_err().to_string().contains("needs"));
    }

    #[test]
    fn a_fetcher_that_does_not_exist_is_named_with_line_domain_and_the_nearest_name() {
        let known = ["direct_access", "playwright"];
        let csv = from_csv("domain,fetcher\na.org,playwright\nb.org,playwrite\n").unwrap();
        assert_eq!(
            csv.check(known).unwrap_err().to_string(),
            "line 3: the route of b.org: there is no fetcher \"playwrite\"; did you mean \"playwright\"? \
             it can be direct_access or playwright"
        );
        let toml = toml_table("[routes]\n'a.org' = 'playwright'\n'b.org' = 'curl'").unwrap();
        let error = toml.check(known).unwrap_err().to_string();
        assert!(error.starts_with("line 3: the route of b.org: there is no fetcher \"curl\"; it can"), "{error}");
        assert_eq!(toml.check(["playwright", "curl"]), Ok(()));
    }
}
