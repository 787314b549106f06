//! Attempts: one request by one fetcher for one URL. [`outcome`] owns how a request can end.

pub mod outcome;
