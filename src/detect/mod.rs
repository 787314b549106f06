//! Reading a response: blocked, SPA shell, empty, or content.
