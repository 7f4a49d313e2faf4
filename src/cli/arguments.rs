//! The command line, as clap reads it. Help texts are here and in `docs/cli.md`, which a test keeps equal.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::config::Flavor;

/// A Jupyter kernel whose cells are Markdown: prose goes to a language model, fenced code runs in a
/// hardened container.
#[derive(Debug, Parser)]
#[command(name = "cellblock", version, propagate_version = true, max_term_width = 100, after_help = EXIT_CODES)]
pub(crate) struct Arguments {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

const EXIT_CODES: &str = "\
Exit codes:
  0  all is well
  1  it failed, or `doctor` found something that keeps kernels from working
  2  the command line is wrong
  3  the settings are wrong (a file, a variable or --set)";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Make the two kernels known to Jupyter: "Cellblock" and "Python (sandboxed)"
    Install(Location),
    /// Remove the two kernels from Jupyter
    Uninstall(Location),
    /// Check that everything kernels need is there; each finding comes with its remedy
    Doctor(DoctorOptions),
    /// Build the image that code runs in, and record it for the kernels
    Build(BuildOptions),
    /// Run a kernel for one client; started by Jupyter
    Kernel(KernelOptions),
    /// Show every setting, its value and where it comes from
    Config(ConfigOptions),
    /// Print a completion script for a shell
    Completions {
        /// For which shell
        shell: clap_complete::Shell,
    },
}

/// Where kernelspecs go.
#[derive(Debug, Args)]
#[group(multiple = false)]
pub(crate) struct Location {
    /// For this user (the default)
    #[arg(long)]
    pub user: bool,
    /// For the active Python environment (venv or conda), else that of `jupyter` or `python3` on the PATH
    #[arg(long)]
    pub sys_prefix: bool,
    /// For the environment in this directory: PREFIX/share/jupyter/kernels
    #[arg(long, value_name = "PREFIX")]
    pub prefix: Option<PathBuf>,
}

/// Settings given on the command line.
#[derive(Debug, Args)]
pub(crate) struct SetOptions {
    /// Set SECTION.KEY=VALUE for this run, above files and variables (may be given several times)
    #[arg(long, value_name = "SECTION.KEY=VALUE")]
    pub set: Vec<String>,
}

/// Which of the two kernels.
#[derive(Debug, Args)]
pub(crate) struct FlavorOptions {
    /// Which of the two kernels: their built-in settings differ
    #[arg(long, value_enum, default_value_t = FlavorArgument::Markdown)]
    pub flavor: FlavorArgument,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum FlavorArgument {
    /// Cells are Markdown
    Markdown,
    /// Cells are Python unless they begin with a fence
    Python,
}

impl From<FlavorArgument> for Flavor {
    fn from(flavor: FlavorArgument) -> Self {
        match flavor {
            FlavorArgument::Markdown => Flavor::Markdown,
            FlavorArgument::Python => Flavor::Python,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct KernelOptions {
    /// The connection file that Jupyter wrote
    #[arg(short = 'f', long, value_name = "CONNECTION_FILE")]
    pub connection_file: PathBuf,
    #[command(flatten)]
    pub flavor: FlavorOptions,
    #[command(flatten)]
    pub set: SetOptions,
}

#[derive(Debug, Args)]
pub(crate) struct ConfigOptions {
    /// As JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub flavor: FlavorOptions,
    #[command(flatten)]
    pub set: SetOptions,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Warnings (a model that is not configured, an image that is not built yet, an old runtime) do not \
                        change the exit code: kernels work. Problems end with 1."
)]
pub(crate) struct DoctorOptions {
    #[command(flatten)]
    pub flavor: FlavorOptions,
    #[command(flatten)]
    pub set: SetOptions,
}

#[derive(Debug, Args)]
pub(crate) struct BuildOptions {
    /// Build on this image, which must have Python 3; recorded for later builds
    #[arg(long, value_name = "IMAGE")]
    pub base_image: Option<String>,
    /// Name the result; a name made from its contents otherwise
    #[arg(long, value_name = "NAME")]
    pub tag: Option<String>,
    /// Build every step again, also those that have not changed
    #[arg(long)]
    pub fresh: bool,
    #[command(flatten)]
    pub set: SetOptions,
}
