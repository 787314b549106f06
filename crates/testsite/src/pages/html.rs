//! HTML: an article as a server renders it, and the walls, rooms and error pages that stand in its place.

use super::article::Article;
use super::escape_html;

/// Which protection a challenge page belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Wall {
    /// A challenge in the manner of Cloudflare, with its headers.
    Cloudflare,
    /// A captcha in the manner of DataDome, with its headers.
    DataDome,
    /// A protection that no rule names: only its title, its sentence and its thinness tell.
    Unlisted,
}

/// An article as a page that needs no script.
pub(crate) fn article(article: &Article) -> String {
    let title = escape_html(&article.title);
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<title>{title}</title>\n\
         <meta name=\"description\" content=\"{summary}\">\n<link rel=\"icon\" href=\"data:,\">\n\
         <style>body {{ margin: 2rem auto; max-width: 44rem; font: 1rem/1.6 Georgia, serif }}</style>\n</head>\n<body>\n\
         <header><a href=\"/\">Harbour Almanac</a></header>\n<main>\n<article>\n<h1>{title}</h1>\n<p>{summary}</p>\n",
        summary = escape_html(&article.summary),
    );
    for section in &article.sections {
        page.push_str(&format!("<section>\n<h2>{}</h2>\n", escape_html(&section.heading)));
        for paragraph in &section.paragraphs {
            page.push_str(&format!("<p>{}</p>\n", escape_html(paragraph)));
        }
        page.push_str("</section>\n");
    }
    page.push_str("</article>\n<nav><h2>Read on</h2>\n<ul>\n");
    for (href, text) in &article.links {
        page.push_str(&format!("<li><a href=\"{}\">{}</a></li>\n", escape_html(href), escape_html(text)));
    }
    page.push_str("</ul>\n</nav>\n</main>\n<footer>Written for a demonstration; no such place exists.</footer>\n</body>\n</html>\n");
    page
}

/// The article's title and one sentence, and nothing else.
pub(crate) fn short(article: &Article) -> String {
    let (title, summary) = (escape_html(&article.title), escape_html(&article.summary));
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head><meta charset=\"utf-8\"><title>{title}</title></head>\n<body>\n\
         <h1>{title}</h1>\n<p>{summary}</p>\n</body>\n</html>\n"
    )
}

/// A page that sends its reader on.
pub(crate) fn refresh(to: &str) -> String {
    let to = escape_html(to);
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head><meta charset=\"utf-8\"><title>Moved</title>\n\
         <meta http-equiv=\"refresh\" content=\"0; url={to}\"></head>\n<body><a href=\"{to}\">Moved</a></body>\n</html>\n"
    )
}

/// The challenge page of `wall`. `ray` is the identifier that such pages print: hexadecimal digits.
pub(crate) fn challenge(wall: Wall, ray: &str) -> String {
    let template = match wall {
        Wall::Cloudflare => include_str!("html/challenge-cloudflare.html"),
        Wall::DataDome => include_str!("html/challenge-datadome.html"),
        Wall::Unlisted => include_str!("html/challenge-unlisted.html"),
    };
    template.replace("{{ray}}", ray)
}

/// A waiting room.
pub(crate) fn waiting_room() -> String {
    include_str!("html/waiting-room.html").to_owned()
}

/// A page that asks for a password before it shows `next`.
pub(crate) fn login(next: &str) -> String {
    include_str!("html/login.html").replace("{{next}}", &escape_html(next))
}

/// The short page that a server sends with an error status.
pub(crate) fn status_page(status: u16, reason: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head><meta charset=\"utf-8\"><title>{status} {reason}</title></head>\n\
         <body>\n<h1>{status} {reason}</h1>\n<p>The request could not be answered.</p>\n</body>\n</html>\n"
    )
}
