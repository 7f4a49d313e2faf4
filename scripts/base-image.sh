#!/usr/bin/env bash
# Makes cellblock-base:debian, a base for the sandbox image, from Debian's packages alone: for places where no
# image registry can be reached. Does nothing when the image is there; `--force` makes it again. The archive that
# is imported is kept until it was, so an interrupted run goes on where it was.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"
image=cellblock-base:debian
work="$root/target/base-image"
archive="$work/debian.tar"

force=''
case "${1:-}" in
  '') ;;
  --force) force=yes ;;
  *) die "unknown argument $1 (there is only --force)" ;;
esac

step "Making $image from Debian's packages"
have docker || die "docker is missing: install Docker Engine (on Debian: apt install docker.io)."
if [ -z "$force" ] && docker image inspect "$image" >/dev/null 2>&1; then
  say "already there"
  exit 0
fi

# The suite of this very system, when it is Debian: its keys are here. Elsewhere Debian's archive keys must be.
suite=$(. /etc/os-release && if [ "${ID:-}" = debian ]; then printf '%s' "${VERSION_CODENAME:-}"; fi)
suite=${suite:-bookworm}

if [ -n "$force" ] || [ ! -f "$archive" ]; then
  need mmdebstrap mmdebstrap "Install the package mmdebstrap (and debian-archive-keyring), or use a registry's Python image."
  mkdir -p "$work"
  rm -f "$archive" "$archive".part
  say "downloading and unpacking packages of Debian $suite (about half a minute)"
  # Only what the Dockerfile asks of its base: a shell, Python with pip and venv, certificate authorities.
  mmdebstrap --variant=minbase --include=python3,python3-pip,python3-venv,ca-certificates \
    --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/doc/*' \
    --dpkgopt='path-include=/usr/share/doc/*/copyright' --dpkgopt='path-exclude=/usr/share/locale/*' \
    --format=tar "$suite" "$archive.part" >&2
  mv "$archive.part" "$archive"
fi

say "importing it into the engine"
docker import --change 'CMD ["python3"]' "$archive" "$image" >&2
rm -f "$archive"
rmdir "$work" 2>/dev/null || true
