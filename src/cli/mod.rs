//! Subcommands, exit codes and hints; the composition root that builds the rest and shuts it down in order.
//!
//! May import everything. Nothing else of ours writes to the terminal or decides on an exit code.
//!
//! | module | what |
//! | --- | --- |
//! | `arguments` | the command line, as clap reads it |
//! | `exit` | exit codes, errors with hints, output that survives a closed pipe |
//! | `show` | `cellblock config` |
//! | `build` | `cellblock build` |
//! | `prune` | `cellblock prune` |
//! | `cp` | `cellblock cp` |
//! | `trust` | `cellblock trust` |
//! | `replay` | `cellblock replay` |
//! | `compose` | settings and environment in the terms of the parts that need them |
//! | `doctor` | `cellblock doctor` |
//! | `kernelspec` | the two kernelspecs: their files, where Jupyter looks, writing and removing them |
//! | `kernel` | `cellblock kernel`: the parts put together, and ended in order |
//! | `install` | `cellblock install` and `cellblock uninstall` |
//!
//! To add a subcommand: a variant in `arguments`, a module with its `run`, an arm in [`main`]; then renew
//! `docs/cli.md` as `tests/it/cli.rs` says.

mod arguments;
mod build;
mod compose;
mod cp;
mod doctor;
mod exit;
mod install;
mod kernel;
mod kernelspec;
mod prune;
mod replay;
mod show;
mod trust;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use crate::config::{Environment, Inputs};
use crate::sandbox::reaper;
use arguments::{Arguments, Command};
use compose::Composed;
use exit::{CliError, emit};

/// Runs the command line to its end; what to hand to the operating system.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    // Before anything else is touched: a reaper sits beside every kernel, and every page counts twice.
    if arguments.len() == 2 && arguments[1] == reaper::COMMAND {
        return reaper::main(std::io::stdin());
    }
    let arguments = match Arguments::try_parse_from(arguments) {
        Ok(arguments) => arguments,
        Err(error) => {
            // Help and version come this way too. A closed pipe is nobody's mistake.
            let _ = error.print();
            return exit::code_of_usage(&error);
        }
    };
    let environment = Environment::of_process();
    match run(arguments, environment) {
        Ok(code) => code,
        Err(error) => error.report(),
    }
}

fn run(arguments: Arguments, environment: Environment) -> Result<ExitCode, CliError> {
    match arguments.command {
        Command::Install(at) => install::install(&at, &environment),
        Command::Uninstall(at) => install::uninstall(&at, &environment),
        Command::Doctor(options) => doctor::run(&options, environment),
        Command::Build(options) => build::run(&options, &environment),
        Command::Prune(options) => prune::run(&options, &environment),
        Command::Cp(options) => cp::run(&options, &environment),
        Command::Kernel(options) => kernel::run(&options, &environment),
        Command::Config(options) => show::run(&options, environment),
        Command::Trust(options) => trust::run(&options, environment),
        Command::Replay(options) => replay::run(&options),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Arguments::command(), "cellblock", &mut script);
            emit(&String::from_utf8_lossy(&script))?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// What a kernel started in the working directory would work with.
fn load(
    flavor: arguments::FlavorArgument,
    set: &[String],
    environment: Environment,
) -> Result<Composed, CliError> {
    use anyhow::Context;
    let directory = Environment::working_directory()
        .context("the working directory can't be found; change to one that exists")?;
    let inputs = Inputs { flavor: flavor.into(), directory, environment, flags: set.to_vec() };
    Ok(Composed::read(&inputs))
}
