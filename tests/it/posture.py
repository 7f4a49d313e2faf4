"""What scripts look for that want out of a container (deepce, amicontained, CDK): one finding, one line of text.

Prints a JSON object: each check with its findings, none when all is well. Standard library only.
"""

import glob
import json
import os
import re
import socket
import stat

FACTS = json.loads(globals().get("FACTS_TEXT", "{}"))  # of the host: its name spaces, what it mounted
CHECKS = {}


def check(function):
    CHECKS[function.__name__] = function
    return function


def read(path, size=1 << 16):
    try:
        with open(path, "rb") as file:
            return file.read(size).decode("utf-8", "replace")
    except OSError:
        return ""


def status(name):
    return re.search(r"^%s:\s*(\S+)" % name, read("/proc/self/status"), re.M)


def writable(paths):
    """Which of these could be opened to write; nothing is written."""
    found = []
    for path in paths:
        if os.path.isdir(path):
            continue
        try:
            os.close(os.open(path, os.O_WRONLY | os.O_CLOEXEC))
            found.append(path)
        except OSError:
            pass
    return found


def mounts():
    """(where, file system, options, source, the source's own path) of each mount."""
    for line in read("/proc/self/mountinfo", 1 << 20).splitlines():
        before, _, after = line.partition(" - ")
        fields, more = before.split(), after.split()
        if len(fields) > 5 and len(more) > 1:
            options = set(fields[5].split(",")) | set(more[2].split(",") if len(more) > 2 else [])
            yield fields[4], more[0], options, more[1], fields[3]


@check
def capabilities():
    names = ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")
    found = [(name, status(name)) for name in names]
    return ["%s is %s" % (name, value.group(1)) for name, value in found if value and int(value.group(1), 16)]


@check
def system_call_filter():
    value = status("Seccomp")
    return [] if value and value.group(1) == "2" else ["seccomp mode %s" % (value and value.group(1))]


@check
def new_privileges():
    value = status("NoNewPrivs")
    return [] if value and value.group(1) == "1" else ["NoNewPrivs %s" % (value and value.group(1))]


@check
def user():
    found = ["user id %d" % os.getuid()] if 0 in (os.getuid(), os.geteuid()) else []
    return found + ["group %d" % group for group in {os.getgid(), *os.getgroups()} if group == 0]


@check
def name_spaces():
    """Shared with the host, whose own FACTS tells. The user name space is the host's unless the engine is rootless."""
    found = []
    for kind in ("pid", "net", "ipc", "mnt", "uts", "cgroup"):
        try:
            own = os.readlink("/proc/self/ns/" + kind)
        except OSError as error:
            found.append("%s: %s" % (kind, error.strerror))
            continue
        if own == FACTS.get("name_spaces", {}).get(kind):
            found.append("%s is the host's" % kind)
    return found


@check
def engine_sockets():
    names = "docker containerd crio podman dockershim frakti rkt buildkitd lxd".split()
    found = []
    for top in ("/run", "/var/run", "/var/lib", "/tmp", "/workspace", "/host"):
        for folder, folders, files in os.walk(top):
            folders[:] = folders[:200]
            for name in files:
                path = os.path.join(folder, name)
                try:
                    if stat.S_ISSOCK(os.lstat(path).st_mode) and any(n in path for n in names):
                        found.append(path)
                except OSError:
                    pass
    for port in (2375, 2376, 10250, 10255):
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            found.append("port %d" % port)
        except OSError:
            pass
    found += [name for name in os.environ if name in ("DOCKER_HOST", "CONTAINER_HOST")]
    abstract = [line.split()[-1] for line in read("/proc/net/unix", 1 << 20).splitlines() if " @" in line]
    return found + ["abstract socket " + name for name in abstract if "containerd" in name]


@check
def host_mounts():
    """What comes from the host's disk, besides what the definition declares and the engine's three files."""
    known = set(FACTS.get("declared", [])) | {"/etc/hosts", "/etc/hostname", "/etc/resolv.conf", "/"}
    memory = {"proc", "sysfs", "tmpfs", "devpts", "mqueue", "cgroup", "cgroup2", "overlay", "shm", "9p"}
    return ["%s from %s (%s)" % (where, own, kind) for where, kind, _, _, own in mounts()
            if where not in known and kind not in memory and not kind.startswith("fuse")]


@check
def read_only_root():
    found = [where for where, _, options, _, _ in mounts() if where == "/" and "ro" not in options]
    for path in ("/usr/bin", "/etc", "/var", "/opt", "/"):
        try:
            name = os.path.join(path, ".posture")
            os.close(os.open(name, os.O_CREAT | os.O_WRONLY))
            os.unlink(name)
            found.append(path + " can be written")
        except OSError:
            pass
    return found


@check
def mount_options():
    """A writable place in which a device or a setuid program would work."""
    return ["%s without %s" % (where, option) for where, kind, options, _, _ in mounts()
            for option in ("nosuid", "nodev")
            if kind == "tmpfs" and "ro" not in options and option not in options
            and not where.startswith(("/dev/", "/proc/", "/sys/firmware")) and where != "/dev"]


@check
def control_groups():
    found = writable(glob.glob("/sys/fs/cgroup/*/release_agent") + glob.glob("/sys/fs/cgroup/*/cgroup.procs")
                     + ["/sys/fs/cgroup/cgroup.procs", "/sys/fs/cgroup/release_agent"])
    found += [where for where, kind, options, _, _ in mounts() if kind.startswith("cgroup") and "ro" not in options]
    return found + ["the host sees: " + line for line in read("/proc/self/cgroup").splitlines()
                    if re.search(r"[0-9a-f]{64}|docker|kube|libpod", line)]


@check
def kernel_levers():
    return writable(["/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe", "/proc/sys/kernel/hotplug",
                     "/proc/sysrq-trigger", "/sys/kernel/uevent_helper", "/proc/sys/vm/panic_on_oom",
                     "/proc/sys/fs/binfmt_misc/register", "/sys/kernel/mm/transparent_hugepage/enabled",
                     "/proc/sys/kernel/randomize_va_space", "/sys/power/state"])


@check
def masked_paths():
    found = []
    for path in ("/proc/kcore", "/proc/keys", "/proc/timer_list", "/proc/latency_stats", "/proc/sched_debug"):
        if read(path, 16):
            found.append(path + " has contents")
    for path in ("/sys/firmware", "/proc/acpi", "/proc/scsi", "/sys/devices/virtual/powercap"):
        try:
            found += [path + " has entries"] if os.listdir(path) else []
        except OSError:
            pass
    return found


@check
def devices():
    usual = set("console core fd full fuse mqueue net null ptmx pts random shm stderr stdin stdout tty urandom zero".split())
    found = [name for name in os.listdir("/dev") if name not in usual]
    for folder, folders, files in os.walk("/"):
        folders[:] = [f for f in folders if os.path.join(folder, f) not in ("/proc", "/sys", "/dev", "/host")]
        for name in files:
            path = os.path.join(folder, name)
            try:
                if stat.S_IFMT(os.lstat(path).st_mode) in (stat.S_IFBLK, stat.S_IFCHR):
                    found.append(path)
            except OSError:
                pass
    return found


@check
def setuid_files():
    found = []
    for folder, folders, files in os.walk("/"):
        folders[:] = [f for f in folders if os.path.join(folder, f) not in ("/proc", "/sys", "/dev", "/host")]
        for name in files:
            path = os.path.join(folder, name)
            try:
                mode = os.lstat(path).st_mode
                if stat.S_ISREG(mode) and mode & (stat.S_ISUID | stat.S_ISGID):
                    found.append(path)
                if "security.capability" in os.listxattr(path, follow_symlinks=False):
                    found.append(path + " has capabilities")
            except OSError:
                pass
    return found


@check
def secrets_in_the_environment():
    word = re.compile(r"key|token|secret|passw|credential|aws_|azure|gcp|google_|kube", re.I)
    known = {"GPG_KEY"}  # which signs Python's releases, in the usual image
    return [name for name in os.environ if word.search(name) and name not in known]


@check
def tokens_on_disk():
    paths = ["/var/run/secrets/kubernetes.io/serviceaccount/token", "/run/secrets", "/etc/kubernetes",
             "/var/lib/kubelet", "/root/.docker/config.json", "/root/.aws", "/root/.ssh", "/root/.kube"]
    home = os.path.expanduser("~")
    paths += [os.path.join(home, name) for name in (".docker", ".aws", ".ssh", ".kube", ".netrc", ".pypirc")]
    found = []
    for path in paths:
        try:
            os.stat(path)
            found.append(path)
        except OSError:
            pass
    return found


@check
def cloud_metadata():
    """Whether there is a way to it; no packet is sent."""
    found = []
    for address in ("169.254.169.254", "100.100.100.200", "168.63.129.16"):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            try:
                probe.connect((address, 80))
                found.append("a route to " + address)
            except OSError:
                pass
    return found


@check
def interfaces():
    return [name for _, name in socket.if_nameindex() if name not in ("lo", "tunl0", "sit0", "ip6tnl0", "gre0",
            "gretap0", "erspan0", "ip_vti0", "ip6_vti0", "ip6gre0", "dummy0")]


@check
def host_name():
    return [] if socket.gethostname() == "sandbox" else [socket.gethostname()]


@check
def process_one():
    found = []
    for name in ("environ", "maps", "mem", "fd/0", "fd/1", "cwd/.", "root/."):
        try:
            os.close(os.open("/proc/1/" + name, os.O_RDONLY | os.O_NONBLOCK))
            found.append("/proc/1/%s can be opened" % name)
        except OSError:
            pass
    return found


@check
def other_processes():
    """Anything that is neither process 1 nor descends from it: the host's, or another container's."""
    me = str(os.getpid())
    tree = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            fields = read("/proc/%s/stat" % entry).rpartition(")")[2].split()
            if len(fields) > 1:
                tree[entry] = fields[1]
    strange = [pid for pid, parent in tree.items() if parent == "0" and pid != "1" and pid != me]
    return ["process %s" % pid for pid in strange] + (["%d processes" % len(tree)] if len(tree) > 20 else [])


print(json.dumps({name: function()[:20] for name, function in CHECKS.items()}))
