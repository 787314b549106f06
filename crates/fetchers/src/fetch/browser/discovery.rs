//! The search for Chromium on this machine: a given path, the environment, `PATH`, or the place
//! where macOS keeps it.

use std::env;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

/// Environment variables that name the program, in order of precedence.
pub const ENVIRONMENT: [&str; 2] = ["FETCHWISE_CHROMIUM", "CHROME"];

/// Names to look for in `PATH`, in this order.
pub const NAMES: [&str; 5] =
    ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome"];

#[cfg(target_os = "macos")]
const APPLICATIONS: [&str; 2] = [
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
];
#[cfg(not(target_os = "macos"))]
const APPLICATIONS: [&str; 0] = [];

/// Chromium was not found. The text says where it was searched and how to install it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BrowserMissing {
    /// The path that was given, and its source; if set, nothing else was tried.
    pub named: Option<(String, PathBuf)>,
}

impl fmt::Display for BrowserMissing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.named {
            Some((by, path)) => {
                write!(f, "no Chromium: {by} names {}, which is not executable", path.display())?;
            }
            None => write!(f, "no Chromium: none of {} is in PATH", NAMES.join(", "))?,
        }
        f.write_str(
            "\n  Debian, Ubuntu:  apt install chromium\n  Fedora:          dnf install chromium\n  macOS:           \
             brew install --cask chromium\n  or name one:     --chromium PATH, or FETCHWISE_CHROMIUM=PATH in the \
             environment",
        )
    }
}

impl std::error::Error for BrowserMissing {}

/// Returns the Chromium to run: `explicit` if given, else `FETCHWISE_CHROMIUM`, else `CHROME`, else
/// the first match in `PATH`, else the place where macOS keeps applications. A given path that is
/// not executable is an error and never skipped.
pub(super) fn find(explicit: Option<&Path>) -> Result<PathBuf, BrowserMissing> {
    find_in(explicit, |name| env::var_os(name))
}

fn find_in(
    explicit: Option<&Path>,
    var: impl Fn(&str) -> Option<OsString>,
) -> Result<PathBuf, BrowserMissing> {
    if let Some(path) = explicit {
        return named("--chromium", path, &var);
    }
    for name in ENVIRONMENT {
        if let Some(value) = var(name).filter(|v| !v.is_empty()) {
            return named(name, Path::new(&value), &var);
        }
    }
    NAMES
        .iter()
        .find_map(|name| in_path(name, &var))
        .or_else(|| APPLICATIONS.iter().map(PathBuf::from).find(|path| runs(path)))
        .ok_or(BrowserMissing { named: None })
}

/// Returns a path as it is, or looks up a bare name in `PATH`.
fn named(
    by: &str,
    path: &Path,
    var: &impl Fn(&str) -> Option<OsString>,
) -> Result<PathBuf, BrowserMissing> {
    let bare = path.components().count() == 1 && !path.is_absolute();
    let found = if runs(path) {
        Some(path.to_owned())
    } else if bare {
        path.to_str().and_then(|name| in_path(name, var))
    } else {
        None
    };
    found.ok_or_else(|| BrowserMissing { named: Some((by.to_owned(), path.to_owned())) })
}

fn in_path(name: &str, var: &impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let file = if cfg!(windows) { format!("{name}.exe") } else { name.to_owned() };
    env::split_paths(&var("PATH")?)
        .filter(|dir| !dir.as_os_str().is_empty())
        .map(|dir| dir.join(&file))
        .find(|p| runs(p))
}

#[cfg(unix)]
fn runs(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    path.metadata().is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
}

#[cfg(not(unix))]
fn runs(path: &Path) -> bool {
    path.is_file()
}

#[cfg(all(test, unix))]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    fn program(dir: &Path, name: &str, mode: u32) -> PathBuf {
        let path = dir.join(name);
        fs::write(&path, "#!/bin/sh\n").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path
    }

    fn environment(pairs: &[(&'static str, &Path)]) -> impl Fn(&str) -> Option<OsString> + use<> {
        let pairs: Vec<_> = pairs.iter().map(|(k, v)| (*k, v.as_os_str().to_owned())).collect();
        move |name| pairs.iter().find(|(k, _)| *k == name).map(|(_, v)| v.clone())
    }

    #[test]
    fn a_given_path_precedes_the_environment_which_precedes_path() {
        let dir = tempfile::tempdir().unwrap();
        let [a, b, c, d] = ["a", "b", "c", "google-chrome"].map(|n| program(dir.path(), n, 0o755));
        let var = environment(&[("FETCHWISE_CHROMIUM", &b), ("CHROME", &c), ("PATH", dir.path())]);
        assert_eq!(find_in(Some(&a), &var).unwrap(), a);
        assert_eq!(find_in(None, &var).unwrap(), b);
        assert_eq!(find_in(None, environment(&[("CHROME", &c), ("PATH", dir.path())])).unwrap(), c);
        assert_eq!(find_in(None, environment(&[("PATH", dir.path())])).unwrap(), d);
        assert_eq!(find_in(Some(Path::new("a")), environment(&[("PATH", dir.path())])).unwrap(), a);
    }

    #[test]
    fn an_invalid_given_path_is_an_error_that_says_how_to_install() {
        let dir = tempfile::tempdir().unwrap();
        program(dir.path(), "chromium", 0o755);
        let missing = find_in(Some(&dir.path().join("gone")), environment(&[("PATH", dir.path())]))
            .unwrap_err();
        let text = missing.to_string();
        for part in [
            "gone",
            "--chromium",
            "apt install chromium",
            "dnf install",
            "brew install",
            "FETCHWISE_CHROMIUM",
        ] {
            assert!(text.contains(part), "{part:?} is not in {text:?}");
        }
    }

    #[cfg(not(target_os = "macos"))]
    #[test]
    fn a_file_that_is_not_executable_is_not_a_browser() {
        let dir = tempfile::tempdir().unwrap();
        program(dir.path(), "chromium", 0o644);
        assert_eq!(
            find_in(None, environment(&[("PATH", dir.path())])),
            Err(BrowserMissing { named: None })
        );
        assert_eq!(find_in(None, environment(&[])), Err(BrowserMissing { named: None }));
    }
}
