"""Installs packages in a container that becomes an image: an order of names comes in through standard input.

Travels inside the `cellblock` binary. No shell ever sees a name. The installers get an environment of their own,
without configuration from the image: the usual index and nothing else is asked.
"""

import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile


def main(order):
    home = tempfile.mkdtemp(prefix="cellblock-")
    env = dict(order["proxies"], PATH=os.environ.get("PATH") or os.defpath, HOME=home, LANG="C.UTF-8")
    bundle = None
    if order["authorities"]:
        bundle = os.path.join(home, "ca-bundle.crt")
        with open(bundle, "w", encoding="utf-8") as file:
            file.write(order["authorities"])
        # apt's own user reads it too.
        os.chmod(home, 0o755)
        env.update(SSL_CERT_FILE=bundle, REQUESTS_CA_BUNDLE=bundle, NODE_EXTRA_CA_CERTS=bundle)

    def run(*argv):
        code = subprocess.call(argv, env=env, cwd="/", stdin=subprocess.DEVNULL)
        if code:
            sys.exit(code if code > 0 else 128 - code)

    try:
        # Debian's first: they may bring what the others need.
        for install in (apt, pip, npm):
            names = order["packages"].get(install.__name__)
            if names:
                install(names, run, env, bundle)
    finally:
        shutil.rmtree(home, ignore_errors=True)


def pip(names, run, env, bundle):
    python = [sys.executable, "-I"]
    if subprocess.call([*python, "-c", "import pip"], stderr=subprocess.DEVNULL):
        sys.exit("cellblock: the image's python3 has no pip")
    # A system's own Python refuses packages unless it is told that this is meant; older ones don't know the words.
    env.update(PIP_CONFIG_FILE=os.devnull, PIP_BREAK_SYSTEM_PACKAGES="1", PIP_ROOT_USER_ACTION="ignore")
    options = ["--no-cache-dir", "--only-binary=:all:", "--disable-pip-version-check", "--no-input"]
    if bundle:
        options += ["--cert", bundle]
    run(*python, "-m", "pip", "install", "--progress-bar", "off", *options, "--", *names)


def apt(names, run, env, bundle):
    if not shutil.which("apt-get"):
        sys.exit("cellblock: the image has no apt-get: it is not made from Debian or a relative of it")
    env.update(DEBIAN_FRONTEND="noninteractive")
    options = ["-o", "Acquire::https::CAInfo=" + bundle] if bundle else []
    try:
        run("apt-get", *options, "update", "-q")
        run("apt-get", *options, "install", "-y", "-q", "--no-install-recommends", "--", *names)
    finally:
        for folder in ("/var/lib/apt/lists", "/var/cache/apt/archives"):
            empty(folder)
    strip()


def npm(names, run, env, bundle):
    if not shutil.which("npm"):
        sys.exit("cellblock: the image has no npm (%apt install npm adds it where the image is Debian's)")
    options = ["--ignore-scripts", "--no-audit", "--no-fund", "--no-update-notifier", "--prefix", "/usr/local"]
    options += ["--userconfig", os.devnull, "--globalconfig", os.path.join(env["HOME"], "npmrc")]
    options += ["--registry", "https://registry.npmjs.org/", "--cache", os.path.join(env["HOME"], "npm")]
    run("npm", "install", "-g", *options, "--", *names)
    strip()


def empty(folder):
    if not os.path.isdir(folder):
        return
    for entry in os.scandir(folder):
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path, ignore_errors=True)
        elif entry.name != "lock":
            os.unlink(entry.path)


def strip():
    """Nothing in an image may gain privileges: set-user-id and set-group-id bits go."""
    device = os.lstat("/").st_dev
    for folder, folders, files in os.walk("/"):
        folders[:] = [name for name in folders if lies_on(device, os.path.join(folder, name))]
        for name in files:
            path = os.path.join(folder, name)
            mode = os.lstat(path).st_mode
            if stat.S_ISREG(mode) and mode & 0o6000:
                os.chmod(path, stat.S_IMODE(mode) & ~0o6000)


def lies_on(device, path):
    return os.lstat(path).st_dev == device


if __name__ == "__main__":
    main(json.load(sys.stdin))
