//! The `fetchwise` program: everything is in [`fetchwise::cli`].

use std::process::ExitCode;

fn main() -> ExitCode {
    fetchwise::cli::main()
}
