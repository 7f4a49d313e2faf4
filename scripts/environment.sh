#!/usr/bin/env bash
# Makes the project-local Jupyter environment in .venv from a pinned list (argument 1) and installs our kernelspecs
# into it. Does nothing that is done already.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"
list="$root/${1:?the list of packages}"
bin="$root/target/release/cellblock"

if [ ! -x "$venv/bin/pip" ]; then
  step "Making the Jupyter environment in .venv"
  rm -rf "$venv"
  python3 -m venv "$venv"
fi
stamp="$venv/.stamps/$(basename "$(dirname "$list")")"
if ! settled "$stamp" "$list"; then
  step "Installing Jupyter into .venv ($(basename "$(dirname "$list")")/requirements.txt)"
  "$venv/bin/pip" install --disable-pip-version-check -r "$list" >&2
  settle "$stamp" "$list"
fi
step "Installing the kernelspecs into .venv"
"$bin" install --prefix "$venv" >&2
