#!/usr/bin/env bash
# Measures both kernels beside ipykernel, and our sandbox beside llm-sandbox and AutoGen, in one run on one machine; see
# benches/README.md. `scripts/bench.sh kernel` or `scripts/bench.sh sandbox` measures one of them; what follows goes to it.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"
cd "$root"
"$root/scripts/prerequisites.sh"
cargo build --release --locked
"$root/scripts/environment.sh" tests/requirements.txt
"$root/scripts/sandbox-image.sh"
part=all
case "${1:-}" in kernel | sandbox) part=$1; shift ;; esac
if [ "$part" != sandbox ]; then
  step "Kernels"
  "$venv/bin/python" benches/kernel_bench.py "$@"
fi
if [ "$part" != kernel ]; then
  step "Sandboxes"
  image=$(target/release/cellblock config --json |
    python3 -c 'import json, sys; print(next(s["value"] for s in json.load(sys.stdin)["settings"] if s["key"] == "sandbox.built_image"))')
  "$venv/bin/python" benches/sandbox_bench.py --image "$image" "$@"
fi
