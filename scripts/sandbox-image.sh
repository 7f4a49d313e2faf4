#!/usr/bin/env bash
# Builds the sandbox image and records it in the user's configuration: from the usual Python base where a registry
# answers, else from a base made of Debian's packages. `--fresh` builds again even when nothing changed.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"
bin="$root/target/release/cellblock"
wanted=$(sed -n 's/^ARG BASE=//p' "$root/containers/python/Dockerfile" | head -n 1)

step "Building the sandbox image"
if docker image inspect "$wanted" >/dev/null 2>&1 || timeout 300 docker pull "$wanted" >&2; then
  exec "$bin" build "$@"
fi
say "no registry offers $wanted here: using a base made of Debian's packages"
"$root/scripts/base-image.sh"
exec "$bin" build --base-image cellblock-base:debian "$@"
