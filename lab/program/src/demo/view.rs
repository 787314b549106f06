//! The picture of the demo: sites with a mark per page, costs of the crawlers, decisions, the
//! mill's pace, and news.
//!
//! The colour shows the fetcher, the shape how it was chosen, so the picture is readable without
//! colour too. Only draws.

use std::time::Instant;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::symbols::Marker;
use ratatui::text::{Line, Span};
use ratatui::widgets::{
    Axis, Block, BorderType, Chart, Dataset, GraphType, Padding, Paragraph, Wrap,
};

use fetchwise::decision::Source;

use crate::demo::model::{DecisionCounts, DemoModel, FetcherKind, PageResult};

/// The smallest window for the picture.
const LEAST: (u16, u16) = (72, 20);
/// The widths of a site's name, its address and its state.
const NAME: u16 = 11;
const ADDRESS: u16 = 12;
const STATE: u16 = 30;

const QUIET: Style = Style::new().fg(Color::DarkGray);
const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);
/// One colour per crawler.
const CRAWLERS: [Color; 3] = [Color::Green, Color::Yellow, Color::Blue];

/// Draws the current progress.
pub(super) fn draw(frame: &mut Frame<'_>, model: &DemoModel) {
    let area = frame.area();
    if area.width < LEAST.0 || area.height < LEAST.1 {
        let wanted = format!(
            "The demo needs a window of {} by {} characters, or --plain.",
            LEAST.0, LEAST.1
        );
        frame.render_widget(Paragraph::new(wanted), area);
        return;
    }
    let sites = model.sites.len() as u16 + 2;
    let rows = [
        Constraint::Length(1),
        Constraint::Length(sites),
        Constraint::Min(7),
        Constraint::Length(1),
    ];
    let [head, sites, charts, keys] = Layout::vertical(rows).areas(area);
    self::head(frame, head, model);
    self::sites(frame, sites, model);
    if charts.height >= 16 {
        let [upper, lower] =
            Layout::vertical([Constraint::Fill(1), Constraint::Fill(1)]).areas(charts);
        let [cost, mill] =
            Layout::horizontal([Constraint::Fill(1), Constraint::Fill(1)]).areas(upper);
        let [mix, news] =
            Layout::horizontal([Constraint::Fill(1), Constraint::Fill(1)]).areas(lower);
        self::cost(frame, cost, model);
        self::mill(frame, mill, model);
        self::mix(frame, mix, model);
        self::news(frame, news, model);
    } else {
        let [cost, news] =
            Layout::horizontal([Constraint::Fill(1), Constraint::Fill(1)]).areas(charts);
        self::cost(frame, cost, model);
        self::news(frame, news, model);
    }
    let legend = Line::from(vec![
        Span::styled(
            " ? probe  - inferred  ~ exploring  ● learned  ✕ no page  · paused    ",
            QUIET,
        ),
        Span::styled("direct ", way_style(FetcherKind::Direct)),
        Span::styled("browser ", way_style(FetcherKind::Browser)),
        Span::styled("stealth", way_style(FetcherKind::Stealth)),
    ]);
    frame.render_widget(legend, keys);
}

fn head(frame: &mut Frame<'_>, area: Rect, model: &DemoModel) {
    let passed = model.began.elapsed().as_secs();
    let stopped = if model.is_stopped { "   paused" } else { "" };
    let left = Line::from(vec![
        Span::styled(" fetchwise ", BOLD),
        Span::raw("learns demo sites on this machine"),
        Span::styled(
            format!(
                "   round {}/{}   {:02}:{:02}{stopped}",
                model.round,
                model.rounds,
                passed / 60,
                passed % 60
            ),
            QUIET,
        ),
    ]);
    let keys = match &model.dashboard {
        Some(url) => format!("dashboard {url}   q quits "),
        None => "p pauses and continues, q quits ".to_owned(),
    };
    let right = Line::from(Span::styled(keys, QUIET)).right_aligned();
    frame.render_widget(left, area);
    if area.width > 100 {
        frame.render_widget(right, area);
    }
}

fn panel(title: &str) -> Block<'_> {
    Block::bordered()
        .border_type(BorderType::Rounded)
        .border_style(QUIET)
        .title(Span::styled(format!(" {title} "), BOLD))
        .padding(Padding::horizontal(1))
}

fn sites(frame: &mut Frame<'_>, area: Rect, model: &DemoModel) {
    let block = panel("demo sites, one page per round");
    let inside = block.inner(area);
    frame.render_widget(block, area);
    // The dashboard knows the sites by their addresses.
    let address = if model.dashboard.is_some() { ADDRESS } else { 0 };
    let columns =
        [Constraint::Length(NAME + address), Constraint::Min(10), Constraint::Length(STATE)];
    let [names, strips, states] = Layout::horizontal(columns).spacing(1).areas(inside);
    let (mut left, mut middle, mut right) = (Vec::new(), Vec::new(), Vec::new());
    for site in &model.sites {
        let name = format!("{:<width$}", site.name, width = usize::from(NAME));
        let host = if address > 0 { site.host } else { "" };
        left.push(Line::from(vec![Span::styled(name, BOLD), Span::styled(host, QUIET)]));
        let kept = usize::from(strips.width);
        let from = site.results.len().saturating_sub(kept);
        let about = if site.results.is_empty() { site.about } else { "" };
        let marks = site.results[from..].iter().map(|result| mark(*result));
        middle.push(Line::from(marks.chain([Span::styled(about, QUIET)]).collect::<Vec<_>>()));
        let pause = site
            .paused_until
            .map(|until| until.saturating_duration_since(Instant::now()).as_secs());
        right.push(state(site.results.last().copied(), site.confidence, pause));
    }
    frame.render_widget(Paragraph::new(left), names);
    frame.render_widget(Paragraph::new(middle), strips);
    frame.render_widget(Paragraph::new(right), states);
}

fn way_style(way: FetcherKind) -> Style {
    let colour = match way {
        FetcherKind::Direct => Color::Green,
        FetcherKind::Browser => Color::Cyan,
        FetcherKind::Stealth => Color::Magenta,
    };
    Style::new().fg(colour)
}

fn mark(result: PageResult) -> Span<'static> {
    match result {
        PageResult::Page { way, source, .. } => {
            let shape = match source {
                Some(Source::Probe) => "?",
                Some(Source::Inferred) => "-",
                Some(Source::Explore) => "~",
                _ => "●",
            };
            Span::styled(shape, way.map_or(Style::new(), way_style))
        }
        PageResult::Failed { .. } => Span::styled("✕", Style::new().fg(Color::Red)),
        PageResult::Paused => Span::styled("·", QUIET),
    }
}

fn state(result: Option<PageResult>, confidence: f64, pause: Option<u64>) -> Line<'static> {
    match (result, pause) {
        (Some(PageResult::Paused | PageResult::Failed { .. }), Some(left)) if left > 0 => {
            Line::styled(format!("paused, {left} s left"), QUIET)
        }
        (Some(PageResult::Page { way: Some(way), .. }), _) => {
            let full = (confidence.clamp(0.0, 1.0) * 10.0).round() as usize;
            Line::from(vec![
                Span::styled(format!("{:<8}", way.name()), way_style(way)),
                Span::styled("▰".repeat(full), way_style(way)),
                Span::styled("▱".repeat(10 - full), QUIET),
                Span::styled(format!(" {confidence:.2}"), QUIET),
            ])
        }
        (Some(PageResult::Failed { .. }), _) => {
            Line::styled("no page", Style::new().fg(Color::Red))
        }
        (Some(PageResult::Paused), _) => Line::styled("trial is due", QUIET),
        _ => Line::default(),
    }
}

fn cost(frame: &mut Frame<'_>, area: Rect, model: &DemoModel) {
    let series: Vec<Vec<(f64, f64)>> = model
        .crawlers
        .iter()
        .map(|crawler| {
            crawler
                .costs
                .iter()
                .enumerate()
                .map(|(round, cost)| (round as f64 + 1.0, *cost))
                .collect()
        })
        .collect();
    let most = series.iter().flatten().map(|(_, cost)| *cost).fold(10.0, f64::max);
    let labels: Vec<String> = model
        .crawlers
        .iter()
        .map(|crawler| {
            format!(
                "{}: {} pages for {:.0}",
                crawler.name,
                crawler.counted.pages,
                crawler.counted.cost(model.render_cost)
            )
        })
        .collect();
    let block = panel("cost in plain requests");
    let inside = block.inner(area);
    frame.render_widget(block, area);
    let [lines, plot] =
        Layout::vertical([Constraint::Length(labels.len() as u16), Constraint::Min(1)])
            .areas(inside);
    let legend: Vec<Line<'_>> = labels
        .iter()
        .zip(CRAWLERS)
        .map(|(label, colour)| Line::styled(format!("━ {label}"), Style::new().fg(colour)))
        .collect();
    frame.render_widget(Paragraph::new(legend), lines);
    let sets = series.iter().zip(CRAWLERS).map(|(points, colour)| line(points, colour)).collect();
    frame.render_widget(axes(sets, [0.0, model.rounds as f64], most, format!("{most:.0}")), plot);
}

fn line(points: &[(f64, f64)], colour: Color) -> Dataset<'_> {
    Dataset::default()
        .marker(Marker::Braille)
        .graph_type(GraphType::Line)
        .style(Style::new().fg(colour))
        .data(points)
}

fn axes<'a>(sets: Vec<Dataset<'a>>, across: [f64; 2], most: f64, top: String) -> Chart<'a> {
    Chart::new(sets)
        .x_axis(Axis::default().style(QUIET).bounds(across))
        .y_axis(
            Axis::default()
                .style(QUIET)
                .bounds([0.0, most])
                .labels([Line::raw("0"), Line::raw(top)]),
        )
        .legend_position(None)
}

fn mill(frame: &mut Frame<'_>, area: Rect, model: &DemoModel) {
    let mill = &model.mill;
    let block = panel("the mill: learning a pace");
    let inside = block.inner(area);
    frame.render_widget(block, area);
    let [words, plot] = Layout::vertical([Constraint::Length(2), Constraint::Min(1)]).areas(inside);
    let ceiling = mill.pace.as_ref().and_then(|pace| pace.ceiling);
    let rate = mill.pace.as_ref().map_or(0.0, |pace| pace.rate);
    let limit = ceiling.map_or_else(
        || "no limit hit yet".to_owned(),
        |(ceiling, window)| format!("limit near {ceiling:.1}/s, window {window}"),
    );
    let counted = format!("{} pages, {} refused", mill.pages, mill.refused);
    let now = match mill.rates.back() {
        Some(0.0) => "held".to_owned(),
        _ => format!("{rate:.1}/s"),
    };
    frame.render_widget(
        Paragraph::new(vec![
            Line::from(vec![Span::styled(now, BOLD), Span::styled(format!("  {counted}"), QUIET)]),
            Line::styled(limit, QUIET),
        ]),
        words,
    );
    let points: Vec<(f64, f64)> =
        mill.rates.iter().enumerate().map(|(second, rate)| (second as f64, *rate)).collect();
    let most = mill.rates.iter().copied().fold(8.0, f64::max) * 1.1;
    let across = [0.0, (points.len().max(60)) as f64];
    let bound: Vec<(f64, f64)> =
        ceiling.map_or_else(Vec::new, |(rate, _)| vec![(0.0, rate), (across[1], rate)]);
    let sets = vec![line(&bound, Color::DarkGray), line(&points, Color::Green)];
    frame.render_widget(axes(sets, across, most, format!("{most:.0}")), plot);
}

/// Draws a column per round, filled from below: learned, then inferred, probed, and failed pages.
fn mix(frame: &mut Frame<'_>, area: Rect, model: &DemoModel) {
    let block = panel("decisions");
    let inside = block.inner(area);
    frame.render_widget(block, area);
    let [words, plot] = Layout::vertical([Constraint::Length(1), Constraint::Min(1)]).areas(inside);
    let colours = [
        (Color::Green, "learned"),
        (Color::Cyan, "inferred"),
        (Color::Yellow, "probed"),
        (Color::Red, "no page"),
    ];
    let words_of = colours
        .iter()
        .map(|(colour, name)| Span::styled(format!("█ {name}  "), Style::new().fg(*colour)));
    frame.render_widget(Line::from(words_of.collect::<Vec<_>>()), words);
    let kept = usize::from(plot.width);
    let from = model.round.saturating_sub(kept);
    for (column, round) in (from..model.round).enumerate() {
        let Some(mix) = model.mix(round) else { continue };
        let x = plot.x + column as u16;
        for row in 0..plot.height {
            let colour = colour_at(&mix, (f64::from(row) + 0.5) / f64::from(plot.height));
            let y = plot.bottom() - 1 - row;
            if let Some(cell) = frame.buffer_mut().cell_mut((x, y)) {
                cell.set_symbol("█").set_fg(colour);
            }
        }
    }
}

/// Returns the colour of the decision at this share of a column's height.
fn colour_at(mix: &DecisionCounts, share: f64) -> Color {
    let at = share * f64::from(mix.all());
    let (learned, guessed, probed) =
        (mix.learned, mix.learned + mix.guessed, mix.learned + mix.guessed + mix.probed);
    match at {
        at if at < f64::from(learned) => Color::Green,
        at if at < f64::from(guessed) => Color::Cyan,
        at if at < f64::from(probed) => Color::Yellow,
        _ => Color::Red,
    }
}

fn news(frame: &mut Frame<'_>, area: Rect, model: &DemoModel) {
    let block = panel("news");
    let inside = block.inner(area);
    let lines: Vec<Line<'_>> = model
        .news
        .iter()
        .take(usize::from(inside.height))
        .map(|(at, text)| {
            let at = at.as_secs();
            Line::from(vec![
                Span::styled(format!("{:02}:{:02} ", at / 60, at % 60), QUIET),
                Span::raw(text.as_str()),
            ])
        })
        .collect();
    frame.render_widget(block, area);
    frame.render_widget(Paragraph::new(lines).wrap(Wrap { trim: true }), inside);
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use fetchwise::pipeline::Report;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;

    fn model() -> DemoModel {
        let places = fetchwise_testsite::demo_sites::interactive_demo_sites();
        let mut model = DemoModel::new(
            &places[..8],
            &["fetchwise", "always direct", "always browser"],
            48,
            15.0,
        );
        let mut report = Report {
            fetcher: Some("direct_access".to_owned()),
            source: Some(Source::Learned),
            confidence: 0.8,
            ..Report::default()
        };
        model.page(0, &report, None);
        report.error_type = Some("blocked_403");
        model.page(6, &report, Some(Duration::from_secs(100)));
        model.round = 1;
        model
    }

    fn drawn(model: &DemoModel, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, model)).unwrap();
        let buffer = terminal.backend().buffer();
        let row = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
        (0..height).map(row).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn beside_a_dashboard_the_sites_have_its_names_too() {
        let mut model = model();
        assert!(!drawn(&model, 120, 40).contains(model.sites[0].host));
        model.dashboard = Some("http://127.0.0.1:8080/".to_owned());
        let picture = drawn(&model, 120, 40);
        for site in &model.sites {
            assert!(picture.contains(site.name) && picture.contains(site.host), "{picture}");
        }
    }

    #[test]
    fn the_picture_shows_every_site_and_its_state() {
        let picture = drawn(&model(), 120, 40);
        for site in &model().sites {
            assert!(picture.contains(site.name), "{picture}");
        }
        for text in [
            "direct  ▰▰▰▰▰▰▰▰▱▱ 0.80",
            "paused, 99 s left",
            "library: learned, direct from now on",
            "round 1/48",
        ] {
            assert!(picture.contains(text), "{text}\n{picture}");
        }
    }

    #[test]
    fn a_long_line_of_news_is_wrapped() {
        let mut model = model();
        model.tell(
            "mill: rate limit hit; from now on at most 3.9/s, over a window of ten seconds"
                .to_owned(),
        );
        let picture = drawn(&model, 80, 40);
        for word in ["mill: rate limit hit;", "seconds"] {
            assert!(picture.contains(word), "{word}\n{picture}");
        }
    }

    #[test]
    fn every_size_of_window_is_drawn() {
        let model = model();
        for (width, height) in
            [(1, 1), (71, 40), (72, 19), (72, 20), (80, 24), (100, 27), (300, 100)]
        {
            let picture = drawn(&model, width, height);
            assert_eq!(
                picture.contains("fetchwise"),
                (width, height) >= LEAST && height >= LEAST.1,
                "{width}x{height}"
            );
        }
    }
}
