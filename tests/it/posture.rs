//! The posture that a hostile script finds: `posture.py` looks for what deepce, amicontained and CDK look for. In a
//! session of ours it finds nothing; in containers that were made carelessly each of its checks finds something.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::json;

use crate::containers::{docker, image};
use crate::session::Bed;

/// Each check, and what it found.
pub(crate) type Findings = BTreeMap<String, Vec<String>>;

/// The script, told of this machine what it compares with.
fn script() -> String {
    let space = |kind: &&str| {
        let link = std::fs::read_link(format!("/proc/self/ns/{kind}")).unwrap();
        ((*kind).to_owned(), link.to_string_lossy().into_owned())
    };
    let spaces: BTreeMap<_, _> = ["pid", "net", "ipc", "mnt", "uts", "cgroup"].iter().map(space).collect();
    let facts = json!({ "name_spaces": spaces, "declared": ["/workspace", "/session"] }).to_string();
    format!("FACTS_TEXT = {facts:?}\n{}", include_str!("posture.py"))
}

fn parsed(text: &str) -> Findings {
    serde_json::from_str(text.trim()).unwrap_or_else(|e| panic!("{e}: {text}"))
}

/// What the script finds in a session.
pub(crate) async fn findings(bed: &Bed) -> Findings {
    parsed(&bed.python(&script()).await.ok().out())
}

/// What it finds in a container made by hand with these options.
fn careless(options: &[String]) -> Findings {
    let (image, script) = (image(), script());
    let mut arguments = vec!["run", "--rm", "--log-driver=none", "--entrypoint=python3"];
    arguments.extend(options.iter().map(String::as_str));
    arguments.extend([image.as_str(), "-c", script.as_str()]);
    let output = docker(&arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    parsed(&String::from_utf8_lossy(&output.stdout))
}

/// The table that is shown when a check that should find nothing finds something.
pub(crate) fn table(findings: &Findings) -> String {
    let line = |(check, found): (&String, &Vec<String>)| {
        format!("{check:28} {}", if found.is_empty() { "-".to_owned() } else { found.join("; ") })
    };
    findings.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// The names of the checks that found something.
pub(crate) fn open(findings: &Findings) -> Vec<&str> {
    findings.iter().filter(|(_, found)| !found.is_empty()).map(|(check, _)| check.as_str()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hostile_script_finds_nothing_in_a_session() {
    let found = findings(&Bed::new()).await;
    assert!(found.len() > 20, "{}", table(&found));
    assert_eq!(open(&found), Vec::<&str>::new(), "\n{}", table(&found));
}

/// Everything that a container should not be given.
fn everything(folder: &Path) -> Vec<String> {
    let risen = folder.join("risen");
    std::fs::write(&risen, "").unwrap();
    std::fs::set_permissions(&risen, std::fs::Permissions::from_mode(0o4755)).unwrap();
    std::fs::write(folder.join("token"), "").unwrap();
    let token = format!("--volume={}:/var/run/secrets/kubernetes.io/serviceaccount", folder.display());
    let options = [
        "--pid=host",
        "--network=host",
        "--ipc=host",
        "--uts=host",
        "--cgroupns=host",
        "--user=0:0",
        "--cap-add=SYS_ADMIN",
        "--security-opt=seccomp=unconfined",
        "--security-opt=apparmor=unconfined",
        "--security-opt=systempaths=unconfined",
        "--device=/dev/null:/dev/odd",
        "--volume=/var/run/docker.sock:/var/run/docker.sock",
        "--volume=/sys/fs/cgroup:/sys/fs/cgroup:rw",
        "--tmpfs=/mnt:rw,suid,dev,exec",
        "--env=AWS_SECRET_ACCESS_KEY=x",
        &token,
    ];
    options.map(str::to_owned).to_vec()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_script_finds_something_by_every_check_in_careless_containers() {
    let folder = tempfile::tempdir().unwrap();
    let mut found = careless(&everything(folder.path()));
    // There process 1 is the host's, which may be closed to the container; here it is the container's own.
    let plain = careless(&["--network=none".to_owned()]);
    for (check, more) in plain {
        found.entry(check).or_default().extend(more);
    }
    let blind: Vec<_> = found.iter().filter(|(_, found)| found.is_empty()).map(|(check, _)| check).collect();
    assert!(blind.is_empty(), "these checks are blind: {blind:?}\n{}", table(&found));
}
