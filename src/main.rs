//! The binary: everything is in the library's `cli`.

use std::process::ExitCode;

fn main() -> ExitCode {
    cellblock::cli::main(std::env::args_os())
}
