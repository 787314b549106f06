//! An article as a PDF file: one page, one built-in font, computed offsets.

use super::article::Article;

/// Lines per page.
const LINES: usize = 50;
/// Characters per line of 11-point Helvetica on A4.
const COLUMNS: usize = 88;

/// Returns the article as a PDF 1.4 file of one page; text beyond the end of the page is left out.
pub(crate) fn article(article: &Article) -> Vec<u8> {
    let mut text = String::from("BT /F1 11 Tf 50 790 Td 14 TL\n");
    for line in lines(article).into_iter().take(LINES) {
        text.push_str(&format!("({}) Tj T*\n", escape(&line)));
    }
    text.push_str("ET\n");

    let objects = [
        "<< /Type /Catalog /Pages 2 0 R >>".to_owned(),
        "<< /Type /Pages /Kids [3 0 R] /Count 1 >>".to_owned(),
        "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Contents 4 0 R /Resources << /Font << /F1 5 0 R >> >> >>".to_owned(),
        format!("<< /Length {} >>\nstream\n{text}endstream", text.len()),
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>".to_owned(),
    ];
    let mut file = String::from("%PDF-1.4\n");
    let mut table = format!("xref\n0 {}\n0000000000 65535 f \n", objects.len() + 1);
    for (i, object) in objects.iter().enumerate() {
        table.push_str(&format!("{:010} 00000 n \n", file.len()));
        file.push_str(&format!("{} 0 obj\n{object}\nendobj\n", i + 1));
    }
    let table_at = file.len();
    file.push_str(&table);
    file.push_str(&format!(
        "trailer\n<< /Size {} /Root 1 0 R >>\nstartxref\n{table_at}\n%%EOF\n",
        objects.len() + 1
    ));
    file.into_bytes()
}

fn lines(article: &Article) -> Vec<String> {
    let mut lines = wrap(&article.title);
    lines.push(String::new());
    lines.extend(wrap(&article.summary));
    for section in &article.sections {
        lines.push(String::new());
        lines.push(section.heading.to_uppercase());
        for paragraph in &section.paragraphs {
            lines.extend(wrap(paragraph));
        }
    }
    lines
}

/// Wraps words into lines of at most [`COLUMNS`] characters; a longer word gets its own line.
fn wrap(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.len() + 1 + word.len() <= COLUMNS => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// Returns text for a PDF string: printable ASCII with its three special characters escaped;
/// anything else becomes a question mark.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '(' | ')' | '\\' => out.extend(['\\', c]),
            ' '..='~' => out.push(c),
            _ => out.push('?'),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_offset_of_the_table_points_at_its_object() {
        let file =
            String::from_utf8(article(&Article::at("127.0.0.1", "/a(b)\\c.pdf"))).expect("ASCII");
        let table_at: usize = file
            .rsplit("startxref\n")
            .next()
            .and_then(|rest| rest.lines().next())
            .and_then(|n| n.parse().ok())
            .expect("an offset");
        let table = &file[table_at..];
        assert!(table.starts_with("xref\n0 6\n"));
        for (i, entry) in table.lines().skip(3).take(5).enumerate() {
            let at: usize = entry[..10].parse().expect("an offset");
            assert!(file[at..].starts_with(&format!("{} 0 obj\n", i + 1)), "object {}", i + 1);
        }
        assert!(file.contains("a\\(b\\)\\\\c.pdf"));
    }
}
