//! SIGHUP: the rules of `--rules` are read again, while pages go on being read with the old ones.

use std::path::PathBuf;
use std::sync::Arc;

use fetchwise::detect::Detector;

/// Reads `rules` again whenever the process gets SIGHUP. Called within a runtime.
#[cfg(unix)]
pub(crate) fn reload(detector: Arc<Detector>, rules: PathBuf) -> std::io::Result<()> {
    use crate::out::note;

    let mut hangups = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::hangup())?;
    tokio::spawn(async move {
        while hangups.recv().await.is_some() {
            match detector.reload_file(&rules) {
                Ok(()) => note(format_args!("read {} again: {} rules", rules.display(), detector.rule_count())),
                Err(error) => note(format_args!("the rules stay as they are: {error}")),
            }
        }
    });
    Ok(())
}

/// There is no SIGHUP here.
#[cfg(not(unix))]
pub(crate) fn reload(_detector: Arc<Detector>, _rules: PathBuf) -> std::io::Result<()> {
    Ok(())
}
