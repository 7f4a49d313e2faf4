#!/usr/bin/env bash
# Registers gVisor with the container engine as the runtime `runsc`: installs Debian's package where it is missing,
# adds one entry to the engine's settings, and has the engine read them again. The engine is not restarted, and its
# other settings stay as they are. Does nothing when the runtime is there; `--check` only says whether it is.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"
settings=${CELLBLOCK_ENGINE_SETTINGS:-/etc/docker/daemon.json}

registered() { docker info --format '{{range $name, $_ := .Runtimes}}{{$name}} {{end}}' 2>/dev/null | grep -qw runsc; }

step "Registering gVisor (runsc) with the container engine"
have docker || die "docker is missing: run scripts/prerequisites.sh first."
if registered; then
  say "already there"
  exit 0
fi
case "${1:-}" in
  '') ;;
  --check) die "the engine has no runtime 'runsc'; run scripts/gvisor.sh as root on Debian, or see https://gvisor.dev/docs/user_guide/install/." ;;
  *) die "unknown argument $1 (there is only --check)" ;;
esac
[ "$(id -u)" = 0 ] || die "only root may change the engine's settings; run this as root."
[ -z "${DOCKER_HOST:-}" ] || die "DOCKER_HOST names another engine: register runsc on the machine where it runs."
need python3 python3 "Install Python 3."
need runsc runsc "Debian has it as the package runsc; elsewhere see https://gvisor.dev/docs/user_guide/install/."

# ptrace works on machines without KVM and inside virtual ones; no network is what our containers have anyway.
python3 - "$settings" "$(command -v runsc)" <<'PYTHON'
import json, os, sys

path, runsc = sys.argv[1:]
try:
    with open(path, encoding="utf-8") as file:
        settings = json.load(file)
except FileNotFoundError:
    settings = {}
except ValueError as error:
    sys.exit("error: %s is not valid JSON (%s); correct it, then run this again." % (path, error))
entry = {"path": runsc, "runtimeArgs": ["--platform=ptrace", "--network=none"]}
settings.setdefault("runtimes", {})["runsc"] = entry
os.makedirs(os.path.dirname(path), exist_ok=True)
# Written beside it and moved: the engine never sees half of it, and an interruption loses nothing.
with open(path + ".new", "w", encoding="utf-8") as file:
    json.dump(settings, file, indent=2)
    file.write("\n")
if os.path.exists(path):
    os.chmod(path + ".new", os.stat(path).st_mode & 0o777)
os.replace(path + ".new", path)
PYTHON

say "asking the engine to read its settings again"
daemon=$(cat /run/docker.pid 2>/dev/null || pgrep -o -x dockerd || true)
if [ "$(cat "/proc/${daemon:-none}/comm" 2>/dev/null)" != dockerd ]; then
  die "the engine's process was not found; restart the engine, then run this again."
fi
kill -HUP "$daemon"
for _ in $(seq 50); do
  if registered; then
    say "registered: $(runsc --version | head -n 1)"
    exit 0
  fi
  sleep 0.2
done
die "the engine does not take the runtime; its log says why (journalctl -u docker)."
