//! Subcommands, exit codes and hints; the composition root that builds the rest and shuts it down in order.
