//! The agent: the https origin under which the keys are published.
//!
//! Must not know: keys.

use url::Url;

/// Path of the key directory on the agent's origin.
pub const WELL_KNOWN: &str = "/.well-known/http-message-signatures-directory";

/// An https origin that publishes an agent's keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Agent {
    url: Url,
    origin: String,
    directory: String,
}

/// The reason why a text names no agent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "invalid agent {given:?}: expected an https origin without a path, such as https://bot.example"
)]
pub struct BadAgent {
    given: String,
}

impl Agent {
    /// Reads the agent's URL.
    ///
    /// # Errors
    /// [`BadAgent`] unless it is an https origin.
    pub fn parse(text: &str) -> Result<Self, BadAgent> {
        let bad = || BadAgent { given: text.to_owned() };
        let url = Url::parse(text).map_err(|_| bad())?;
        let is_origin = url.scheme() == "https"
            && url.has_host()
            && url.path() == "/"
            && url.query().is_none()
            && url.fragment().is_none()
            && url.username().is_empty()
            && url.password().is_none();
        if !is_origin {
            return Err(bad());
        }
        let origin = url.origin().ascii_serialization();
        let directory = format!("{origin}{WELL_KNOWN}");
        Ok(Self { url, origin, directory })
    }

    /// Returns the origin: `https://bot.example`.
    pub fn origin(&self) -> &str {
        &self.origin
    }

    /// Returns host and port as a request names them: `bot.example`.
    pub fn authority(&self) -> String {
        authority_of(&self.url)
    }

    /// Returns the URL of the key directory.
    pub fn directory_url(&self) -> &str {
        &self.directory
    }

    /// Returns the URL of a path on the origin.
    pub fn url_of(&self, path: &str) -> String {
        format!("{}{path}", self.origin)
    }
}

/// Returns the `@authority` of a URL: host in lower case, port unless it is the scheme's.
pub(crate) fn authority_of(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_is_an_https_origin() {
        let agent = Agent::parse("https://Bot.Example:443/").unwrap();
        assert_eq!((agent.origin(), &*agent.authority()), ("https://bot.example", "bot.example"));
        assert_eq!(
            Agent::parse("https://bot.example:8443").unwrap().authority(),
            "bot.example:8443"
        );
        for bad in [
            "http://bot.example",
            "bot.example",
            "https://bot.example/a",
            "https://u@bot.example",
            "https://b/?q",
        ] {
            assert!(
                Agent::parse(bad).unwrap_err().to_string().contains("https://bot.example"),
                "{bad}"
            );
        }
    }
}
