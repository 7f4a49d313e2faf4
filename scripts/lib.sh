# shellcheck shell=bash
# Shared by the scripts: messages, the project's folder, and what Debian packages are missing.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
export root
# One Jupyter environment for the demo, for `make start` and for the tests; nothing outside the project changes.
venv="$root/.venv"
export venv

if [ -t 2 ]; then bold=$'\e[1m' dim=$'\e[2m' red=$'\e[31m' plain=$'\e[0m'; else bold='' dim='' red='' plain=''; fi

step() { printf '%s==> %s%s\n' "$bold" "$*" "$plain" >&2; }
say() { printf '    %s\n' "$*" >&2; }
die() { printf '%serror:%s %s\n' "$red" "$plain" "$*" >&2; exit 1; }
hint() { printf '%s    %s%s\n' "$dim" "$*" "$plain" >&2; }

have() { command -v "$1" >/dev/null 2>&1; }

# Whether missing packages can be installed here: Debian (or a relative of it), as root.
can_apt() { [ "$(id -u)" = 0 ] && have apt-get; }

apt_updated=''
# apt_install PACKAGE...: installs what is not there yet, saying so.
apt_install() {
  local missing=() package
  for package in "$@"; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' || missing+=("$package")
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  say "installing from Debian's packages: ${missing[*]}"
  if [ -z "$apt_updated" ]; then apt-get update -q >&2; apt_updated=yes; fi
  DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${missing[@]}" >&2
}

# need COMMAND PACKAGE REMEDY: makes sure that a command is there.
need() {
  have "$1" && return 0
  if can_apt; then apt_install "$2"; fi
  have "$1" || die "$1 is missing. $3"
}

# settled STAMP FILE...: whether the step that wrote STAMP has seen just these files' contents.
settled() {
  local stamp=$1; shift
  [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$(cat "$@" | sha256sum | cut -d' ' -f1)" ]
}
settle() {
  local stamp=$1; shift
  mkdir -p "$(dirname "$stamp")"
  cat "$@" | sha256sum | cut -d' ' -f1 >"$stamp.new" && mv "$stamp.new" "$stamp"
}
