//! Files with the set-user-id or set-group-id bit: a trap for the machine's other users, in a folder of this user's.

use std::collections::BTreeMap;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;

use crate::containers::Bench;
use crate::session::Bed;

/// Tries every way; see there.
const WAYS: &str = include_str!("set_id.py");

/// Each way, and what came of it.
fn answers(text: &str) -> BTreeMap<&str, &str> {
    text.lines().filter_map(|line| line.split_once(' ')).collect()
}

/// Names of the files in a folder of the host's that have one of the bits.
fn with_bits(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).expect("the folder").map(|entry| entry.expect("an entry"));
    entries
        .filter(|entry| entry.metadata().expect("what it is").permissions().mode() & 0o6000 != 0)
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn no_file_gets_the_bits() {
    let bed = Bed::new();
    let ran = bed.python(WAYS).await;
    let out = ran.ok().out();
    let found = answers(&out);
    assert!(found.len() >= 11, "{out}");
    for (way, answer) in found {
        let refused = if way == "tar_program" {
            answer == "2"
        } else if way.ends_with("_program") {
            answer == "1"
        } else {
            answer == "EPERM"
        };
        assert!(refused, "{way}: {answer}");
    }
    assert_eq!(with_bits(&bed.directory.path().join("workspace/ways")), Vec::<String>::new());
    assert!(!ran.warnings().contains("set-user-id"), "the filter is in force, so nothing is said: {ran:?}");
    // What begins in a shell is as tame as what begins in Python.
    let ran = bed.sh("touch trap; chmod 4755 trap 2>&1; echo $?; test -u trap; echo $?").await;
    assert!(ran.ok().out().ends_with("Operation not permitted\n1\n1\n"), "{ran:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_our_filter_every_way_works() {
    // The same image and the same defences, the engine's own filter among them, but another main process.
    let bench = Bench::new();
    let ran = bench.python(WAYS, |_| ()).await;
    let found = answers(&ran.out);
    assert!(found.len() >= 11 && found.values().all(|answer| *answer == "done"), "{ran:?}");
    assert_eq!(with_bits(&bench.directory.path().join("workspace/ways")).len(), found.len());
    let bed = Bed::weakened("system.install_filter(SOURCES.pop(\"filter\"))", "False");
    let ran = bed.sh("touch trap; chmod 4755 trap && test -u trap; echo $?").await;
    assert_eq!(ran.ok().out(), "0\n");
    assert!(ran.warnings().contains("set-user-id"), "where it is not in force, that is said: {ran:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_no_filter_can_look_into_is_not_there() {
    // openat2 and io_uring_setup: the same numbers everywhere.
    let code = "import ctypes, errno\n\
        libc = ctypes.CDLL(None, use_errno=True)\n\
        [(libc.syscall(number, -100, b'new', None, 24), errno.errorcode[ctypes.get_errno()]) for number in (437, 425)]";
    assert_eq!(Bed::new().python(code).await.ok().result(), "[(-1, 'ENOSYS'), (-1, 'ENOSYS')]");
    // Without the filter they look at their arguments, unless the engine or the kernel is against them.
    let bed = Bed::weakened("system.install_filter(SOURCES.pop(\"filter\"))", "False");
    assert!(bed.python(code).await.ok().result().starts_with("[(-1, 'EFAULT')"));
}

/// The 32-bit door of x86-64, through which any program may go: `chmod(path, 0o4755)` by `int 0x80`.
#[cfg(target_arch = "x86_64")]
const OTHER_DOOR: &str = "
import ctypes, mmap, os, subprocess, sys
if len(sys.argv) < 2:
    open('door', 'w').close()
    code = subprocess.run([sys.executable, '-c', OTHER, 'go']).returncode
    print('no such door' if code == -11 else oct(os.stat('door').st_mode & 0o7777))
else:
    # Below 4 GB, where 32 bits reach: MAP_32BIT.
    memory = mmap.mmap(-1, 4096, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x40, 7)
    at = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    path = b'door\\0'
    # push rbx; mov eax, 15; mov ebx, the path; mov ecx, 0o4755; int 0x80; pop rbx; ret
    code = (b'\\x53\\xb8\\x0f\\0\\0\\0\\xbb' + (at + 64).to_bytes(4, 'little')
            + b'\\xb9' + (0o4755).to_bytes(4, 'little') + b'\\xcd\\x80\\x5b\\xc3')
    memory[:len(code)] = code
    memory[64:64 + len(path)] = path
    ctypes.CFUNCTYPE(ctypes.c_int)(at)()
";

#[cfg(target_arch = "x86_64")]
#[tokio::test(flavor = "multi_thread")]
async fn the_calls_of_32_bit_programs_are_no_way_around() {
    let attack = format!("OTHER = {OTHER_DOOR:?}\nimport sys\nsys.argv[1:] = []\n{OTHER_DOOR}");
    let with = Bed::new().python(&attack).await.ok().out();
    let ran = Bench::new().python(&attack, |_| ()).await;
    let without = ran.out.as_str();
    // A kernel without 32-bit programs has no such door; gVisor has none either.
    let expected = if without == "no such door" { without } else { "0o644" };
    assert!(with.trim() == expected && (without == "0o4755" || without == expected), "{with} {ran:?}");
}

/// What people do all day, with files that have no such bits.
const USUAL: &str = "
set -e
mkdir -m 755 from; mkdir -m 1777 from/sticky; echo x > from/a; chmod 640 from/a; ln -s a from/b
cp -a from copied; tar -cf all.tar from; mkdir out; tar -xpf all.tar -C out; install -m 755 from/a installed
python3 - <<'END'
import os, pathlib, shutil, tempfile, zipfile
shutil.copy('from/a', 'two'); shutil.copytree('from', 'tree'); shutil.move('two', 'three')
os.mkdir('with-bits', 0o2775)
with zipfile.ZipFile('p-1-py3-none-any.whl', 'w') as wheel:
    wheel.writestr('p.py', 'x = 1')
    wheel.writestr('p-1.dist-info/METADATA', 'Metadata-Version: 2.1\\nName: p\\nVersion: 1\\n')
    wheel.writestr('p-1.dist-info/WHEEL', 'Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n')
    wheel.writestr('p-1.dist-info/RECORD', '')
with tempfile.TemporaryFile() as file:
    file.write(b'x')
pathlib.Path('new').touch(mode=0o600)
END
python3 -m venv --without-pip made; made/bin/python -c 'print(1)'
python3 - <<'END'
import os
for name in ('from/a', 'copied/a', 'copied/sticky', 'out/from/a', 'out/from/sticky', 'tree/a', 'installed', 'new'):
    print('%o %s' % (os.stat(name).st_mode & 0o7777, name))
END
";

#[tokio::test(flavor = "multi_thread")]
async fn everything_usual_works() {
    let ran = Bed::new().sh(USUAL).await;
    let expected = "1\n640 from/a\n640 copied/a\n1777 copied/sticky\n640 out/from/a\n1777 out/from/sticky\n640 tree/a\n\
                    755 installed\n600 new\n";
    assert_eq!(ran.ok().out(), expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn where_directories_share_their_group_they_can_be_copied() {
    let bed = Bed::new();
    let workspace = bed.directory.path().join("workspace");
    std::fs::create_dir(&workspace).expect("a workspace");
    if rustix::process::geteuid().is_root() {
        chown(&workspace, Some(1000), Some(1000)).expect("a workspace of the sandbox's user");
    }
    std::fs::set_permissions(&workspace, std::fs::Permissions::from_mode(0o2775)).expect("a shared group");
    let code = "import os, shutil\n\
        os.makedirs('from/below'); shutil.copytree('from', 'to'); os.chmod('to', 0o2755)\n\
        print(oct(os.stat('to/below').st_mode & 0o7000))\n\
        try: os.chmod(open('trap', 'w').name, 0o4755)\n\
        except PermissionError: print('refused')";
    let ran = bed.python(code).await;
    assert_eq!(ran.ok().out(), "0o2000\nrefused\n");
}
