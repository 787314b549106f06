//! Import and export of attempts as JSON lines, in batches, each on another thread. `transfer.js`
//! builds the package's exports on it.
//!
//! Invariants: the amount of data that was read and not yet taken is bounded, in both directions.

use std::path::PathBuf;
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

use fetchwise::journal::Journal as Log;
use napi::bindgen_prelude::{AsyncTask, ClassInstance, Either, External};
use napi_derive::napi;

use crate::attempt::Attempt;
use crate::build_selector::Core;
use crate::errors::Failure;
use crate::journal::{Journal, Shared};
use crate::selector::Selector;
use crate::thread_pool::{Work, promise};
use fetchwise_bindings_core::jsonl::{self, Import as Lines, Item, Summary};

/// Pieces of text that may wait to be written.
const AHEAD: usize = 4;

/// A line that could not be imported.
#[napi(object)]
pub struct ImportError {
    /// The line number, from 1.
    pub line: f64,
    /// The reason.
    pub error: String,
}

/// The result of an import.
#[napi(object)]
pub struct Imported {
    /// Lines that were not blank.
    pub lines: f64,
    /// Attempts that were added to the journal.
    pub imported: f64,
    /// Attempts that the journal already had.
    pub duplicates: f64,
    /// Lines that could not be imported.
    pub failed: f64,
    /// Attempts whose time was in the future and was set to now.
    pub clamped: f64,
    /// Names of unknown fields.
    pub unknown_fields: Vec<String>,
    /// The first thousand lines that could not be imported.
    pub errors: Vec<ImportError>,
}

impl From<Summary> for Imported {
    fn from(of: Summary) -> Self {
        let error = |(line, error): (u64, String)| ImportError { line: line as f64, error };
        Self {
            lines: of.lines as f64,
            imported: of.imported as f64,
            duplicates: of.duplicates as f64,
            failed: of.failed as f64,
            clamped: of.clamped as f64,
            unknown_fields: of.unknown_fields.into_iter().collect(),
            errors: of.errors.into_iter().map(error).collect(),
        }
    }
}

/// An import in progress.
pub struct Import {
    log: Arc<Shared>,
    core: Option<Arc<Core>>,
    state: Arc<Mutex<Option<Lines>>>,
}

/// Begins an import.
#[napi(catch_unwind, skip_typescript, js_name = "_importInto")]
pub fn import_into(
    journal: &Journal,
    selector: Option<ClassInstance<'_, Selector>>,
) -> External<Import> {
    let core = selector.map(|selector| Arc::clone(&selector.core));
    External::new(Import { log: Arc::clone(&journal.shared), core, state: Arc::default() })
}

/// Imports the next items; resolves to the result of all items so far.
#[napi(catch_unwind, skip_typescript, js_name = "_importNext")]
pub fn import_next(
    import: &External<Import>,
    batch: Vec<Either<String, ClassInstance<'_, Attempt>>>,
) -> AsyncTask<Work<Summary, Imported>> {
    let (log, core, state) =
        (Arc::clone(&import.log), import.core.clone(), Arc::clone(&import.state));
    let item = |item: Either<String, ClassInstance<'_, Attempt>>| match item {
        Either::A(line) => Item::Text(line),
        Either::B(attempt) => Item::Made(Box::new(attempt.kept.clone())),
    };
    let batch: Vec<Item> = batch.into_iter().map(item).collect();
    let work = move || {
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        let import = match state.as_mut() {
            Some(import) => import,
            None => {
                log.wait(Log::settled)?;
                state.insert(Lines::begin(&log.dir)?)
            }
        };
        log.with(|log| import.take(batch, log, core.as_ref().map(|core| &core.kept)))??;
        Ok(import.summary.clone())
    };
    promise(work, Imported::from)
}

/// The next output of an export.
enum Piece {
    Text(String),
    End(Result<u64, Failure>),
}

/// An export in progress, on a separate thread, which waits for its reader.
pub struct Export {
    pieces: Arc<Mutex<Receiver<Piece>>>,
}

/// Begins an export.
#[napi(catch_unwind, skip_typescript, js_name = "_exportFrom")]
pub fn export_from(journal: Either<ClassInstance<'_, Journal>, String>) -> External<Export> {
    let (log, dir) = match journal {
        Either::A(journal) => (Some(Arc::clone(&journal.shared)), journal.shared.dir.clone()),
        Either::B(dir) => (None, PathBuf::from(dir)),
    };
    let (told, pieces) = sync_channel(AHEAD);
    // The thread ends when the reader is gone, because then it cannot send anything.
    std::thread::spawn(move || {
        let export = || -> Result<u64, Failure> {
            log.map_or(Ok(()), |log| log.wait(Log::settled))?;
            let write = |text: &str| told.send(Piece::Text(text.to_owned()));
            jsonl::export(&dir, write)?
                .map_err(|_| Failure::misuse("the reader of the export is gone"))
        };
        let end = Piece::End(export());
        let _ = told.send(end);
    });
    External::new(Export { pieces: Arc::new(Mutex::new(pieces)) })
}

/// Resolves to the next lines or, at the end, to their number.
#[napi(catch_unwind, skip_typescript, js_name = "_exportNext")]
pub fn export_next(
    export: &External<Export>,
) -> AsyncTask<Work<Either<String, f64>, Either<String, f64>>> {
    let pieces = Arc::clone(&export.pieces);
    let work = move || {
        let pieces = pieces.lock().unwrap_or_else(PoisonError::into_inner);
        match pieces.recv() {
            Ok(Piece::Text(text)) => Ok(Either::A(text)),
            Ok(Piece::End(count)) => Ok(Either::B(count? as f64)),
            // The thread ended without a result.
            Err(_) => Err(Failure::log("defect of fetchwise: it panicked")),
        }
    };
    promise(work, |piece| piece)
}
