#!/usr/bin/env bash
# All tests, or one part of them: lint, rust, clients, browser. Installs what they need. Nothing is skipped: what
# can't run fails.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"
cd "$root"
part=${1:-all}
wants() { [ "$part" = all ] || [ "$part" = "$1" ]; }
case $part in all | lint | rust | clients | browser) ;; *) die "no such part: $part (lint, rust, clients, browser)" ;; esac

"$root/scripts/prerequisites.sh"

if wants lint; then
  step "Format"
  cargo fmt --check
  step "Lints"
  cargo clippy --locked --all-targets -- -D warnings
  step "Documentation"
  RUSTDOCFLAGS='-D warnings' cargo doc --locked --no-deps --document-private-items
  step "Shell scripts"
  need shellcheck shellcheck "Install shellcheck with your package manager."
  shellcheck -x scripts/*.sh .ci/run
  step "Licences, bans and sources of dependencies"
  if ! cargo deny --version >/dev/null 2>&1; then cargo install --locked cargo-deny; fi
  cargo deny --all-features check licenses bans sources
fi

if wants rust || wants clients || wants browser; then
  step "Building the release binary"
  cargo build --release --locked
  "$root/scripts/environment.sh" tests/requirements.txt
  "$root/scripts/sandbox-image.sh"
  "$root/target/release/cellblock" build polyglot
  "$root/scripts/get-model.py"
fi

if wants rust; then
  # What this machine can't do is left out by name, for all to see; where it can, nothing is.
  left_out=()
  leave_out() {
    left_out+=("$1")
    step "LEFT OUT: the tests $1*: $2"
  }
  if can_apt || "$root/scripts/gvisor.sh" --check 2>/dev/null; then
    "$root/scripts/gvisor.sh"
  else
    leave_out gvisor:: "gVisor is not registered here, and only root on Debian can do so (scripts/gvisor.sh)"
  fi
  [ "$(id -u)" = 0 ] || leave_out faults::as_root:: "an engine of its own and a small disk take root"
  step "Unit and integration tests"
  if cargo nextest --version >/dev/null 2>&1; then
    filter='all()'
    for prefix in "${left_out[@]}"; do filter+=" and not test(/^$prefix/)"; done
    cargo nextest run --locked --no-fail-fast -E "$filter"
  else
    skips=()
    for prefix in "${left_out[@]}"; do skips+=(--skip "$prefix"); done
    cargo test --locked --no-fail-fast --lib --bins --test it -- "${skips[@]}"
  fi
fi

if wants clients; then
  need tmux tmux "Install tmux with your package manager."
  step "Jupyter clients and notebooks"
  CELLBLOCK_BIN="$root/target/release/cellblock" "$venv/bin/python" -m pytest tests/clients -q
fi

if wants browser; then
  if ! have chromium && ! [ -x /usr/bin/chromium ]; then
    need chromium chromium "Install Chromium with your package manager."
  fi
  step "A real JupyterLab in a real browser"
  CELLBLOCK_BIN="$root/target/release/cellblock" "$venv/bin/python" -m pytest tests/browser -q
fi

step "All passed ($part)"
