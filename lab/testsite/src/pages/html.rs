//! HTML: an article as a server renders it, challenges, waiting rooms and error pages.

use super::article::Article;
use super::escape_html;

/// The protection that a challenge page imitates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Challenge {
    /// A Cloudflare-like challenge, with its headers.
    Cloudflare,
    /// A DataDome-like captcha, with its headers.
    DataDome,
    /// A protection that no rule names: only its title, its sentence and its little text give it
    /// away.
    Unlisted,
}

/// Returns an article as a page that needs no script.
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
        page.push_str(&format!(
            "<li><a href=\"{}\">{}</a></li>\n",
            escape_html(href),
            escape_html(text)
        ));
    }
    page.push_str("</ul>\n</nav>\n</main>\n<footer>Written for a demonstration; no such place exists.</footer>\n</body>\n</html>\n");
    page
}

/// Returns a page with the article's title and one sentence only.
pub(crate) fn short(article: &Article) -> String {
    let (title, summary) = (escape_html(&article.title), escape_html(&article.summary));
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head><meta charset=\"utf-8\"><title>{title}</title></head>\n<body>\n\
         <h1>{title}</h1>\n<p>{summary}</p>\n</body>\n</html>\n"
    )
}

/// Returns a page that redirects by a `meta` element.
pub(crate) fn refresh(to: &str) -> String {
    let to = escape_html(to);
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head><meta charset=\"utf-8\"><title>Moved</title>\n\
         <meta http-equiv=\"refresh\" content=\"0; url={to}\"></head>\n<body><a href=\"{to}\">Moved</a></body>\n</html>\n"
    )
}

/// Returns the challenge page. `ray` is the identifier that such pages print: hexadecimal digits.
pub(crate) fn challenge(challenge: Challenge, ray: &str) -> String {
    let template = match challenge {
        Challenge::Cloudflare => include_str!("html/challenge-cloudflare.html"),
        Challenge::DataDome => include_str!("html/challenge-datadome.html"),
        Challenge::Unlisted => include_str!("html/challenge-unlisted.html"),
    };
    template.replace("{{ray}}", ray)
}

/// Returns a waiting room.
pub(crate) fn waiting_room() -> String {
    include_str!("html/waiting-room.html").to_owned()
}

/// Returns a page with a password form that leads to `next`.
pub(crate) fn login(next: &str) -> String {
    include_str!("html/login.html").replace("{{next}}", &escape_html(next))
}

/// Returns the short page that a server sends with an error status.
pub(crate) fn status_page(status: u16, reason: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head><meta charset=\"utf-8\"><title>{status} {reason}</title></head>\n\
         <body>\n<h1>{status} {reason}</h1>\n<p>The request could not be answered.</p>\n</body>\n</html>\n"
    )
}
