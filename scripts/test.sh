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
  "$root/scripts/get-model.py"
fi

if wants rust; then
  step "Unit and integration tests"
  if cargo nextest --version >/dev/null 2>&1; then
    cargo nextest run --locked --no-fail-fast
  else
    cargo test --locked --no-fail-fast --lib --bins --test it
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
