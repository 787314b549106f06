//! Articles: a different text for each path of a site, always the same for the same path.
//!
//! Invariants: an article has at least 1000 characters of text, several sections, and links to
//! other paths of the same site. No two paths share a title.
//!
//! Must not know: the format on the wire (HTML, JSON, PDF).

use xxhash_rust::xxh3::xxh3_64;

/// A page of prose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Article {
    /// Title, which names the path.
    pub(crate) title: String,
    /// One sentence on the subject of the article.
    pub(crate) summary: String,
    /// Sections, in order.
    pub(crate) sections: Vec<Section>,
    /// Links to other pages of the site: (path, text).
    pub(crate) links: Vec<(String, String)>,
}

/// A heading and the paragraphs below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Section {
    /// Heading.
    pub(crate) heading: String,
    /// Paragraphs, in order.
    pub(crate) paragraphs: Vec<String>,
}

impl Article {
    /// Returns the article at `path` (with its query) of the site called `host`.
    pub(crate) fn at(host: &str, path: &str) -> Self {
        let mut rng = SplitMix64::new(&format!("{host}\n{path}"));
        let subject = rng.pick(SUBJECTS);
        let place = rng.pick(PLACES);
        let title = format!("The {subject} of {place}: {}", readable(path));
        let summary = format!(
            "What the records of {place} say about its {subject}, and what {} found.",
            rng.pick(PEOPLE)
        );
        let first = rng.below(HEADINGS.len());
        let sections = (0..3 + rng.below(3))
            .map(|i| Section {
                heading: HEADINGS[(first + i) % HEADINGS.len()].to_owned(),
                paragraphs: (0..2 + rng.below(2))
                    .map(|_| paragraph(&mut rng, subject, place))
                    .collect(),
            })
            .collect();
        Self { title, summary, sections, links: links(&mut rng) }
    }

    /// Replaces the links by links to these paths.
    pub(crate) fn leading_to(self, paths: &[String]) -> Self {
        let links =
            paths.iter().map(|path| (path.clone(), format!("On {}", readable(path)))).collect();
        Self { links, ..self }
    }

    /// Returns the article as the JSON that the client-rendered site requests.
    pub(crate) fn to_json(&self) -> serde_json::Value {
        serde_json::json!({
            "title": self.title,
            "summary": self.summary,
            "sections": self.sections.iter()
                .map(|s| serde_json::json!({"heading": s.heading, "paragraphs": s.paragraphs}))
                .collect::<Vec<_>>(),
            "links": self.links.iter()
                .map(|(href, text)| serde_json::json!({"href": href, "text": text}))
                .collect::<Vec<_>>(),
        })
    }
}

/// Returns a path as a reader would say it: `/notes/old-mill.html?v=2` becomes "notes, old
/// mill.html?v=2".
fn readable(path: &str) -> String {
    let words = path.trim_matches('/').replace('/', ", ").replace(['-', '_', '+'], " ");
    if words.is_empty() { "front page".to_owned() } else { words }
}

fn paragraph(rng: &mut SplitMix64, subject: &str, place: &str) -> String {
    let sentences: Vec<String> =
        (0..3 + rng.below(3)).map(|_| sentence(rng, subject, place)).collect();
    sentences.join(" ")
}

fn sentence(rng: &mut SplitMix64, subject: &str, place: &str) -> String {
    let who = rng.pick(PEOPLE);
    let year = 1780 + rng.below(220);
    let count = 3 + rng.below(90);
    let quality = rng.pick(QUALITIES);
    let thing = rng.pick(THINGS);
    match rng.below(8) {
        0 => format!(
            "In {year}, {who} counted {count} {thing} along the {subject} and called them {quality}."
        ),
        1 => format!(
            "The {thing} were {quality} that year, and {place} spoke of little else until the autumn."
        ),
        2 => format!(
            "Of the {count} {thing} listed in {year}, fewer than half can still be seen from the {subject}."
        ),
        3 => format!(
            "It was {who} who first drew a map of the {subject}, with every one of its {count} {thing}."
        ),
        4 => format!(
            "A letter of {year} describes the {subject} as {quality}, though its author had never left {place}."
        ),
        5 => {
            format!(
                "Repairs took {count} weeks; the {thing} came by boat, since no road led to {place} before {year}."
            )
        }
        6 => format!(
            "Nobody agrees on who paid for the {thing}, but {who} kept a {quality} account of each of them."
        ),
        _ => format!(
            "Visitors to {place} still ask for the {thing}, and {who} still shows them the {quality} ones first."
        ),
    }
}

fn links(rng: &mut SplitMix64) -> Vec<(String, String)> {
    (0..5)
        .map(|_| {
            let (section, subject, number) =
                (rng.pick(SHELVES), rng.pick(SUBJECTS), 1 + rng.below(400));
            (format!("/{section}/{subject}-{number}"), format!("On the {subject}, part {number}"))
        })
        .collect()
}

/// A repeatable random number generator (splitmix64), seeded by a text.
struct SplitMix64(u64);

impl SplitMix64 {
    fn new(seed: &str) -> Self {
        Self(xxh3_64(seed.as_bytes()))
    }

    /// Returns a number below `end`; 0 when `end` is 0.
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^= z >> 31;
        usize::try_from(z % (end.max(1) as u64)).unwrap_or(0)
    }

    fn pick(&mut self, list: &[&'static str]) -> &'static str {
        let i = self.below(list.len());
        list.get(i).copied().unwrap_or("harbour")
    }
}

const SUBJECTS: &[&str] = &[
    "lighthouse",
    "harbour",
    "market",
    "orchard",
    "windmill",
    "ferry",
    "library",
    "observatory",
    "ropewalk",
    "aqueduct",
    "shipyard",
    "granary",
    "tannery",
    "causeway",
    "bell-tower",
    "salt-works",
];
const PLACES: &[&str] = &[
    "Aldermouth",
    "Brinehaven",
    "Corrick",
    "Dunsley",
    "Eastwater",
    "Fennwick",
    "Gullsport",
    "Hartlow",
    "Ilvermere",
    "Kestrel Point",
    "Larkham",
    "Mossgate",
];
const PEOPLE: &[&str] = &[
    "the harbour master",
    "a travelling surveyor",
    "the widow Penrose",
    "a clerk named Ostrander",
    "the youngest of the pilots",
    "the parish schoolteacher",
    "a botanist from the coast",
    "the keeper of the tide tables",
];
const QUALITIES: &[&str] = &[
    "sturdy",
    "unusual",
    "well made",
    "badly weathered",
    "surprisingly light",
    "older than the church",
    "painted twice over",
    "careful",
    "half forgotten",
    "plain",
];
const THINGS: &[&str] = &[
    "lanterns",
    "pear trees",
    "stone steps",
    "copper nails",
    "oak beams",
    "tide marks",
    "barrels",
    "slate roofs",
    "brass bells",
    "mooring posts",
    "millstones",
    "seed drawers",
];
const SHELVES: &[&str] = &["notes", "records", "walks", "letters", "people", "trades"];
const HEADINGS: &[&str] = &[
    "How it began",
    "What was built",
    "The long winter",
    "Who worked there",
    "Tools and materials",
    "What the letters say",
    "Measurements",
    "What remains",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn text(article: &Article) -> String {
        article.sections.iter().flat_map(|s| s.paragraphs.clone()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn every_path_has_its_own_article_that_never_changes() {
        let mut titles = std::collections::HashSet::new();
        let mut texts = std::collections::HashSet::new();
        for n in 0..2000 {
            let path = format!("/notes/page-{n}");
            let article = Article::at("127.0.0.1", &path);
            assert_eq!(article, Article::at("127.0.0.1", &path));
            assert!(text(&article).len() >= 1000, "{path}: {} characters", text(&article).len());
            assert!(article.sections.len() >= 3 && article.links.len() == 5);
            assert!(
                titles.insert(article.title.clone()),
                "{path} repeats the title {:?}",
                article.title
            );
            assert!(texts.insert(text(&article)), "{path} repeats a text");
        }
    }

    #[test]
    fn two_sites_differ_at_the_same_path() {
        assert_ne!(text(&Article::at("127.0.0.1", "/")), text(&Article::at("127.0.0.2", "/")));
    }
}
