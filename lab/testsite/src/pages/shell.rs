//! The client-rendered site: a real Vite build of `web/react-shell`, embedded as built by
//! `make react-shell`.
//!
//! The build names its assets by their contents; the copies here have stable names. The requested
//! names are read from the HTML, so a rebuild changes no code.

/// HTML of every path of the site; it has no text.
pub(crate) const INDEX: &str = include_str!("react-shell/index.html");
const SCRIPT: &[u8] = include_bytes!("react-shell/app.js");
const STYLE: &[u8] = include_bytes!("react-shell/app.css");

/// Returns the asset at `path` with its content type, if the HTML names it.
pub(crate) fn asset(path: &str) -> Option<(&'static str, &'static [u8])> {
    if !path.starts_with("/assets/") || !INDEX.contains(&format!("\"{path}\"")) {
        return None;
    }
    if path.ends_with(".js") {
        Some(("text/javascript; charset=utf-8", SCRIPT))
    } else if path.ends_with(".css") {
        Some(("text/css; charset=utf-8", STYLE))
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_asset_of_the_shell_is_embedded() {
        let named: Vec<&str> =
            INDEX.split('"').filter(|part| part.starts_with("/assets/")).collect();
        assert_eq!(named.len(), 2, "a script and a style sheet: {named:?}");
        for path in named {
            let (_, bytes) = asset(path).expect("an embedded asset");
            assert!(bytes.len() > 100, "{path}");
        }
        assert!(asset("/assets/other.js").is_none());
    }

    #[test]
    fn the_shell_has_no_text_without_scripts() {
        assert!(INDEX.contains("<div id=\"root\"></div>"));
        assert!(INDEX.len() < 1024);
    }
}
