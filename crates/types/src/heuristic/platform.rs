//! `video_platform`: the video platform of a page, by its host. A shipped [`UrlExtractor`]; the
//! program registers it, and a crawler can.
//!
//! Must not know: which fetcher works for a platform. That is learned.

use super::UrlExtractor;

/// Hosts and their platforms; a subdomain belongs to the same platform.
const PLATFORMS: &[(&str, &str)] = &[
    ("youtube.com", "youtube"),
    ("youtu.be", "youtube"),
    ("youtube-nocookie.com", "youtube"),
    ("vimeo.com", "vimeo"),
    ("dailymotion.com", "dailymotion"),
    ("dai.ly", "dailymotion"),
    ("twitch.tv", "twitch"),
    ("tiktok.com", "tiktok"),
    ("bilibili.com", "bilibili"),
    ("rumble.com", "rumble"),
    ("odysee.com", "odysee"),
    ("streamable.com", "streamable"),
    ("nicovideo.jp", "niconico"),
    ("peertube.tv", "peertube"),
];

/// Emits `video_platform` with the platform's name for pages of video platforms. Allocates nothing.
///
/// ```
/// use fetchwise_types::heuristic::UrlExtractor;
/// use fetchwise_types::heuristic::platform::VideoPlatform;
///
/// let url = "https://m.youtube.com/watch?v=1".parse().unwrap();
/// let mut shown = Vec::new();
/// VideoPlatform.extract(&url, &mut |kind, value| shown.push(format!("{kind}={value}")));
/// assert_eq!(shown, ["video_platform=youtube"]);
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct VideoPlatform;

impl UrlExtractor for VideoPlatform {
    fn extract(&self, url: &url::Url, emit: &mut dyn FnMut(&str, &str)) {
        if let Some(platform) = url.host_str().and_then(platform_of) {
            emit("video_platform", platform);
        }
    }
}

fn platform_of(host: &str) -> Option<&'static str> {
    let is_of = |known: &str| {
        host.strip_suffix(known).is_some_and(|before| before.is_empty() || before.ends_with('.'))
    };
    PLATFORMS.iter().find(|(known, _)| is_of(known)).map(|(_, platform)| *platform)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_platform_is_recognised_by_its_host_and_subdomains_only() {
        for (host, want) in [
            ("www.youtube.com", Some("youtube")),
            ("youtu.be", Some("youtube")),
            ("player.vimeo.com", Some("vimeo")),
            ("notyoutube.com", None),
            ("youtube.com.example.org", None),
            ("example.org", None),
            ("", None),
        ] {
            assert_eq!(platform_of(host), want, "{host}");
        }
    }
}
