#!/usr/bin/env bash
# Measures both kernels beside ipykernel, in one run on one machine; see benches/README.md.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"
cd "$root"
"$root/scripts/prerequisites.sh"
cargo build --release --locked
"$root/scripts/environment.sh" tests/requirements.txt
"$root/scripts/sandbox-image.sh"
exec "$venv/bin/python" benches/kernel_bench.py "$@"
