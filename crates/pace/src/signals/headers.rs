//! Parser of `RateLimit`, `RateLimit-Policy` and their older relatives.
//!
//! It reads the structured fields of the current draft (`"default";q=100;w=60`,
//! `"default";r=9;t=20`), the older form of one header with commas
//! (`limit=100, remaining=9, reset=20`, policy `100;w=60`), one header each
//! (`RateLimit-Limit: 100, 100;w=60`), and `X-RateLimit-*`. Invalid headers are ignored.
//!
//! Must not know: the effect of the limit.

use fetchwise_types::response::Header;
use fetchwise_types::time::Timestamp;

/// An `X-RateLimit-Reset` above this is a point in time, not a number of seconds.
const EPOCH_FROM: f64 = 1e8;

/// A later reset is ignored: a month is no crawl.
pub(crate) const MAX_RESET_S: f64 = 86_400.0;

/// Rate limit that a host declares in its headers.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RateLimit {
    /// Requests allowed within [`RateLimit::window_s`].
    pub quota: Option<f64>,
    /// The window, in seconds.
    pub window_s: Option<f64>,
    /// Requests left.
    pub remaining: Option<f64>,
    /// Seconds until the reset.
    pub reset_s: Option<f64>,
}

impl RateLimit {
    /// Returns the limit in `headers`, if there is one.
    ///
    /// ```
    /// use fetchwise_pace::RateLimit;
    /// use fetchwise_pace::response::Header;
    /// use fetchwise_pace::time::Timestamp;
    ///
    /// let headers = [Header::new("RateLimit-Policy", "\"a\";q=100;w=60"), Header::new("RateLimit", "\"a\";r=9;t=20")];
    /// let limit = RateLimit::read(&headers, Timestamp::now()).unwrap();
    /// assert_eq!((limit.quota, limit.window_s, limit.remaining, limit.reset_s), (Some(100.0), Some(60.0), Some(9.0), Some(20.0)));
    /// ```
    pub fn read(headers: &[Header], now: Timestamp) -> Option<Self> {
        let mut limit = Self::default();
        for header in headers {
            let (name, value) = (&*header.name, &*header.value);
            if name.eq_ignore_ascii_case("ratelimit-policy") {
                limit.read_policies(value);
            } else if name.eq_ignore_ascii_case("ratelimit") {
                limit.read_state(value);
            } else if let Some(what) =
                tail(name, "ratelimit-").or_else(|| tail(name, "x-ratelimit-"))
            {
                limit.read_single(what, value, now);
            } else if let Some(what) = tail(name, "x-rate-limit-") {
                limit.read_single(what, value, now);
            }
        }
        (limit != Self::default()).then_some(limit)
    }

    /// Reads a list of policies; the one with the lowest rate counts.
    fn read_policies(&mut self, value: &str) {
        for item in value.split(',') {
            let quota =
                parameter(item, "q").or_else(|| number(item.split(';').next().unwrap_or_default()));
            self.offer(quota, parameter(item, "w"));
        }
    }

    fn offer(&mut self, quota: Option<f64>, window: Option<f64>) {
        let (Some(quota), Some(window)) = (quota, window.filter(|window| *window > 0.0)) else {
            return;
        };
        let known = self.quota.zip(self.window_s).map(|(quota, window)| quota / window);
        if known.is_none_or(|known| quota / window < known) {
            (self.quota, self.window_s) = (Some(quota), Some(window));
        }
    }

    /// Reads `"a";r=9;t=20`, of which the item with the fewest requests left counts, or
    /// `limit=100, remaining=9, reset=20`.
    fn read_state(&mut self, value: &str) {
        let mut limit = None;
        for item in value.split(',') {
            if let Some(left) = parameter(item, "r") {
                if self.remaining.is_none_or(|known| left < known) {
                    (self.remaining, self.reset_s) =
                        (Some(left), parameter(item, "t").or(self.reset_s));
                }
                continue;
            }
            limit = parameter(item, "limit").or(limit);
            self.remaining = parameter(item, "remaining").or(self.remaining);
            self.reset_s = parameter(item, "reset").or(self.reset_s);
        }
        if self.quota.is_none() {
            self.quota = limit;
        }
    }

    fn read_single(&mut self, what: &str, value: &str, now: Timestamp) {
        match what.to_ascii_lowercase().as_str() {
            // `100, 100;w=60`: the limit, then policies.
            "limit" => {
                value.split(',').for_each(|item| {
                    self.offer(
                        number(item.split(';').next().unwrap_or_default()),
                        parameter(item, "w"),
                    )
                });
                if self.quota.is_none() {
                    self.quota = number(value.split(',').next().unwrap_or_default());
                }
            }
            "remaining" => self.remaining = self.remaining.or(number(value)),
            "reset" => {
                let seconds = number(value).map(|reset| match reset {
                    _ if reset < EPOCH_FROM => reset,
                    // Some servers send milliseconds.
                    _ if reset > EPOCH_FROM * 1000.0 => {
                        reset / 1000.0 - now.as_millis() as f64 / 1000.0
                    }
                    _ => reset - now.as_millis() as f64 / 1000.0,
                });
                self.reset_s = self
                    .reset_s
                    .or(seconds.filter(|seconds| (0.0..=MAX_RESET_S).contains(seconds)));
            }
            _ => {}
        }
    }
}

fn tail<'n>(name: &'n str, head: &str) -> Option<&'n str> {
    name.get(..head.len())
        .filter(|front| front.eq_ignore_ascii_case(head))
        .and_then(|_| name.get(head.len()..))
}

/// Returns the value of `name=...` in the parameters of an item.
fn parameter(item: &str, name: &str) -> Option<f64> {
    item.split(';').find_map(|part| {
        let (key, value) = part.split_once('=')?;
        key.trim().eq_ignore_ascii_case(name).then(|| number(value))?
    })
}

/// Parses a number that is neither negative nor absurdly large.
fn number(text: &str) -> Option<f64> {
    let text = text.trim().trim_matches('"');
    let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    plain.then(|| text.parse().ok())?.filter(|number: &f64| *number < 1e15)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(headers: &[(&str, &str)]) -> Option<[Option<f64>; 4]> {
        let headers: Vec<Header> =
            headers.iter().map(|(name, value)| Header::new(*name, *value)).collect();
        let limit = RateLimit::read(&headers, Timestamp::from_millis(1_790_000_000_000))?;
        Some([limit.quota, limit.window_s, limit.remaining, limit.reset_s])
    }

    #[test]
    fn all_common_forms_are_read() {
        let all = Some([Some(100.0), Some(60.0), Some(9.0), Some(20.0)]);
        assert_eq!(
            read(&[
                ("RateLimit-Policy", "\"default\";q=100;w=60"),
                ("RateLimit", "\"default\";r=9;t=20")
            ]),
            all
        );
        assert_eq!(
            read(&[
                ("ratelimit-policy", "100;w=60"),
                ("ratelimit", "limit=100, remaining=9, reset=20")
            ]),
            all
        );
        assert_eq!(
            read(&[
                ("RateLimit-Limit", "100, 100;w=60"),
                ("RateLimit-Remaining", "9"),
                ("RateLimit-Reset", "20")
            ]),
            all
        );
        let x = [Some(100.0), None, Some(9.0), Some(20.0)];
        assert_eq!(
            read(&[
                ("X-RateLimit-Limit", "100"),
                ("X-RateLimit-Remaining", "9"),
                ("X-RateLimit-Reset", "1790000020")
            ]),
            Some(x)
        );
        assert_eq!(
            read(&[
                ("X-Rate-Limit-Limit", "100"),
                ("X-Rate-Limit-Remaining", "9"),
                ("X-Rate-Limit-Reset", "20")
            ]),
            Some(x)
        );
    }

    #[test]
    fn the_strictest_of_several_policies_counts() {
        let limit =
            read(&[("RateLimit-Policy", "\"burst\";q=100;w=10, \"hour\";q=1000;w=3600")]).unwrap();
        assert_eq!((limit[0], limit[1]), (Some(1000.0), Some(3600.0)));
    }

    #[test]
    fn invalid_headers_are_ignored() {
        assert_eq!(read(&[("Server", "nginx")]), None);
        assert_eq!(
            read(&[
                ("RateLimit-Policy", "soon"),
                ("RateLimit", "r=;t=-3"),
                ("X-RateLimit-Reset", "99999999999999")
            ]),
            None
        );
        assert_eq!(read(&[("RateLimit-Policy", "10;w=0")]), None);
    }
}
