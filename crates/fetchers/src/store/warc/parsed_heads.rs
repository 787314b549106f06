//! The heads of a record that is read from an archive.
//!
//! Must not know: files.

/// The heads of a record: its own, and that of the response in it.
pub(super) struct ParsedHeads<'h> {
    warc: Vec<(&'h str, &'h str)>,
    status: Option<&'h str>,
    http: Vec<(&'h str, &'h str)>,
}

impl<'h> ParsedHeads<'h> {
    /// Parses the beginning of a record.
    pub(super) fn of(bytes: &'h [u8]) -> Self {
        // A head that is truncated or not text is parsed as far as possible.
        let text = bytes.utf8_chunks().next().map_or("", |chunk| chunk.valid());
        let (warc, http) = text.split_once("\r\n\r\n").unwrap_or((text, ""));
        let http = http.split_once("\r\n\r\n").map_or(http, |(head, _)| head);
        let fields = |head: &'h str| -> Vec<(&'h str, &'h str)> {
            head.split("\r\n")
                .skip(1)
                .filter_map(|line| line.split_once(':'))
                .map(|(n, v)| (n, v.trim()))
                .collect()
        };
        let status = http.split("\r\n").next().and_then(|line| line.split(' ').nth(1));
        Self { warc: fields(warc), status, http: fields(http) }
    }

    /// Returns a field of the record's own head.
    pub(super) fn warc(&self, name: &str) -> Option<&'h str> {
        field(&self.warc, name)
    }

    /// Returns the status of the response.
    pub(super) fn status(&self) -> Option<&'h str> {
        self.status.filter(|status| status.len() == 3 && status.bytes().all(|b| b.is_ascii_digit()))
    }

    /// Returns the type of the response, `unk` if it names none.
    pub(super) fn mime(&self) -> String {
        let mime = field(&self.http, "content-type")
            .unwrap_or_default()
            .split(';')
            .next()
            .unwrap_or_default()
            .trim();
        if mime.is_empty() { "unk".to_owned() } else { mime.to_ascii_lowercase() }
    }
}

fn field<'h>(fields: &[(&str, &'h str)], name: &str) -> Option<&'h str> {
    fields.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, value)| *value)
}
