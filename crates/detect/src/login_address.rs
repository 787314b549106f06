//! Log-in addresses: whether a redirect led from a page to a place where its visitor has to log in.
//!
//! Must not know: what the page says.

use fetchwise_types::response::Page;

/// Words of hosts and paths whose pages ask for a log-in.
const WORDS: [&str; 36] = [
    "login",
    "signin",
    "logon",
    "sso",
    "auth",
    "oauth",
    "oauth2",
    "authorize",
    "authenticate",
    "authentication",
    "saml",
    "saml2",
    "shibboleth",
    "cas",
    "idp",
    "passport",
    "openid",
    "signon",
    "connexion",
    "anmelden",
    "anmeldung",
    "accedi",
    "entrar",
    "acceder",
    "inloggen",
    "logowanie",
    "prijava",
    "logga",
    "kirjaudu",
    "giris",
    "einloggen",
    "identification",
    "wplogin",
    "userlogin",
    "memberlogin",
    "adfs",
];
/// Words that mean the same as two: `log-in`, `sign_in`, `sessions/new`.
const PAIRS: [(&str, &str); 6] = [
    ("log", "in"),
    ("sign", "in"),
    ("log", "on"),
    ("sign", "on"),
    ("session", "new"),
    ("sessions", "new"),
];

/// Returns whether a page came from a log-in address although another page was asked for.
pub(crate) fn is_led_to(page: &Page<'_>) -> bool {
    match (page.url, page.final_url) {
        (Some(asked), Some(got)) => asked != got && is_login(got) && !is_login(asked),
        _ => false,
    }
}

/// Returns whether a URL, absolute or relative, is a log-in address by its host or path.
pub(crate) fn is_login(url: &str) -> bool {
    let place = url.split(['?', '#']).next().unwrap_or_default();
    let mut before = "";
    for word in place.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty()) {
        let is = |known: &str| word.eq_ignore_ascii_case(known);
        let is_pair =
            PAIRS.iter().any(|(first, second)| before.eq_ignore_ascii_case(first) && is(second));
        if is_pair || WORDS.into_iter().any(is) {
            return true;
        }
        before = word;
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_of_the_host_or_the_path_makes_a_log_in_address() {
        for url in [
            "https://login.leaf.example/",
            "https://leaf.example/users/sign_in?next=%2Fa",
            "https://leaf.example/wp-login.php",
            "https://idp.leaf.example/idp/profile/SAML2/Redirect/SSO",
            "/account/Log-In",
            "https://leaf.example/session/new",
        ] {
            assert!(is_login(url), "{url}");
        }
        for url in [
            "https://leaf.example/authors/7",
            "https://leaf.example/?from=/login",
            "/blog/in-the-woods",
            "/cast",
        ] {
            assert!(!is_login(url), "{url}");
        }
    }

    #[test]
    fn who_asks_for_the_log_in_gets_it() {
        let led = |asked, got| {
            is_led_to(&Page { url: Some(asked), final_url: Some(got), ..Page::default() })
        };
        assert!(led("https://leaf.example/a", "https://leaf.example/login?next=/a"));
        assert!(!led("https://leaf.example/login", "https://leaf.example/login/"));
        assert!(!led("https://leaf.example/a", "https://leaf.example/b"));
    }
}
