#!/usr/bin/env bash
# JupyterLab in the project's folder, with both kernels.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"
cd "$root"
options=()
# Jupyter refuses to run as root unless told to.
[ "$(id -u)" != 0 ] || options+=(--allow-root)
step "Starting JupyterLab (Ctrl-C ends it)"
exec "$venv/bin/jupyter" lab "${options[@]}" notebooks/quickstart.ipynb
