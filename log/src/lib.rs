//! The append-only record log of fetchwise.
