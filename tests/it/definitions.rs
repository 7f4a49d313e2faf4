//! What a definition gives its container, and what it may not give.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};

use cellblock::config::Network;
use cellblock::event::{Event, channel};
use cellblock::sandbox::backend::{Backend, BackendError};
use cellblock::sandbox::definition::{Build, Mount, Place, Seccomp, Source, User};
use cellblock::sandbox::spec::Identity;
use tokio_util::sync::CancellationToken;

use crate::containers::{Bench, PATIENCE, Ran, docker, eventually, image, labelled, said};

/// Runs a program to its end in that place.
async fn python_in(bench: &Bench, place: Place, code: &str) -> Result<(Ran, Vec<String>), BackendError> {
    use tokio::io::AsyncReadExt;
    let mut plan = bench.plan(&["python3", "-c", code]);
    plan.place = place;
    let mut started = bench.docker.start(plan, None, CancellationToken::new()).await?;
    let mut out = Vec::new();
    tokio::time::timeout(PATIENCE, started.output.read_to_end(&mut out)).await.expect("an end").unwrap();
    let (end, err) = (started.container.obituary().await, started.container.last_words());
    started.container.destroy().await;
    let out = String::from_utf8_lossy(&out).trim().to_owned();
    Ok((Ran { out, err, end }, started.notices))
}

const WRITE: &str = "
import os
artifacts = os.environ['CELLBLOCK_ARTIFACTS']
open(artifacts + '/a', 'w').write('one')
open(os.path.dirname(artifacts) + '/b', 'w').write('two')
print(artifacts, os.stat(artifacts).st_uid == os.getuid())
";

#[tokio::test(flavor = "multi_thread")]
async fn a_session_has_a_folder_beside_the_notebook_and_a_run_one_that_waits() {
    let bench = Bench::new();
    let home = bench.directory.path();
    for (place, inside, outside) in [
        (Place::Session("mine".into()), "/session", "sessions/mine"),
        (Place::Run("20260101-abc".into()), "/work", "outputs/.pending/20260101-abc"),
    ] {
        let (ran, notices) = python_in(&bench, place, WRITE).await.unwrap();
        assert_eq!(ran.out, format!("{inside}/artifacts True"), "{ran:?}");
        assert_eq!(fs::read_to_string(home.join(outside).join("artifacts/a")).unwrap(), "one");
        assert_eq!(fs::read_to_string(home.join(outside).join("b")).unwrap(), "two");
        assert!(!notices.iter().any(|n| n.contains("outputs") || n.contains("sessions")), "{notices:?}");
    }
    let code = "print(open('/session/b').read())";
    let (ran, _) = python_in(&bench, Place::Session("mine".into()), code).await.unwrap();
    assert_eq!(ran.out, "two", "{ran:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_name_of_a_session_or_run_leads_nowhere_else() {
    let bench = Bench::new();
    for name in ["..", ".", "", "a/b", "/etc", "../x", ".pending", "a\0b", "a\nb", &"x".repeat(101)] {
        for place in [Place::Session(name.to_owned()), Place::Run(name.to_owned())] {
            let error = python_in(&bench, place, "").await.unwrap_err();
            assert!(matches!(error, BackendError::Workspace(_)), "{name:?}: {error}");
        }
    }
    assert!(labelled(&bench.label()).is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn links_do_not_give_a_session_another_folder() {
    let foreign = tempfile::tempdir().unwrap();
    for (link, to) in [
        ("sessions", foreign.path().to_str().unwrap()),
        ("sessions/mine", foreign.path().to_str().unwrap()),
        ("sessions/mine", ".."),
        ("sessions/mine", "../mine"),
        ("sessions/mine", "yours"),
        ("sessions/mine", "nowhere"),
    ] {
        let bench = Bench::new();
        let home = bench.directory.path();
        fs::create_dir(home.join("mine")).unwrap();
        if link.contains('/') {
            fs::create_dir_all(home.join("sessions/yours")).unwrap();
        }
        symlink(to, home.join(link)).unwrap();
        let error = python_in(&bench, Place::Session("mine".into()), WRITE).await.unwrap_err();
        assert!(matches!(error, BackendError::Workspace(_)), "{link} -> {to}: {error}");
        assert!(!home.join("mine/artifacts").exists() && !home.join("sessions/yours/artifacts").exists());
    }
    assert_eq!(fs::read_dir(foreign.path()).unwrap().count(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_lies_at_artifacts_already_is_not_given_away() {
    let bench = Bench::new();
    let home = bench.directory.path();
    let other = home.join("other");
    fs::create_dir_all(home.join("sessions/mine")).unwrap();
    fs::create_dir(&other).unwrap();
    symlink("../../other", home.join("sessions/mine/artifacts")).unwrap();
    let before = fs::metadata(&other).unwrap().uid();
    python_in(&bench, Place::Session("mine".into()), "").await.unwrap();
    assert_eq!(fs::metadata(&other).unwrap().uid(), before);
    assert_eq!(fs::read_dir(&other).unwrap().count(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn beside_a_notebook_where_nothing_can_be_made_the_folder_lies_in_memory() {
    let workspace = tempfile::tempdir().unwrap();
    let mut bench = Bench::with(|options| options.directory = "/sys".into());
    let definition = std::sync::Arc::make_mut(&mut bench.definition);
    definition.limits.workspace = workspace.path().to_owned();
    definition.limits.workspace_outside = true;
    for place in [Place::Session("mine".into()), Place::Run("1".into())] {
        let (ran, notices) = python_in(&bench, place, WRITE).await.unwrap();
        assert!(ran.out.ends_with("/artifacts True"), "{ran:?}");
        assert!(notices.iter().any(|n| n.contains("lies in memory")), "{notices:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_definition_gives_mounts_variables_a_user_and_a_writable_root() {
    let data = tempfile::tempdir().unwrap();
    let data_path = data.path().canonicalize().unwrap();
    fs::write(data_path.join("in"), "from the host").unwrap();
    let bench = Bench::of(|definition| {
        let mount = |path: &str, read_only| Mount { host: data_path.clone(), path: path.into(), read_only };
        definition.mounts = vec![mount("/data", true), mount("/more", false)];
        definition.environment = vec![("TZ".into(), "UTC".into()), ("HOME".into(), "/tmp".into())];
        definition.user = User::Id(Identity { uid: 0, gid: 0 });
        definition.read_only = false;
    });
    let code = "
import errno, os
def attempt(path):
    try:
        open(path, 'w').write('x')
        return 'done'
    except OSError as e:
        return errno.errorcode[e.errno]
print(open('/data/in').read(), os.environ['TZ'], os.environ['HOME'], os.getuid(), sep=',')
print(attempt('/data/x'), attempt('/more/x'), attempt('/opt/x'))";
    let ran = bench.python(code, |_| ()).await;
    assert_eq!(ran.out, "from the host,UTC,/tmp,0\nEROFS done done", "{ran:?}");
    assert!(data_path.join("x").exists());
    let ran = Bench::new().python(&code.replace("print(open", "0 and print(open"), |_| ()).await;
    assert!(ran.out.ends_with("EROFS"), "a definition that says nothing has a read-only root: {ran:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mount_that_was_swapped_or_that_code_could_swap_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path().canonicalize().unwrap();
    fs::create_dir_all(home.join("data/sub")).unwrap();
    fs::create_dir_all(home.join("workspace/data")).unwrap();
    fs::create_dir_all(home.join("sessions/x")).unwrap();
    fs::write(home.join("file"), "").unwrap();
    symlink("/etc", home.join("link")).unwrap();
    let at = |host: &str, path: &str| Mount { host: home.join(host), path: path.into(), read_only: true };
    for mount in [
        at("link", "/data"),
        at("link/ssl", "/data"),
        at("missing", "/data"),
        at("file", "/data"),
        at("workspace/data", "/data"),
        at("sessions/x", "/data"),
        Mount { host: "/var/run".into(), path: "/data".into(), read_only: true },
        Mount { host: "/run".into(), path: "/data".into(), read_only: true },
        at("data", "data"),
        at("data", "/data/../etc"),
        at("data", "/workspace"),
        at("data", "/workspace/below"),
        at("data", "/"),
        at("data", "/proc"),
    ] {
        let mut bench = Bench::with(|options| options.directory.clone_from(&home));
        std::sync::Arc::make_mut(&mut bench.definition).mounts = vec![mount.clone()];
        let error = bench.docker.prepare(bench.plan(&["true"]), None).await.map(|_| ()).unwrap_err();
        assert!(matches!(error, BackendError::Workspace(_)), "{mount:?}: {error}");
    }
    // Between the look and the start: somebody puts a link there.
    let mut bench = Bench::with(|options| options.directory.clone_from(&home));
    std::sync::Arc::make_mut(&mut bench.definition).mounts = vec![at("data", "/data")];
    let prepared = bench.prepare(&["python3", "-c", "input()"]).await;
    fs::rename(home.join("data"), home.join("elsewhere")).unwrap();
    symlink("/etc", home.join("data")).unwrap();
    let swapped = bench.docker.launch(prepared, CancellationToken::new()).await.map(|_| ()).unwrap_err();
    assert!(swapped.to_string().contains("replaced"), "{swapped}");
    eventually("nothing is left", || labelled(&bench.label()).is_empty()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_profile_of_system_calls_takes_the_place_of_the_engines() {
    let bench = Bench::of(|definition| {
        let profile = r#"{"defaultAction":"SCMP_ACT_ALLOW","syscalls":[{"names":["mkdir","mkdirat"],
            "action":"SCMP_ACT_ERRNO"}]}"#;
        definition.seccomp = Seccomp::Profile(profile.to_owned());
    });
    let code = "
import os
try:
    os.mkdir('/tmp/x')
    print('done')
except PermissionError:
    print('EPERM')";
    assert_eq!(bench.python(code, |_| ()).await.out, "EPERM");
    assert_eq!(bench.python(code, |p| p.spec.seccomp_profile = None).await.out, "done");
}

#[tokio::test(flavor = "multi_thread")]
async fn proxies_and_authorities_go_where_there_is_a_network_and_nowhere_else() {
    let code = "
import os, ssl
print(os.environ.get('HTTPS_PROXY'), os.environ.get('SSL_CERT_FILE', '').startswith('/etc/cellblock'))
print(len(ssl.create_default_context().get_ca_certs()) > 50)";
    for (network, seen) in
        [(Network::None, "None False\nTrue"), (Network::Bridge, "http://user:password@proxy:1 True\nTrue")]
    {
        let mut bench = Bench::with(|options| {
            options.proxies = vec![("HTTPS_PROXY".into(), "http://user:password@proxy:1".into())];
        });
        std::sync::Arc::make_mut(&mut bench.definition).limits.network = network;
        let ran = bench.python(code, |_| ()).await;
        assert_eq!(ran.out, seen, "{ran:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_container_uses_can_be_seen_and_its_root_be_kept() {
    let mut bench = Bench::with(|options| {
        options.proxies = vec![("HTTPS_PROXY".into(), "http://user:password@proxy:1".into())];
    });
    let definition = std::sync::Arc::make_mut(&mut bench.definition);
    definition.read_only = false;
    definition.user = User::Id(Identity { uid: 0, gid: 0 });
    definition.limits.network = Network::Bridge;
    let code = "
import time
held = bytearray(64 << 20)
open('/kept', 'w').write('kept')
print('ready', flush=True)
end = time.monotonic() + 5
while time.monotonic() < end:
    pass
input()";
    let mut started = bench.start(&["python3", "-c", code], |_| ()).await;
    tokio::io::AsyncReadExt::read_u8(&mut started.output).await.unwrap();
    let usage = started.container.usage().await.unwrap();
    let image = started.container.commit().await.unwrap();
    started.container.destroy().await;
    assert!(usage.memory > 64 << 20 && usage.memory < 1 << 30, "{usage:?}");
    assert!(usage.cpus > 0.05 && usage.cpus < 3.0, "{usage:?}");
    bench.docker.destroy_all().await;
    let label = said(&["image", "inspect", "--format", "{{.Config.Labels}} {{.RepoTags}}", &image]);
    let variables = said(&["image", "inspect", "--format", "{{.Config.Env}}", &image]);
    let seen = said(&["run", "--rm", "--entrypoint", "cat", &image, "/kept"]);
    docker(&["rmi", "-f", &image]);
    assert_eq!(seen, "kept");
    assert!(label.contains("cellblock.kept:1") && label.contains("cellblock-kept:"), "{label}");
    assert!(!variables.contains("password"), "{variables}");
    assert!(started.container.usage().await.is_none());
}

/// A folder to build from, on the tests' own image.
fn build(folder: &std::path::Path, lines: &str) -> Build {
    let context = folder.canonicalize().unwrap();
    fs::write(context.join("Dockerfile"), format!("FROM {}\n{lines}\n", image())).unwrap();
    Build { context, dockerfile: "Dockerfile".into(), arguments: Vec::new(), target: None, seal: None }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dockerfile_is_built_once_and_again_when_it_changes_or_is_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let source = build(folder.path(), "ARG WORD=none\nENV WORD=$WORD\nCOPY . /context");
    let bench = Bench::of(|definition| {
        definition.name = "My_Own".into();
        let arguments = vec![("WORD".to_owned(), "given".to_owned())];
        definition.source = Source::Build(Build { arguments, ..source.clone() });
    });
    let (told, mut events) = channel(1000);
    let first = bench.docker.make(bench.definition.clone(), false, Some(told)).await.unwrap();
    let mut steps = 0;
    while let Some(event) = events.recv().await {
        steps += usize::from(matches!(event, Event::Notice(n) if n.text.contains("step ")));
    }
    let code = "import os; print(os.environ['WORD'])";
    let ran = bench.python(code, |_| ()).await;
    let again = Bench::of(|definition| *definition = (*bench.definition).clone());
    let found = again.docker.make(again.definition.clone(), false, None).await.unwrap();
    let anew = again.docker.make(again.definition.clone(), true, None).await.unwrap();
    let replaced = docker(&["image", "inspect", &first]).status.success();
    fs::write(folder.path().join("more"), "x").unwrap();
    let changed = again.docker.make(again.definition.clone(), false, None).await.unwrap();
    let tags = said(&["images", "-q", "--no-trunc", "cellblock-my-own"]);
    for image in tags.lines() {
        docker(&["rmi", "-f", image]);
    }
    assert_eq!(ran.out, "given", "{ran:?}");
    assert!(steps > 0, "no step was told");
    assert_eq!(found, first, "nothing had changed");
    assert_ne!(anew, first, "it was asked for");
    assert_ne!(changed, anew, "a file was added");
    assert!(!replaced, "the image that was replaced is still there");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_link_in_a_context_does_not_bring_in_the_hosts_file() {
    let (folder, host) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs::write(host.path().join("secret"), "of the host").unwrap();
    symlink(host.path().join("secret"), folder.path().join("leak")).unwrap();
    let source = build(folder.path(), "COPY leak /copied");
    let bench = Bench::of(|definition| {
        definition.name = "leak".into();
        definition.source = Source::Build(source);
    });
    // The link leads to a place inside the context, where there is nothing.
    let error = bench.docker.make(bench.definition.clone(), false, None).await.unwrap_err().to_string();
    assert!(error.contains("container leak") && !error.contains("of the host"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_context_that_code_in_the_sandbox_can_change_is_refused() {
    let mut bench = Bench::new();
    let folder = bench.directory.path().join("workspace/own");
    fs::create_dir_all(&folder).unwrap();
    std::sync::Arc::make_mut(&mut bench.definition).source = Source::Build(build(&folder, ""));
    let error = bench.docker.make(bench.definition.clone(), false, None).await.unwrap_err().to_string();
    assert!(error.contains("code in a sandbox can change"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_that_is_named_is_taken_as_it_is_and_one_that_is_nowhere_is_named_in_the_error() {
    let bench = Bench::of(|definition| definition.source = Source::Image(image()));
    let made = bench.docker.make(bench.definition.clone(), false, None).await.unwrap();
    assert_eq!(made, said(&["image", "inspect", "--format", "{{.Id}}", &image()]));
    let name = "localhost:1/cellblock-test/none:here";
    let bench = Bench::of(|definition| definition.source = Source::Image(name.into()));
    let error = bench.docker.make(bench.definition.clone(), false, None).await.unwrap_err().to_string();
    assert!(error.contains(name), "{error}");
}
