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
    /// Build the image that code runs in and record it for the kernels, or one container's
    Build(BuildOptions),
    /// Remove images that Cellblock made and nothing uses any more
    Prune(PruneOptions),
    /// Copy files between this machine and the container of a kernel that runs
    Cp(CpOptions),
    /// Run a kernel for one client; started by Jupyter
    Kernel(KernelOptions),
    /// Show every setting, its value and where it comes from
    Config(ConfigOptions),
    /// Allow what a project's files ask for, until they change
    Trust(TrustOptions),
    /// Look through recorded replies (model.replay), and take out what no cell uses any more
    Replay(ReplayOptions),
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
#[command(
    after_help = "What has another name besides Cellblock's own, what a container (of any kernel, running or not), a \
                        checkpoint or a definition that holds in this directory needs, and what such an image was \
                        built on stays. An image of another project's definition counts as unused once no kernel of \
                        yours has started it for so long; it is built again when one does."
)]
pub(crate) struct PruneOptions {
    /// Only say what would be removed
    #[arg(long)]
    pub dry_run: bool,
    /// For how many days nobody must have used an image
    #[arg(long, value_name = "N", default_value_t = 30)]
    pub days: u64,
    /// Also those that were used today
    #[arg(long, conflicts_with = "days")]
    pub all: bool,
    #[command(flatten)]
    pub set: SetOptions,
}

#[derive(Debug, Args)]
#[command(
    after_help = "The side in the container is CONTAINER:PATH, or :PATH when only one runs; PATH is relative to \
                        /workspace. Folders are copied whole, patterns (*, ?, [...]) in quotes. Links are copied as \
                        links; what would lead out of the destination is left out, listed, and makes the exit code 1."
)]
pub(crate) struct CpOptions {
    /// What to copy
    #[arg(value_name = "SOURCE")]
    pub source: String,
    /// Where to: a folder that exists, or the new name
    #[arg(value_name = "DESTINATION")]
    pub destination: String,
    /// Which kernel's container: the beginning of its id
    #[arg(long, value_name = "ID")]
    pub kernel: Option<String>,
    #[command(flatten)]
    pub set: SetOptions,
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
pub(crate) struct TrustOptions {
    /// The notebook's directory; the project's files are looked for there and above
    #[arg(value_name = "DIR", default_value = ".", conflicts_with = "list")]
    pub directory: PathBuf,
    /// Trust it without asking
    #[arg(long, conflicts_with_all = ["list", "revoke"])]
    pub yes: bool,
    /// Show what is trusted, and whether it is still the same
    #[arg(long, conflicts_with = "revoke")]
    pub list: bool,
    /// Trust it no more
    #[arg(long)]
    pub revoke: bool,
}

#[derive(Debug, Args)]
#[command(
    after_help = "A recording is NAME.replies.jsonl beside NAME.ipynb, or replies.jsonl for every notebook of its folder. \
                        Without a path, those of the working directory."
)]
pub(crate) struct ReplayOptions {
    /// A notebook, or the file of a recording
    #[arg(value_name = "NOTEBOOK|FILE")]
    pub path: Option<PathBuf>,
    /// Take out replies that no cell of the notebook uses, that were recorded anew, and lines that are no replies
    #[arg(long, conflicts_with = "list")]
    pub prune: bool,
    /// List the replies (the default): line, whether a cell uses it, model, first words of the prompt
    #[arg(long)]
    pub list: bool,
}

#[derive(Debug, Args)]
pub(crate) struct BuildOptions {
    /// The container whose image to build, as a registry names it; the built-in image otherwise
    #[arg(value_name = "NAME", conflicts_with_all = ["base_image", "tag"])]
    pub name: Option<String>,
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
