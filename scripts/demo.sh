#!/usr/bin/env bash
# Executes the quickstart notebook through nbclient: a real model, real containers.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"
cd "$root"

step "Executing notebooks/quickstart.ipynb (prose goes to the local model, code to the sandbox)"
mkdir -p notebooks/executed
CELLBLOCK_MODEL__NAME="${CELLBLOCK_MODEL__NAME:-local}" \
  "$venv/bin/python" scripts/execute.py notebooks/quickstart.ipynb notebooks/executed/quickstart.ipynb
cat >&2 <<TEXT

    The executed notebook:  notebooks/executed/quickstart.ipynb
    Open it in JupyterLab:  make start     (then open notebooks/executed/quickstart.ipynb)
    Is all well?            PATH=.venv/bin:\$PATH target/release/cellblock doctor
TEXT
