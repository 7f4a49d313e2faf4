//! gVisor (`runtime = "runsc"`): the tests of limits and sessions once more with that runtime, and what differs.
//!
//! gVisor puts a kernel of its own, in user space, between the code and the host's kernel. [`DIFFERENCES`] is the list of what
//! is not as with the usual runtime; `docs/gvisor.md` says the same to users. Where the engine does not know the
//! runtime these tests fail: `scripts/gvisor.sh` registers it, and `scripts/test.sh` leaves them out, saying so, where
//! it can't.

use std::process::Command;
use std::time::Duration;

use cellblock::sandbox::{Run, Tighter};

use crate::containers::{RUNTIME, docker};
use crate::posture;
use crate::session::{Around, Bed};

/// A test that does not pass under gVisor, and why that is so.
struct Difference {
    test: &'static str,
    why: &'static str,
}

const fn differs(test: &'static str, why: &'static str) -> Difference {
    Difference { test, why }
}

/// What gVisor itself refuses, so that the attack can't be shown working once our defence is taken away.
const STRONGER: &str = "gVisor refuses it even without our defence";
const DEVICES: &str =
    "root inside may make device nodes: they are devices of gVisor's own, not the machine's";
const FILES: &str = "gVisor has no files of control groups inside";
const BUSY: &str = "with --platform=ptrace gVisor itself may end when a busy process is interrupted or killed: the container is \
                    replaced, and that is said";
const NETWORK: &str = "gVisor is registered with --network=none: not even `bridge` reaches anything";

const THREADS: &str =
    "the limit of processes counts gVisor's own threads too, so four times as many are allowed";
const NEW_FILES: &str = "gVisor itself leaves the set-user-id bit off new files; `chmod` would set it, and our filter refuses that";

const DIFFERENCES: &[Difference] = &[
    differs("limits::resources::cpu_time_is_limited", FILES),
    differs("session::input::bytes_written_and_the_peak_of_memory_are_counted_for_each_run", FILES),
    differs("limits::resources::processes_are_limited", THREADS),
    differs("limits::surroundings::what_the_engine_was_asked_for_is_what_it_did", THREADS),
    differs(
        "limits::resources::a_fork_bomb_meets_the_limit_and_goes_with_its_container",
        "at the limit of processes gVisor itself ends, and the container with it",
    ),
    differs("limits::network::tcp_reaches_nothing", NETWORK),
    differs("limits::network::udp_reaches_nothing_and_so_nothing_leaks_through_names", NETWORK),
    differs("limits::network::there_is_no_interface_but_loopback", NETWORK),
    differs("limits::network::no_raw_sockets_are_given", STRONGER),
    differs("limits::privileges::nothing_can_be_mounted_not_even_in_a_name_space_of_its_own", STRONGER),
    differs("limits::privileges::setuid_programs_gain_nothing", STRONGER),
    differs("limits::privileges::dangerous_system_calls_are_refused", STRONGER),
    differs(
        "limits::privileges::what_careless_options_would_give_is_not_there",
        "code may raise its priority: among gVisor's own processes, not the machine's",
    ),
    differs(
        "limits::surroundings::other_containers_are_out_of_sight_and_reach",
        "what runs inside is not to be seen from beside, not even by a container that joins its name space",
    ),
    differs("limits::privileges::each_capability_of_the_engines_default_is_taken_from_root_too", DEVICES),
    differs("limits::surroundings::what_is_written_in_memory_runs_but_is_no_device", DEVICES),
    differs(
        "limits::surroundings::the_engines_socket_is_not_inside",
        "gVisor shows no socket of the machine, not even one that is mounted",
    ),
    differs(
        "session::attacks::frames_can_not_be_forged_through_the_supervisors_descriptors",
        "gVisor does not close an undumpable process's /proc/1/fd, /proc/1/environ and /proc/1/maps: code can write \
         into its own session's channel",
    ),
    differs("session::attacks::the_supervisor_can_not_be_traced", STRONGER),
    differs(
        "session::attacks::the_supervisor_survives_every_signal",
        "SIGKILL and SIGSTOP from inside reach process 1: code can end or stop its own container",
    ),
    differs(
        "session::attacks::behind_another_init_it_would_not_survive",
        "a supervisor that is not process 1 ignores signals as well; it is refused all the same",
    ),
    differs("limits::set_id::without_our_filter_every_way_works", NEW_FILES),
    differs("limits::set_id::what_no_filter_can_look_into_is_not_there", "gVisor has no `openat2`"),
    differs("languages::an_endless_program_is_interrupted_with_its_children", BUSY),
    differs("session::stops::an_interrupt_ends_python_and_keeps_its_variables", BUSY),
    differs("session::stops::an_interrupt_ends_a_shell_and_its_children", BUSY),
    differs("session::stops::python_that_ignores_the_interrupt_is_killed_and_its_loss_is_said", BUSY),
    differs("session::stops::a_timeout_stops_the_code_and_says_so", BUSY),
    differs(
        "session::losses::using_too_much_memory_is_named",
        "the memory limit ends gVisor, and the container with it, sometimes before the engine knows why",
    ),
];

/// Fails where gVisor is missing.
fn registered() {
    let output = docker(&["info", "--format", "{{json .Runtimes}}"]);
    let runtimes = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        runtimes.contains("\"runsc\""),
        "the engine has no runtime runsc: run scripts/gvisor.sh ({runtimes})"
    );
}

/// What a session says when gVisor itself has ended: a crash of the runtime's, see [`BUSY`].
const CRASHED: &str = "the sandbox ended by itself (exit code 2";
/// The same of a container without a session of ours.
const CRASHED_BARE: &str = "Exited(2)";
/// How often a test may meet a crash of gVisor's before that counts.
const CRASHES: usize = 3;

/// Runs the tests whose names begin so with gVisor, but for those that differ. One that failed because gVisor itself
/// ended, and for no other reason, is run once more.
fn again(prefix: &str) {
    registered();
    let (mut passed, said) = run(&[prefix]);
    assert!(!said.contains("running 0 tests"), "there are no tests called {prefix}");
    if passed {
        return;
    }
    // Each failure's own words, as the harness prints them: `---- NAME stdout ----` and what follows.
    for section in said.split("\n---- ").skip(1) {
        let name = section.split_whitespace().next().unwrap_or_default();
        let mut told = section.to_owned();
        passed = false;
        for _ in 0..CRASHES {
            assert!(told.contains(CRASHED) || told.contains(CRASHED_BARE), "{told}");
            (passed, told) = run(&[name, "--exact"]);
            if passed {
                break;
            }
        }
        assert!(passed, "gVisor ends again and again: {told}");
    }
    assert!(passed, "{said}");
}

/// Whether these tests pass with gVisor, and what they said.
fn run(which: &[&str]) -> (bool, String) {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(which).arg("--test-threads=2").env(RUNTIME, "runsc");
    for Difference { test, .. } in DIFFERENCES {
        command.args(["--skip", test]);
    }
    let output = command.output().expect("the tests");
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    (output.status.success(), said.into_owned())
}

#[test]
fn the_limits_of_what_may_be_taken_hold() {
    again("limits::resources");
}

#[test]
fn nothing_is_reached_over_the_network() {
    again("limits::network");
}

#[test]
fn nothing_is_gained() {
    again("limits::privileges");
}

#[test]
fn the_surroundings_are_as_bare() {
    again("limits::surroundings");
}

#[test]
fn the_limits_of_a_session_hold() {
    again("limits::session");
    again("limits::set_id");
}

#[test]
fn python_sessions_work() {
    again("session::python");
    again("session::plain");
}

#[test]
fn shells_streams_and_input_work() {
    again("session::shell");
    again("session::streams");
    again("session::input");
}

#[test]
fn every_language_works() {
    again("languages::");
}

#[test]
fn everything_can_be_stopped() {
    again("session::stops");
}

#[test]
fn floods_are_held_and_losses_are_said() {
    again("session::floods");
    again("session::losses");
}

#[test]
fn attacks_on_the_supervisor_fail() {
    again("session::attacks");
}

#[test]
fn the_differences_name_tests_that_there_are() {
    let output =
        Command::new(std::env::current_exe().expect("this program")).arg("--list").output().expect("a list");
    let list = String::from_utf8_lossy(&output.stdout).into_owned();
    // However its lines are broken.
    let told = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/gvisor.md"))
        .expect("the document");
    let told = told.split_whitespace().collect::<Vec<_>>().join(" ");
    for Difference { test, why } in DIFFERENCES {
        assert!(list.contains(&format!("{test}: test")), "{test} is gone");
        assert!(told.contains(why), "docs/gvisor.md does not say: {why}");
    }
}

fn bed() -> Bed {
    registered();
    Bed::with(|settings| settings.runtime = Some("runsc".into()))
}

/// Checks of the posture that find something under gVisor, where it is no way out.
const POSTURE: [&str; 5] =
    ["mount_options", "name_spaces", "new_privileges", "process_one", "system_call_filter"];

#[tokio::test(flavor = "multi_thread")]
async fn a_hostile_script_finds_what_gvisor_does_not_report_and_nothing_else() {
    let found = posture::findings(&bed()).await;
    let open: Vec<_> = posture::open(&found).into_iter().filter(|check| !POSTURE.contains(check)).collect();
    assert_eq!(open, Vec::<&str>::new(), "\n{}", posture::table(&found));
}

#[tokio::test(flavor = "multi_thread")]
async fn code_that_ends_its_own_container_costs_that_container_alone() {
    let bed = bed();
    bed.python("kept = 1").await.ok();
    for code in ["kill -9 1; sleep 5", "kill -STOP 1; sleep 1000"] {
        let stop = Some(Duration::from_secs(4));
        let ran = bed.run(Run::new("sh", code), Around { cancel_after: stop, ..Around::default() }).await;
        assert!(ran.end.failure.is_some(), "{code}: {ran:?}");
        assert_eq!(bed.python("'next'").await.ok().result(), "'next'", "after {code}");
    }
}

/// Either the code is stopped, or gVisor ends with it: both are said, and what comes next works.
#[tokio::test(flavor = "multi_thread")]
async fn a_busy_process_is_stopped_or_takes_its_container_with_it() {
    let bed = bed();
    for (language, code) in [
        ("python", "print('go')\nwhile True: pass"),
        ("python", "import time\nprint('go')\ntime.sleep(1000)"),
        ("python", "import subprocess\nprint('go', flush=True)\nsubprocess.run(['sleep', '1000'])"),
        (
            "python",
            "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nprint('go')\nwhile True: pass",
        ),
        ("sh", "echo go; while :; do :; done"),
        ("sh", "trap '' INT TERM; echo go; sleep 1000; sleep 1000"),
    ] {
        let ran =
            bed.run(Run::new(language, code), Around { cancel_at: Some("go"), ..Around::default() }).await;
        let failure = ran.failure();
        let stopped = failure.ename == "KeyboardInterrupt";
        assert!(stopped || failure.evalue.contains(CRASHED), "{code}: {failure:?}");
        assert_eq!(bed.python("'next'").await.ok().result(), "'next'", "after {code}");
        let left = bed.sh("cat /proc/[0-9]*/cmdline | tr '\\0' ' '").await;
        assert!(!left.ok().out().contains("sleep 1000"), "{code}: {left:?}");
    }
    let tighter = Tighter { timeout: Some(Duration::from_secs(1)), ..Tighter::default() };
    let ran = bed.run(Run { tighter, ..Run::new("python", "while True: pass") }, Around::default()).await;
    let failure = ran.failure();
    assert!(failure.ename == "Timeout" || failure.evalue.contains(CRASHED), "{failure:?}");
    assert_eq!(bed.python("'next'").await.ok().result(), "'next'");
}

#[tokio::test(flavor = "multi_thread")]
async fn too_much_memory_is_named_or_suspected() {
    let bed = Bed::with(|settings| {
        settings.runtime = Some("runsc".into());
        settings.memory = 300 << 20;
    });
    let ran = bed.python("x = bytearray(10**9)\nx[::4096] = b'1' * len(x[::4096])").await;
    let failure = ran.failure();
    assert!(failure.evalue.contains("memory") && failure.evalue.contains("sandbox.memory"), "{failure:?}");
    assert_eq!(bed.python("'next'").await.ok().result(), "'next'");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_cpu_share_is_limited_by_the_machines_own_control_group() {
    let bed = Bed::with(|settings| {
        settings.runtime = Some("runsc".into());
        settings.cpus = 0.1;
    });
    bed.python("1").await.ok();
    let id = bed.containers().remove(0);
    let quota = docker(&["inspect", "--format", "{{.HostConfig.NanoCpus}} {{.State.Pid}}", &id]);
    let text = String::from_utf8_lossy(&quota.stdout).into_owned();
    let (nano, pid) = text.trim().split_once(' ').expect("two numbers");
    assert_eq!(nano, "100000000");
    bed.python("import time\nend = time.monotonic() + 2\nwhile time.monotonic() < end: pass").await.ok();
    let groups = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).expect("its groups");
    let throttled = groups.lines().any(|line| {
        let (controllers, path) =
            line.split_once(':').and_then(|(_, rest)| rest.split_once(':')).expect("a group");
        let folder = if controllers.is_empty() { String::new() } else { format!("/{controllers}") };
        let stat =
            std::fs::read_to_string(format!("/sys/fs/cgroup{folder}{path}/cpu.stat")).unwrap_or_default();
        stat.lines().any(|line| line.starts_with("nr_throttled ") && !line.ends_with(" 0"))
    });
    assert!(throttled, "{groups}");
}
