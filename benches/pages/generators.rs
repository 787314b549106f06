//! Pages like those of common web software: a blog, a shop, the front page of a newspaper, an
//! article of a wiki, an application rendered by its server with its data, a thread of a forum.
//!
//! They are made from fixed numbers, so that each run of a bench reads the same bytes. Markup,
//! class names, scripts and styles are typical of such pages; text and names are made up. Must not
//! know: what is measured with them.

use std::fmt::Write;

/// A generator of one page of a site, from the page's number and its approximate size in bytes.
pub(crate) type Generator = fn(usize, usize) -> String;

/// Each generator by name.
pub(crate) const GENERATORS: [(&str, Generator); 6] = [
    ("blog", blog),
    ("shop", shop),
    ("news", news),
    ("wiki", wiki),
    ("server-rendered application", application),
    ("forum", forum),
];

/// Numbers that look random and are the same each time.
struct Numbers(u64);

impl Numbers {
    fn new(page: usize, site: u64) -> Self {
        Self(
            (page as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15)
                ^ site.wrapping_mul(0xD1B5_4A32_D192_ED03),
        )
    }

    fn below(&mut self, most: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % most.max(1)
    }

    fn hex(&mut self, digits: usize) -> String {
        (0..digits).map(|_| char::from(b"0123456789abcdef"[self.below(16)])).collect()
    }

    /// Returns a sentence of this number of words.
    fn sentence(&mut self, words: usize) -> String {
        let mut out = String::new();
        for n in 0..words {
            let word = WORDS[self.below(WORDS.len())];
            match n {
                0 => {
                    let (first, rest) =
                        word.split_at(word.char_indices().nth(1).map_or(word.len(), |(at, _)| at));
                    out.extend(first.chars().flat_map(char::to_uppercase));
                    out.push_str(rest);
                }
                _ => {
                    out.push_str(if self.below(12) == 0 { ", " } else { " " });
                    out.push_str(word);
                }
            }
        }
        out.push(if self.below(15) == 0 { '?' } else { '.' });
        out
    }

    fn paragraph(&mut self, sentences: usize) -> String {
        (0..sentences).fold(String::new(), |mut out, n| {
            out.push_str(if n > 0 { " " } else { "" });
            let words = 6 + self.below(18);
            out += &self.sentence(words);
            out
        })
    }

    /// Returns a few words without a full stop.
    fn heading(&mut self, words: usize) -> String {
        self.sentence(words).trim_end_matches(['.', '?']).to_owned()
    }

    /// Returns words as a part of a URL.
    fn slug(&mut self, words: usize) -> String {
        self.heading(words).to_lowercase().replace(", ", "-").replace(' ', "-")
    }

    fn name(&mut self) -> &'static str {
        NAMES[self.below(NAMES.len())]
    }
}

const WORDS: [&str; 112] = [
    "the", "a", "of", "and", "in", "to", "for", "with", "on", "by", "from", "at", "as", "is",
    "was", "were", "has", "had", "not", "but", "their", "this", "which", "who", "when", "after",
    "before", "between", "under", "over", "about", "more", "most", "some", "many", "new", "old",
    "first", "last", "long", "small", "large", "early", "late", "public", "local", "city",
    "council", "river", "garden", "house", "street", "market", "school", "family", "people",
    "children", "country", "village", "water", "winter", "summer", "morning", "evening", "year",
    "week", "month", "century", "price", "company", "team", "season", "match", "music", "museum",
    "library", "kitchen", "bread", "coffee", "paper", "window", "engine", "bridge", "railway",
    "station", "journey", "weather", "report", "question", "answer", "meeting", "plan", "project",
    "result", "number", "cost", "growth", "service", "support", "update", "version", "release",
    "language", "science", "research", "history", "café", "naïve", "façade", "doctor", "program",
    "minister",
];

const NAMES: [&str; 16] = [
    "Anna Berg",
    "Tom Field",
    "María Solís",
    "Jonas Weiß",
    "Li Wen",
    "Aisha Khan",
    "Peter Novák",
    "Julie Martin",
    "Sam Okoro",
    "Kaito Mori",
    "Elena Rossi",
    "Ivan Petrov",
    "Noor Haddad",
    "Ruth Cohen",
    "Olga Lind",
    "Ben Carter",
];

const ICON: &str = "<svg aria-hidden=\"true\" focusable=\"false\" width=\"24\" height=\"24\" viewBox=\"0 0 24 24\"><path d=\"M12 2C6.48 2 2 \
    6.48 2 12s4.48 10 10 10 10-4.48 10-10S17.52 2 12 2zm1 15h-2v-6h2v6zm0-8h-2V7h2v2z\" fill=\"currentColor\"/></svg>";

/// Returns a post of a blog with its sidebar and comments, as WordPress and its themes write them.
fn blog(page: usize, bytes: usize) -> String {
    let n = &mut Numbers::new(page, 1);
    let (title, author) = (n.heading(7), n.name());
    let post = 1000 + page;
    let mut out = format!(
        "<!DOCTYPE html>\n<html lang=\"en-US\">\n<head>\n<meta charset=\"UTF-8\" />\n<meta name=\"viewport\" content=\"width=device-width, \
         initial-scale=1\" />\n<title>{title} &#8211; Garden Notes</title>\n<meta name='robots' content='max-image-preview:large' />\n\
         <link rel=\"alternate\" type=\"application/rss+xml\" title=\"Garden Notes &raquo; Feed\" href=\"https://blog.example/feed/\" />\n\
         <meta property=\"og:title\" content=\"{title}\" />\n<meta property=\"og:type\" content=\"article\" />\n<script>\nwindow._wpemojiSettings \
         = {{\"baseUrl\":\"https:\\/\\/blog.example\\/images\\/emoji\\/72x72\\/\",\"ext\":\".png\",\"source\":{{\"concatemoji\":\
         \"https:\\/\\/blog.example\\/wp-includes\\/js\\/wp-emoji-release.min.js?ver=6.5.2\"}}}};\n</script>\n<style id='wp-block-library-inline-css'>\n"
    );
    for block in ["button", "columns", "gallery", "image", "quote", "table", "cover", "navigation"]
    {
        writeln!(out, ".wp-block-{block}{{margin:0 0 1em;padding:calc(.667em + 2px) calc(1.333em + 2px);box-sizing:border-box}}.wp-block-{block}.is-style-wide>*{{max-width:var(--wp--style--global--wide-size)}}").unwrap();
    }
    out += "</style>\n";
    for sheet in 0..6 {
        writeln!(out, "<link rel='stylesheet' id='theme-{sheet}-css' href='https://blog.example/wp-content/themes/leaf/assets/css/part-{sheet}.min.css?ver=3.1.{sheet}' media='all' />").unwrap();
    }
    write!(
        out,
        "<script src=\"https://blog.example/wp-includes/js/jquery/jquery.min.js?ver=3.7.1\" id=\"jquery-core-js\"></script>\n</head>\n<body \
         class=\"post-template-default single single-post postid-{post} single-format-standard wp-embed-responsive\">\n<a class=\"skip-link \
         screen-reader-text\" href=\"#content\">Skip to content</a>\n<header id=\"masthead\" class=\"site-header\"><p class=\"site-title\"><a \
         href=\"https://blog.example/\" rel=\"home\">Garden Notes</a></p><nav id=\"site-navigation\" class=\"main-navigation\"><ul id=\"primary-menu\" \
         class=\"menu\">"
    )
    .unwrap();
    for item in 0..9 {
        write!(out, "<li id=\"menu-item-{item}\" class=\"menu-item menu-item-type-taxonomy menu-item-object-category menu-item-{item}\"><a href=\"https://blog.example/category/{}/\">{}</a></li>", n.slug(2), n.heading(2)).unwrap();
    }
    write!(out, "</ul></nav></header>\n<main id=\"content\" class=\"site-main\"><article id=\"post-{post}\" class=\"post-{post} post type-post status-publish format-standard has-post-thumbnail hentry category-plants\">\n<header class=\"entry-header\"><h1 class=\"entry-title\">{title}</h1><div class=\"entry-meta\"><span class=\"posted-on\"><time class=\"entry-date published\" datetime=\"2024-05-{:02}T08:00:00+00:00\">May {}, 2024</time></span> by <span class=\"author vcard\"><a class=\"url fn n\" href=\"https://blog.example/author/a/\">{author}</a></span></div></header>\n<div class=\"entry-content\">\n", 1 + page % 28, 1 + page % 28).unwrap();
    while out.len() < bytes * 2 / 3 {
        let text = n.paragraph(5);
        write!(
            out,
            "<p>{text} <a href=\"https://blog.example/{}/\">{}</a>&#8217;s notes.</p>\n\n",
            n.slug(4),
            n.heading(3)
        )
        .unwrap();
        match n.below(4) {
            0 => write!(out, "<h2 class=\"wp-block-heading\" id=\"h-{}\">{}</h2>\n\n", n.slug(3), n.heading(5)).unwrap(),
            1 => write!(out, "<figure class=\"wp-block-image size-large\"><img loading=\"lazy\" decoding=\"async\" width=\"1024\" height=\"683\" src=\"https://blog.example/wp-content/uploads/2024/05/{0}-1024x683.jpg\" alt=\"\" class=\"wp-image-{1}\" srcset=\"https://blog.example/wp-content/uploads/2024/05/{0}-1024x683.jpg 1024w, https://blog.example/wp-content/uploads/2024/05/{0}-300x200.jpg 300w\" sizes=\"(max-width: 1024px) 100vw, 1024px\" /></figure>\n\n", n.slug(3), n.below(9000)).unwrap(),
            _ => {}
        }
    }
    out += "</div></article>\n<div id=\"comments\" class=\"comments-area\"><ol class=\"comment-list\">";
    while out.len() < bytes * 9 / 10 {
        let (id, who, text) = (n.below(90_000), n.name(), n.paragraph(3));
        writeln!(out, "<li id=\"comment-{id}\" class=\"comment even thread-even depth-1\"><article id=\"div-comment-{id}\" class=\"comment-body\"><footer class=\"comment-meta\"><div class=\"comment-author vcard\"><img alt='' src='https://secure.gravatar.com/avatar/{}?s=42&#038;d=mm&#038;r=g' class='avatar avatar-42 photo' height='42' width='42' loading='lazy'/> <b class=\"fn\">{who}</b> <span class=\"says\">says:</span></div></footer><div class=\"comment-content\"><p>{text}</p></div><div class=\"reply\"><a rel='nofollow' class='comment-reply-link' href='#comment-{id}' data-commentid=\"{id}\">Reply</a></div></article></li>", n.hex(32)).unwrap();
    }
    out + "</ol><form action=\"https://blog.example/wp-comments-post.php\" method=\"post\" id=\"commentform\" class=\"comment-form\"><textarea id=\"comment\" name=\"comment\" cols=\"45\" rows=\"8\"></textarea><input id=\"author\" name=\"author\" type=\"text\"/><input id=\"email\" name=\"email\" type=\"text\"/></form></div></main>\n<footer class=\"site-footer\"><a href=\"https://wordpress.org/\">Proudly powered by WordPress</a></footer>\n<script src=\"https://blog.example/wp-includes/js/comment-reply.min.js?ver=6.5.2\" id=\"comment-reply-js\" async></script>\n</body>\n</html>\n"
}

/// Returns a list of goods in cards, as shops on Bootstrap write it.
fn shop(page: usize, bytes: usize) -> String {
    let n = &mut Numbers::new(page, 2);
    let mut out = format!(
        "<!doctype html>\n<html lang=\"en\">\n  <head>\n    <meta charset=\"utf-8\">\n    <meta name=\"viewport\" content=\"width=device-width, \
         initial-scale=1, shrink-to-fit=no\">\n    <title>{} | Market Street</title>\n    <meta name=\"csrf-token\" content=\"{}\">\n    <link \
         href=\"https://cdn.jsdelivr.net/npm/bootstrap@5.3.3/dist/css/bootstrap.min.css\" rel=\"stylesheet\" integrity=\"sha384-{}\" \
         crossorigin=\"anonymous\">\n    <script async src=\"https://www.googletagmanager.com/gtag/js?id=G-{}\"></script>\n    <script>\n      \
         window.dataLayer = window.dataLayer || [];\n      function gtag(){{dataLayer.push(arguments);}}\n      gtag('js', new Date());\n      \
         gtag('config', 'G-{}');\n    </script>\n  </head>\n  <body>\n    <nav class=\"navbar navbar-expand-lg navbar-light bg-light fixed-top\">\n      \
         <div class=\"container\">\n        <a class=\"navbar-brand\" href=\"/\">Market Street</a>\n        <button class=\"navbar-toggler\" type=\"button\" \
         data-bs-toggle=\"collapse\" data-bs-target=\"#navbar\" aria-controls=\"navbar\" aria-expanded=\"false\" aria-label=\"Toggle navigation\"><span \
         class=\"navbar-toggler-icon\"></span></button>\n        <div class=\"collapse navbar-collapse\" id=\"navbar\">\n          <ul class=\"navbar-nav me-auto mb-2 mb-lg-0\">\n",
        n.heading(3),
        n.hex(40),
        n.hex(64),
        n.hex(10),
        n.hex(10)
    );
    for _ in 0..8 {
        writeln!(out, "            <li class=\"nav-item dropdown\"><a class=\"nav-link dropdown-toggle\" href=\"/c/{}\" role=\"button\" data-bs-toggle=\"dropdown\" aria-expanded=\"false\">{}</a></li>", n.slug(2), n.heading(2)).unwrap();
    }
    out += "          </ul>\n          <form class=\"d-flex\" action=\"/search\"><input class=\"form-control me-2\" type=\"search\" name=\"q\" placeholder=\"Search\" aria-label=\"Search\"></form>\n        </div>\n      </div>\n    </nav>\n    <div class=\"container mt-5 pt-4\">\n      <div class=\"row row-cols-1 row-cols-sm-2 row-cols-md-3 g-4\">\n";
    while out.len() < bytes * 19 / 20 {
        let (id, slug) = (n.below(900_000), n.slug(4));
        let (title, text) = (n.heading(5), n.sentence(14));
        let (whole, cents) = (5 + n.below(300), n.below(100));
        write!(
            out,
            "        <div class=\"col\">\n          <div class=\"card h-100 product-card shadow-sm\" data-product-id=\"{id}\" data-price=\"{whole}.{cents:02}\">\n            \
             <a href=\"/p/{slug}-{id}\"><img src=\"https://img.shop.example/{id}/400x400.webp\" class=\"card-img-top\" alt=\"{title}\" loading=\"lazy\" width=\"400\" \
             height=\"400\"></a>\n            <div class=\"card-body d-flex flex-column\">\n              <h5 class=\"card-title\"><a class=\"text-decoration-none \
             stretched-link\" href=\"/p/{slug}-{id}\">{title}</a></h5>\n              <div class=\"rating text-warning small\" title=\"4 of 5\"><i class=\"bi bi-star-fill\"></i><i \
             class=\"bi bi-star-fill\"></i><i class=\"bi bi-star-fill\"></i><i class=\"bi bi-star-half\"></i><i class=\"bi bi-star\"></i> <span class=\"text-muted\">({})</span></div>\n              \
             <p class=\"card-text text-muted\">{text}</p>\n              <div class=\"mt-auto d-flex justify-content-between align-items-center\"><span class=\"h5 \
             mb-0\">&euro;{whole}.{cents:02}</span><button type=\"button\" class=\"btn btn-primary btn-sm add-to-cart\" data-id=\"{id}\">Add to cart</button></div>\n            \
             </div>\n          </div>\n        </div>\n",
            n.below(900)
        )
        .unwrap();
    }
    out + "      </div>\n      <nav aria-label=\"Pages\"><ul class=\"pagination justify-content-center\"><li class=\"page-item active\"><a class=\"page-link\" href=\"?page=1\">1</a></li><li class=\"page-item\"><a class=\"page-link\" href=\"?page=2\">2</a></li></ul></nav>\n    </div>\n    <footer class=\"bg-dark text-white py-4\"><div class=\"container\"><p class=\"mb-0\">&copy; Market Street. All prices include VAT.</p></div></footer>\n    <script src=\"https://cdn.jsdelivr.net/npm/bootstrap@5.3.3/dist/js/bootstrap.bundle.min.js\"></script>\n    <script>\n      document.querySelectorAll('.add-to-cart').forEach(function (button) {\n        button.addEventListener('click', function () { fetch('/cart/add', { method: 'POST', body: JSON.stringify({ id: this.dataset.id }) }); });\n      });\n    </script>\n  </body>\n</html>\n"
}

/// Returns the front page of a newspaper: teasers in many blocks, styles and scripts in the page.
fn news(page: usize, bytes: usize) -> String {
    let n = &mut Numbers::new(page, 3);
    let mut out = String::from(
        "<!DOCTYPE html><html lang=\"en\" class=\"no-js\"><head><meta charset=\"utf-8\"/><meta http-equiv=\"X-UA-Compatible\" content=\"IE=edge\"/><title>The \
         Evening Herald - news, sport and opinion</title><meta name=\"description\" content=\"News from the city and the country\"/><meta property=\"og:site_name\" \
         content=\"The Evening Herald\"/><meta name=\"twitter:card\" content=\"summary_large_image\"/><link rel=\"preconnect\" href=\"https://static.herald.example\"/><style>",
    );
    for part in 0..40 {
        write!(out, ".dcr-{0}{{display:flex;flex-direction:column;margin-bottom:{1}px;color:#{0}}}@media (min-width:{2}em){{.dcr-{0}{{width:{1}%;padding-left:10px}}}}", n.hex(6), part, 46 + part).unwrap();
    }
    out += "</style><script type=\"application/ld+json\">{\"@context\":\"https://schema.org\",\"@type\":\"NewsMediaOrganization\",\"name\":\"The Evening Herald\",\"url\":\"https://herald.example\",\"logo\":{\"@type\":\"ImageObject\",\"url\":\"https://static.herald.example/logo.png\"}}</script><script>window.herald={config:{switches:{ads:true,consent:true},page:{edition:\"UK\",section:\"front\"}},modules:{},queue:[]};(function(d,c){d.documentElement.className=d.documentElement.className.replace('no-js','js');if(c&&c.getItem('dark')){d.body.className+=' dark'}})(document,window.localStorage);</script></head><body data-layout=\"front\"><header role=\"banner\"><nav aria-label=\"Sections\"><ul>";
    for section in ["News", "Sport", "Culture", "Opinion", "Money", "Weather", "Travel", "Video"] {
        write!(
            out,
            "<li class=\"dcr-a1\"><a href=\"/{0}\" data-link-name=\"nav : {0}\">{section}</a></li>",
            section.to_lowercase()
        )
        .unwrap();
    }
    out += "</ul></nav></header><main data-component=\"front\">";
    while out.len() < bytes * 9 / 10 {
        let container = n.slug(2);
        write!(out, "<section id=\"{container}\" class=\"dcr-{}\" data-link-name=\"container | {container}\"><h2 class=\"dcr-{}\"><a href=\"/{container}\">{}</a></h2><ul>", n.hex(6), n.hex(6), n.heading(2)).unwrap();
        for _ in 0..4 + n.below(5) {
            let (slug, title, text) = (n.slug(6), n.heading(9), n.sentence(18));
            write!(
                out,
                "<li class=\"dcr-{0}\"><div class=\"dcr-{1}\" data-link-name=\"news | group-0 | card\"><a href=\"/{slug}\" aria-label=\"{title}\"></a><picture><source \
                 srcset=\"https://i.herald.example/img/{2}/master/2000.jpg?width=465&amp;quality=45&amp;dpr=2&amp;s=none\" media=\"(min-width: 740px) and \
                 (-webkit-min-device-pixel-ratio: 1.25)\"/><img alt=\"\" src=\"https://i.herald.example/img/{2}/master/2000.jpg?width=465&amp;quality=85&amp;s=none\"/></picture>\
                 <h3 class=\"dcr-{0}\"><span class=\"kicker\">{3}</span> <span class=\"headline\">{title}</span></h3><div class=\"standfirst\">{text}</div><footer><time \
                 datetime=\"2024-06-0{4}T1{4}:30:00.000Z\">{4}h ago</time><span class=\"comments\">{ICON}{5}</span></footer></div></li>",
                n.hex(6), n.hex(6), n.hex(40), n.heading(1), 1 + n.below(9), n.below(900)
            )
            .unwrap();
        }
        out += "</ul></section><div class=\"ad-slot ad-slot--inline\" data-name=\"inline\" aria-hidden=\"true\"></div>";
    }
    out + "</main><footer><p>&copy; The Evening Herald. All rights reserved.</p><a href=\"/help/privacy\">Privacy policy</a> <a href=\"/help/cookies\">Cookie policy</a></footer><script defer src=\"https://static.herald.example/assets/commercial.4f2a.js\"></script></body></html>"
}

/// Returns an article of an encyclopedia with its links, footnotes and tables.
fn wiki(page: usize, bytes: usize) -> String {
    let n = &mut Numbers::new(page, 4);
    let title = n.heading(3);
    let mut out = format!(
        "<!DOCTYPE html>\n<html class=\"client-nojs vector-feature-language-in-header-enabled\" lang=\"en\" dir=\"ltr\">\n<head>\n<meta charset=\"UTF-8\">\n<title>{title} \
         - Open Encyclopedia</title>\n<script>(function(){{var className=\"client-js vector-feature-language-in-header-enabled\";document.documentElement.className=className;}}());\
         RLCONF={{\"wgBreakFrames\":false,\"wgSeparatorTransformTable\":[\"\",\"\"],\"wgPageName\":\"{}\",\"wgArticleId\":{page},\"wgRequestId\":\"{}\"}};RLSTATE=\
         {{\"site.styles\":\"ready\",\"user.styles\":\"ready\"}};</script>\n<link rel=\"stylesheet\" href=\"/w/load.php?lang=en&amp;modules=ext.cite.styles%7Cskins.vector.styles&amp;only=styles&amp;skin=vector-2022\">\n\
         <meta name=\"generator\" content=\"MediaWiki 1.43.0\">\n</head>\n<body class=\"skin-vector mediawiki ltr sitedir-ltr ns-0 ns-subject page rootpage action-view\">\n<div class=\"vector-header-container\">\
         <nav class=\"vector-main-menu-landmark\" aria-label=\"Site\"><ul class=\"vector-menu-content-list\">\n",
        title.replace(' ', "_"),
        n.hex(32)
    );
    for item in [
        "Main page",
        "Contents",
        "Current events",
        "Random article",
        "About",
        "Contact us",
        "Help",
        "Recent changes",
    ] {
        writeln!(out, "<li id=\"n-{0}\" class=\"mw-list-item\"><a href=\"/wiki/{0}\" title=\"{item}\"><span>{item}</span></a></li>", item.replace(' ', "_")).unwrap();
    }
    write!(out, "</ul></nav></div>\n<main id=\"content\" class=\"mw-body\"><h1 id=\"firstHeading\" class=\"firstHeading mw-first-heading\"><span class=\"mw-page-title-main\">{title}</span></h1>\n<div id=\"mw-content-text\" class=\"mw-body-content\"><div class=\"mw-content-ltr mw-parser-output\" lang=\"en\" dir=\"ltr\"><table class=\"infobox vcard\"><tbody>").unwrap();
    for _ in 0..10 {
        write!(out, "<tr><th scope=\"row\" class=\"infobox-label\">{}</th><td class=\"infobox-data\"><a href=\"/wiki/{}\" title=\"{}\">{}</a></td></tr>", n.heading(1), n.heading(2).replace(' ', "_"), n.heading(2), n.heading(2)).unwrap();
    }
    out += "</tbody></table>\n";
    let mut note = 0;
    while out.len() < bytes * 7 / 10 {
        if n.below(4) == 0 {
            let heading = n.heading(3);
            writeln!(out, "<div class=\"mw-heading mw-heading2\"><h2 id=\"{0}\">{heading}</h2><span class=\"mw-editsection\"><span class=\"mw-editsection-bracket\">[</span><a href=\"/w/index.php?title=x&amp;action=edit&amp;section={1}\" title=\"Edit section: {heading}\"><span>edit</span></a><span class=\"mw-editsection-bracket\">]</span></span></div>", heading.replace(' ', "_"), n.below(30)).unwrap();
        }
        out += "<p>";
        for _ in 0..4 {
            note += 1;
            let (before, link, words) = (n.sentence(9), n.heading(2), 3 + n.below(8));
            let rest = n.heading(words).to_lowercase();
            write!(out, "{} <a href=\"/wiki/{}\" title=\"{link}\">{}</a> {rest}.<sup id=\"cite_ref-{note}\" class=\"reference\"><a href=\"#cite_note-{note}\"><span class=\"cite-bracket\">&#91;</span>{note}<span class=\"cite-bracket\">&#93;</span></a></sup> ", before.trim_end_matches(['.', '?']), link.replace(' ', "_"), link.to_lowercase()).unwrap();
        }
        out += "\n</p>";
    }
    out += "<div class=\"reflist\"><ol class=\"references\">\n";
    for note in 1.. {
        if out.len() > bytes * 19 / 20 {
            break;
        }
        writeln!(out, "<li id=\"cite_note-{note}\"><span class=\"mw-cite-backlink\"><b><a href=\"#cite_ref-{note}\">^</a></b></span> <span class=\"reference-text\"><cite class=\"citation news cs1\">{} (2019). <a rel=\"nofollow\" class=\"external text\" href=\"https://www.paper.example/{}\">\"{}\"</a>. <i>{}</i>. p.&#160;{}.</cite></span></li>", n.name(), n.slug(4), n.heading(6), n.heading(2), n.below(400)).unwrap();
    }
    out + "</ol></div></div></div></main>\n<footer id=\"footer\" class=\"mw-footer\"><ul id=\"footer-info\"><li>Text is available under a free license; additional terms may apply.</li></ul></footer>\n<script>(RLQ=window.RLQ||[]).push(function(){mw.config.set({\"wgBackendResponseTime\":142});});</script>\n</body>\n</html>"
}

/// Returns a page of a server-rendered application, with its data at the end.
fn application(page: usize, bytes: usize) -> String {
    let n = &mut Numbers::new(page, 5);
    let build = n.hex(21);
    let mut out = format!(
        "<!DOCTYPE html><html lang=\"en\"><head><meta charSet=\"utf-8\"/><meta name=\"viewport\" content=\"width=device-width\"/><title>{} - Rooms</title><meta name=\"next-head-count\" \
         content=\"3\"/><link rel=\"preload\" href=\"/_next/static/css/{}.css\" as=\"style\"/><link rel=\"stylesheet\" href=\"/_next/static/css/{}.css\" data-n-g=\"\"/><noscript data-n-css=\"\"></noscript>",
        n.heading(4),
        n.hex(16),
        n.hex(16)
    );
    for chunk in ["webpack", "framework", "main", "pages/_app", "pages/rooms/[slug]"] {
        write!(
            out,
            "<script src=\"/_next/static/chunks/{chunk}-{}.js\" defer=\"\"></script>",
            n.hex(16)
        )
        .unwrap();
    }
    out += "</head><body><div id=\"__next\"><div class=\"Layout_root__3kF9a\"><header class=\"Header_bar__x81Pq flex items-center justify-between px-4 py-2\"><a class=\"text-xl font-bold\" href=\"/\">Rooms</a></header><main class=\"mx-auto max-w-7xl px-4 sm:px-6 lg:px-8\"><div class=\"grid grid-cols-1 gap-6 md:grid-cols-2 lg:grid-cols-3\">";
    let mut items = Vec::new();
    while out.len() < bytes * 11 / 20 {
        let (id, slug, title, text) = (n.below(99_999), n.slug(3), n.heading(5), n.paragraph(2));
        let price = 40 + n.below(400);
        write!(
            out,
            "<a class=\"group relative block overflow-hidden rounded-lg border border-gray-200 hover:shadow-lg focus:outline-none focus:ring-2\" href=\"/rooms/{slug}\"><div \
             class=\"aspect-w-16 aspect-h-9 bg-gray-100\"><img alt=\"{title}\" loading=\"lazy\" width=\"640\" height=\"360\" decoding=\"async\" data-nimg=\"1\" style=\"color:transparent\" \
             srcSet=\"/_next/image?url=%2Fimages%2F{id}.jpg&amp;w=640&amp;q=75 1x, /_next/image?url=%2Fimages%2F{id}.jpg&amp;w=1920&amp;q=75 2x\" \
             src=\"/_next/image?url=%2Fimages%2F{id}.jpg&amp;w=1920&amp;q=75\"/></div><div class=\"space-y-2 p-4\"><h3 class=\"text-base font-semibold text-gray-900 \
             group-hover:underline\">{title}</h3><p class=\"line-clamp-2 text-sm text-gray-500\">{text}</p><p class=\"text-lg font-medium\">€<!-- -->{price}<!-- --> a night</p></div></a>"
        )
        .unwrap();
        items.push(format!("{{\"id\":{id},\"slug\":\"{slug}\",\"title\":\"{title}\",\"description\":\"{text}\",\"price\":{{\"amount\":{price},\"currency\":\"EUR\"}},\"images\":[{{\"url\":\"/images/{id}.jpg\",\"width\":1920,\"height\":1080}}],\"host\":{{\"name\":\"{}\",\"verified\":true,\"joined\":\"2019-04-0{}\"}},\"amenities\":[\"wifi\",\"kitchen\",\"washer\"],\"__typename\":\"Room\"}}", n.name(), 1 + n.below(9)));
    }
    write!(out, "</div></main></div></div><script id=\"__NEXT_DATA__\" type=\"application/json\">{{\"props\":{{\"pageProps\":{{\"rooms\":[{}],\"locale\":\"en\"}},\"__N_SSP\":true}},\"page\":\"/rooms\",\"query\":{{}},\"buildId\":\"{build}\",\"isFallback\":false,\"gssp\":true,\"scriptLoader\":[]}}</script></body></html>", items.join(",")).unwrap();
    out
}

/// Returns a thread of a forum: posts with signatures, quotes, code and authors.
fn forum(page: usize, bytes: usize) -> String {
    let n = &mut Numbers::new(page, 6);
    let title = n.heading(8);
    let mut out = format!(
        "<!DOCTYPE html>\n<html dir=\"ltr\" lang=\"en-gb\">\n<head>\n<meta charset=\"utf-8\" />\n<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\" />\n\n<title>{title} - Workshop \
         Forum</title>\n\n<link rel=\"canonical\" href=\"https://forum.example/viewtopic.php?t={page}\">\n\n<!--\n\tphpBB style name: prosilver\n\tBased on style:   prosilver\n-->\n\n<link \
         href=\"./assets/css/font-awesome.min.css?assets_version=25\" rel=\"stylesheet\">\n<link href=\"./styles/prosilver/theme/stylesheet.css?assets_version=25\" rel=\"stylesheet\">\n</head>\n\
         <body id=\"phpbb\" class=\"nojs notouch section-viewtopic ltr\">\n<div id=\"wrap\" class=\"wrap\">\n\t<a id=\"top\" class=\"top-anchor\" accesskey=\"t\"></a>\n\t<div id=\"page-header\">\n\t\t<div \
         class=\"headerbar\" role=\"banner\">\n\t\t\t<h1>Workshop Forum</h1>\n\t\t\t<p class=\"skiplink\"><a href=\"#start_here\">Skip to content</a></p>\n\t\t</div>\n\t</div>\n\t<div id=\"page-body\" \
         class=\"page-body\" role=\"main\">\n<h2 class=\"topic-title\"><a href=\"./viewtopic.php?t={page}\">{title}</a></h2>\n"
    );
    while out.len() < bytes * 19 / 20 {
        let (id, who, posts) = (n.below(900_000), n.name(), n.below(9_000));
        let sid = n.hex(32);
        write!(
            out,
            "\t\t<div id=\"p{id}\" class=\"post has-profile bg2\">\n\t\t<div class=\"inner\">\n\n\t\t<dl class=\"postprofile\" id=\"profile{id}\">\n\t\t\t<dt class=\"has-profile-rank has-avatar\">\n\t\t\t\t\
             <div class=\"avatar-container\"><a href=\"./memberlist.php?mode=viewprofile&amp;u={posts}&amp;sid={sid}\" class=\"avatar\"><img class=\"avatar\" src=\"./download/file.php?avatar={posts}.jpg\" \
             width=\"90\" height=\"90\" alt=\"User avatar\" /></a></div>\n\t\t\t\t<a href=\"./memberlist.php?mode=viewprofile&amp;u={posts}&amp;sid={sid}\" class=\"username\">{who}</a>\n\t\t\t</dt>\n\t\t\t<dd \
             class=\"profile-rank\">Member</dd>\n\t\t\t<dd class=\"profile-posts\"><strong>Posts:</strong> <a href=\"./search.php?author_id={posts}&amp;sr=posts\">{posts}</a></dd>\n\t\t</dl>\n\n\t\t<div \
             class=\"postbody\">\n\t\t\t<div id=\"post_content{id}\">\n\t\t\t<h3><a href=\"./viewtopic.php?p={id}#p{id}\">Re: {title}</a></h3>\n\t\t\t<div class=\"content\">"
        )
        .unwrap();
        if n.below(3) == 0 {
            write!(out, "<blockquote cite=\"./viewtopic.php?p={id}#p{id}\"><div><cite><a href=\"./memberlist.php?mode=viewprofile\">{}</a> wrote:</cite>{}</div></blockquote>", n.name(), n.paragraph(2)).unwrap();
        }
        let paragraphs = 1 + n.below(4);
        for _ in 0..paragraphs {
            write!(out, "{}<br>\n<br>\n", n.paragraph(4)).unwrap();
        }
        if n.below(4) == 0 {
            out += "<div class=\"codebox\"><p>Code: <a href=\"#\" onclick=\"selectCode(this); return false;\">Select all</a></p><pre><code>for (int i = 0; i &lt; count; i++) {\n    total += values[i] * weights[i];\n}\n</code></pre></div>";
        }
        out += "</div>\n\t\t\t<div id=\"sig\" class=\"signature\">-- <br>It works on my bench.</div>\n\t\t\t</div>\n\t\t</div>\n\t\t<div class=\"back2top\"><a href=\"#top\" class=\"top\" title=\"Top\"><i class=\"icon fa-chevron-circle-up fa-fw icon-gray\" aria-hidden=\"true\"></i><span class=\"sr-only\">Top</span></a></div>\n\t\t</div>\n\t</div>\n\n\t<hr class=\"divider\" />\n";
    }
    out + "\t</div>\n<div id=\"page-footer\" class=\"page-footer\" role=\"contentinfo\"><p class=\"footer-row\"><span class=\"footer-copyright\">Powered by a bulletin board</span></p></div>\n</div>\n<script src=\"./assets/javascript/jquery-3.7.1.min.js?assets_version=25\"></script>\n<script src=\"./assets/javascript/core.js?assets_version=25\"></script>\n</body>\n</html>\n"
}
