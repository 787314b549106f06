//! What a list crawl says before it begins.
//!
//! Must not know: how a crawl is done.

use indicatif::HumanCount;

use super::FetchArgs;
use super::build_crawler::{self, Crawler};
use super::crawl_options::CrawlOptions;
use crate::setup::settings::Settings;
use crate::terminal::output::plain;
use crate::terminal::pace_text::rate;
use fetchwise::fetch::http::DEFAULT_USER_AGENT;
use fetchwise::pace::{PaceMode, PaceSettings};
use fetchwise::robots::RobotsUse;

/// Returns the lines: links, robots.txt, data directory and browser, then the pace of hosts and the
/// name of the crawler.
pub(super) fn text(
    args: &FetchArgs,
    settings: &Settings,
    crawler: &Crawler,
    total: Option<u64>,
) -> String {
    let urls = match (&args.queue, total) {
        (Some(queue), _) => format!("links of the queue {queue}"),
        (None, Some(total)) => format!("{} lines", HumanCount(total)),
        (None, None) => "URLs".to_owned(),
    };
    let robots = match args.robots.or(settings.config.robots.mode).unwrap_or(RobotsUse::Obey) {
        RobotsUse::Obey => "robots.txt obeyed",
        RobotsUse::Delay => "robots.txt: Crawl-delay only",
        RobotsUse::Ignore => "robots.txt ignored",
    };
    let browser = crawler
        .browser
        .as_ref()
        .map_or_else(|| "no browser".to_owned(), |path| format!("browser {}", path.display()));
    let first = format!("{urls}, {robots}, data in {}, {browser}", crawler.journal.dir().display());
    let pace = pace_text(&build_crawler::pace(settings, &CrawlOptions::from(args)));
    let agent = settings.config.http.user_agent.as_deref().or(crawler.user_agent.as_deref());
    let second = format!("{pace}; {}", agent_text(agent));
    format!("{}\n{}", plain(&first), plain(&second))
}

fn pace_text(pace: &PaceSettings) -> String {
    let rate = rate(pace.initial_rate);
    match pace.mode {
        PaceMode::Learn => format!("{rate} per host at first (`--pace off` for your own machines)"),
        PaceMode::Fixed => format!("{rate} per host"),
        PaceMode::Off => "no pace per host".to_owned(),
    }
}

fn agent_text(agent: Option<&str>) -> String {
    match agent {
        Some(agent) => format!("sites see {agent}"),
        None => format!("sites see {DEFAULT_USER_AGENT}: name yourself with http.user_agent"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pace_of_hosts_and_the_name_of_the_crawler_are_said() {
        let of =
            |mode| pace_text(&PaceSettings { mode, initial_rate: 2.0, ..PaceSettings::default() });
        assert_eq!(
            of(PaceMode::Learn),
            "2.0/s per host at first (`--pace off` for your own machines)"
        );
        assert_eq!(
            [PaceMode::Fixed, PaceMode::Off].map(of),
            ["2.0/s per host", "no pace per host"]
        );
        assert_eq!(agent_text(Some("mine/1")), "sites see mine/1");
        assert!(agent_text(None).ends_with("): name yourself with http.user_agent"));
    }
}
