//! The detector alone: is this response content, a block, a shell, or empty?
//!
//! `cargo run --example detect`

use fetchwise::detect::Detector;

fn main() {
    let article =
        format!("<title>Notes</title><article>{}</article>", "<p>Some words to read. ".repeat(40));
    let pages: [(&str, u16, &str); 6] = [
        ("an article", 200, &article),
        (
            "a challenge",
            403,
            "<title>Just a moment...</title><script src=\"/cdn-cgi/challenge-platform/h/b/orchestrate/chl_page/v1\"></script>",
        ),
        ("a refusal", 403, "<title>403 Forbidden</title><h1>Forbidden</h1>"),
        (
            "a React app's shell",
            200,
            "<div id=\"root\"></div><script src=\"/static/js/main.2f1b.chunk.js\"></script>",
        ),
        (
            "a redirect written in HTML",
            200,
            "<meta http-equiv=\"refresh\" content=\"0; url=../new/index.html\"><a href=\"../new/index.html\">Moved</a>",
        ),
        ("nothing at all", 200, "<html><body></body></html>"),
    ];
    let detector = Detector::new();
    for (what, status, body) in pages {
        let answer = detector.judge(status, [("Content-Type", "text/html")], body.as_bytes());
        println!("{what}: {}", answer.outcome);
        for heuristic in &answer.heuristics {
            println!("    {} = {}", heuristic.kind, heuristic.value);
        }
    }
}
