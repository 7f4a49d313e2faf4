#!/usr/bin/env bash
# Makes sure that what the project is built and run with is there: a C linker, Rust, Python with venv, and a
# container engine that answers. On Debian as root it installs what is missing; elsewhere it names it.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"

engine_answers() { docker version --format '{{.Server.Version}}' >/dev/null 2>&1; }

start_engine() {
  say "starting the container engine"
  if have systemctl && [ -d /run/systemd/system ]; then
    systemctl start docker >&2 || true
  elif have service; then
    service docker start >&2 || true
  fi
  for _ in $(seq 30); do engine_answers && return 0; sleep 1; done
  return 1
}

step "Checking what the build needs"
need cc gcc "Install a C compiler and linker (Debian: apt install gcc libc6-dev; Fedora: dnf install gcc; macOS: xcode-select --install)."
if can_apt; then apt_install libc6-dev; fi
need curl curl "Install curl with your package manager."
need python3 python3 "Install Python 3.10 or newer with your package manager."
if ! have cargo; then
  if can_apt && apt-cache show rustup >/dev/null 2>&1; then apt_install rustup; rustup default stable >&2; fi
  have cargo || die "cargo is missing. Install Rust $(sed -n 's/^rust-version = "\(.*\)"/\1/p' "$root/Cargo.toml") or newer with rustup, then run this again."
fi
if ! python3 -c 'import ensurepip, venv' 2>/dev/null; then
  if can_apt; then apt_install python3-venv; fi
  python3 -c 'import ensurepip, venv' 2>/dev/null || die "Python's venv module is missing (Debian: apt install python3-venv)."
fi

step "Checking the container engine"
if [ -z "${DOCKER_HOST:-}" ] && ! engine_answers; then
  if can_apt; then
    apt_install docker.io
    engine_answers || start_engine || die "the container engine was installed but does not answer; look at its log (journalctl -u docker), or start dockerd by hand, then run this again."
  elif have docker; then
    die "docker is installed but its engine does not answer. Start it (Linux: sudo systemctl start docker; Docker Desktop: open it), and make sure that you may use it (sudo usermod -aG docker $(id -un), then log in again)."
  else
    die "no container engine found. Install Docker Engine (Debian: sudo apt install docker.io) or Docker Desktop, then run this again."
  fi
fi
say "the engine answers: $(docker version --format '{{.Server.Version}}' 2>/dev/null || echo "at $DOCKER_HOST")"
