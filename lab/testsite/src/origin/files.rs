//! A directory of files as a site.
//!
//! Invariants: no path leads out of the directory, neither by `..` nor by a symbolic link.

use std::io;
use std::path::{Path, PathBuf};

use hyper::Response;
use hyper::header::{HeaderValue, LOCATION};
use tokio_util::io::ReaderStream;

use super::body::{Body, HTML, response, status, streamed};

/// Returns the file that `path` (with or without a query) names below `root`.
pub(super) async fn serve(root: &Path, path: &str) -> Response<Body> {
    match find(root, path).await {
        Ok(FilePath::File(file)) => match tokio::fs::File::open(&file).await {
            Ok(opened) => response(200, content_type(&file), streamed(ReaderStream::new(opened))),
            Err(_) => status(403),
        },
        Ok(FilePath::RedirectTo(location)) => {
            let mut moved = status(301);
            moved.headers_mut().insert(LOCATION, location);
            moved
        }
        Err(_) => status(404),
    }
}

enum FilePath {
    File(PathBuf),
    RedirectTo(HeaderValue),
}

async fn find(root: &Path, path: &str) -> io::Result<FilePath> {
    let path = path.split(['?', '#']).next().unwrap_or_default();
    let root = tokio::fs::canonicalize(root).await?;
    let relative = decoded(path).ok_or(io::ErrorKind::InvalidInput)?;
    let mut file = tokio::fs::canonicalize(root.join(relative.trim_start_matches('/'))).await?;
    if !file.starts_with(&root) {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    if tokio::fs::metadata(&file).await?.is_dir() {
        if !path.ends_with('/') {
            return HeaderValue::from_str(&format!("{path}/"))
                .map(FilePath::RedirectTo)
                .map_err(io::Error::other);
        }
        file = tokio::fs::canonicalize(file.join("index.html")).await?;
        if !file.starts_with(&root) {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
    }
    Ok(FilePath::File(file))
}

/// Returns a path with its percent encoding resolved, or `None` if the result is not UTF-8 or
/// contains a NUL.
fn decoded(path: &str) -> Option<String> {
    let mut out = Vec::with_capacity(path.len());
    let mut bytes = path.bytes();
    while let Some(byte) = bytes.next() {
        if byte == b'%' {
            let digits = [bytes.next()?, bytes.next()?];
            out.push(u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?);
        } else {
            out.push(byte);
        }
    }
    String::from_utf8(out).ok().filter(|path| !path.contains('\0'))
}

fn content_type(file: &Path) -> &'static str {
    let extension =
        file.extension().and_then(|e| e.to_str()).unwrap_or_default().to_ascii_lowercase();
    match extension.as_str() {
        "html" | "htm" => HTML,
        "css" => "text/css; charset=utf-8",
        "js" | "mjs" => "text/javascript; charset=utf-8",
        "json" => "application/json",
        "txt" | "md" => "text/plain; charset=utf-8",
        "xml" => "application/xml",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "gif" => "image/gif",
        "ico" => "image/x-icon",
        "pdf" => "application/pdf",
        "woff" => "font/woff",
        "woff2" => "font/woff2",
        "wasm" => "application/wasm",
        _ => "application/octet-stream",
    }
}
