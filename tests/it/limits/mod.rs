//! Each limit and defence of a container: the attack fails with it, and works when just that one is taken away.
//!
//! | module | what |
//! | --- | --- |
//! | `resources` | memory, CPU, processes, files |
//! | `network` | the network, this machine's own services, other containers' |
//! | `privileges` | user, capabilities, setuid programs, name spaces, system calls |
//! | `surroundings` | file systems, devices, sockets, variables, other containers |
//! | `session` | what only a whole session has: the clock, the output's cap, no standard input |
//! | `set_id` | files that would lend the user's rights to others |

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod network;
mod privileges;
mod resources;
mod session;
mod set_id;
mod surroundings;

use cellblock::sandbox::docker::Prepared;
use cellblock::sandbox::spec::Identity;

use crate::containers::{Bench, Ran, docker, image};

const ROOT: Identity = Identity { uid: 0, gid: 0 };
const MIB: u64 = 1 << 20;

/// Runs the attack with every defence, and without one.
async fn twice(bench: &Bench, attack: &str, without: impl FnOnce(&mut Prepared)) -> (Ran, Ran) {
    (bench.python(attack, |_| ()).await, bench.python(attack, without).await)
}

/// The same with root inside in both cases: what the defence is worth should the guest become root.
async fn twice_as_root(bench: &Bench, attack: &str, without: impl FnOnce(&mut Prepared)) -> (Ran, Ran) {
    let with = bench.python(attack, |p| p.spec.user = ROOT).await;
    let without = bench.python(attack, |p| {
        p.spec.user = ROOT;
        without(p);
    });
    (with, without.await)
}

/// Runs `code` in the container and prints the name of the error, or `done`.
fn attempt(code: &str) -> String {
    let code = code.replace('\n', "\n    ");
    format!(
        "
import ctypes, errno, os, socket, sys
libc = ctypes.CDLL(None, use_errno=True)
def call(name, *arguments):
    if getattr(libc, name)(*arguments) < 0:
        raise OSError(ctypes.get_errno(), name)
try:
    {code}
    print('done')
except OSError as e:
    print(errno.errorcode.get(e.errno, type(e).__name__))
"
    )
}

/// Runs the code in a container without our defences, made by the engine's own client with these options, the
/// attack that a container of ours must withstand; what it printed.
fn bare(options: &[&str], code: &str) -> String {
    let image = image();
    let mut arguments = vec!["run", "--rm", "--log-driver=none", "--entrypoint=python3"];
    arguments.extend(options);
    arguments.extend([image.as_str(), "-c", code]);
    let output = docker(&arguments);
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{options:?}: {out}{err}");
    out.trim().to_owned()
}
