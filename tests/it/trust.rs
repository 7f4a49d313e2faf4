//! Trust in a project: what waits for it, what it is bound to, and what takes it back.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Output;
use std::sync::Arc;

use cellblock::config::{Inputs, Network, ProjectFiles, Trust, load_project, standing};
use cellblock::sandbox::backend::Backend;
use cellblock::sandbox::definition::{Definition, Seccomp, User};
use cellblock::sandbox::docker::Docker;
use cellblock::sandbox::registry::Draft;

use super::cli::{cellblock, text};
use super::containers::options;
use super::registry::World;

/// What widens: a line of a container, and what shows that it is in force.
type Widening = (&'static str, fn(&Definition) -> bool);

const WIDENINGS: &[Widening] = &[
    ("security: {network_mode: bridge}", |d| d.limits.network == Network::Bridge),
    ("security: {read_only: false}", |d| !d.read_only),
    ("security: {runtime: runsc}", |d| d.limits.runtime.is_some()),
    ("security: {user: 1234}", |d| matches!(d.user, User::Id(_))),
    ("security: {seccomp: box/profile.json}", |d| matches!(d.seccomp, Seccomp::Profile(_))),
    ("resources: {memory: 2g}", |d| d.limits.memory == 2 << 30),
    ("resources: {cpus: 3}", |d| d.limits.cpus > 2.5),
    ("resources: {timeout: 2h}", |d| d.limits.timeout.unwrap().as_secs() == 7200),
    ("resources: {timeout: none}", |d| d.limits.timeout.is_none()),
    ("resources: {pids: 1000}", |d| d.limits.pids == 1000),
    ("resources: {tmpfs: 1g}", |d| d.limits.tmpfs == 1 << 30),
    ("resources: {output: 64m}", |d| d.limits.output == 64 << 20),
    ("mounts: [{host: box, path: /data, read_only: false}]", |d| !d.mounts[0].read_only),
    ("mounts: [{host: ../../outside, path: /data}]", |d| !d.mounts.is_empty()),
    ("mounts: [{host: link, path: /data}]", |d| !d.mounts.is_empty()),
    ("mounts: [{host: .., path: /data}]", |d| !d.mounts.is_empty()),
    ("mounts: [{host: ../.git, path: /data}]", |d| !d.mounts.is_empty()),
    ("environment: {pip: [rich]}", |d| !d.packages.is_empty()),
    ("requirements: box/requirements.txt", |d| !d.packages.is_empty()),
    ("env: {LD_PRELOAD: /workspace/x.so}", |d| !d.environment.is_empty()),
    ("env: {PATH: /workspace}", |d| !d.environment.is_empty()),
    ("env: {PYTHONPATH: /workspace}", |d| !d.environment.is_empty()),
    ("keep: true", |d| d.keep),
    ("system: ../../outside/SYSTEM.md", |d| d.guide.is_some()),
    ("dockerfile: box/Dockerfile", |d| d.refused.is_none()),
    ("dockerfile: ../../outside/Dockerfile", |d| d.refused.is_none()),
    ("build: {context: box, args: {A: b}}", |d| d.refused.is_none()),
    ("image: evil:latest", |d| d.refused.is_none()),
];

/// A project with everything that the table names.
fn world(line: &str) -> World {
    let world = World::new()
        .project(&format!("containers:\n  x:\n    languages: [python]\n    {line}\n"))
        .file("project/containers/box/profile.json", "{}")
        .file("project/containers/box/requirements.txt", "rich\n")
        .file("project/.git/config", "")
        .file("outside/Dockerfile", "FROM x\n")
        .file("outside/SYSTEM.md", "x");
    std::os::unix::fs::symlink(world.path("outside"), world.path("project/containers/link")).unwrap();
    world
}

#[test]
fn everything_that_widens_waits_for_trust_and_says_so() {
    for (line, in_force) in WIDENINGS {
        let registry = world(line).good();
        let x = registry.find("x").unwrap();
        assert!(!in_force(x), "{line} is in force without trust");
        let told: Vec<_> = x.withheld.iter().chain(&x.refused).collect();
        assert_eq!(told.len(), 1, "{line}: {told:?}");
        assert!(told[0].contains("cellblock trust "), "{line}: {told:?}");
        assert_eq!(registry.asks.len(), 1, "{line}: {:?}", registry.asks);
        let registry = world(line).trusted().good();
        let x = registry.find("x").unwrap();
        assert!(in_force(x), "{line} is not in force with trust");
        assert_eq!((x.withheld.len(), &x.refused), (0, &None), "{line}");
        assert_eq!(registry.asks.len(), 1, "{line}: {:?}", registry.asks);
        // The user's own registry needs nobody's leave.
        let own = World::new()
            .user(&format!("containers:\n  x:\n    languages: [python]\n    {line}\n"))
            .file("home/.config/cellblock/containers/box/Dockerfile", "FROM x\n");
        if line.starts_with("security: {n")
            || line.starts_with("resources")
            || line.starts_with("dockerfile: box")
        {
            assert!(in_force(own.good().find("x").unwrap()), "{line} in the user's own");
        }
    }
}

#[test]
fn what_is_inside_the_project_and_read_only_needs_no_trust() {
    for line in [
        "mounts: [{host: box, path: /data}]",
        "env: {TZ: UTC}",
        "security: {needs_confirm: true, read_only: true, network_mode: none, runtime: default}",
        "resources: {memory: 64m, cpus: 0.5, timeout: 5, pids: 32, tmpfs: 8m, output: 1m, disk: 1g}",
        "system: box/Dockerfile",
    ] {
        let registry = world(line).good();
        let x = registry.find("x").unwrap();
        assert_eq!((x.withheld.len(), &x.refused, registry.asks.len()), (0, &None, 0), "{line}");
    }
}

/// A home and a project on the command line.
fn run(world: &World, arguments: &[&str]) -> Output {
    cellblock(&world.path("home")).current_dir(world.path("project/nb")).args(arguments).output().unwrap()
}

fn state(world: &World) -> Trust {
    let environment = world.environment();
    let project = ProjectFiles::find(&world.path("project/nb"), &environment);
    let draft = Draft::read(&project, &environment);
    standing(&project, &environment, || draft.matters())
}

fn trust(world: &World) {
    let output = run(world, &["trust", "--yes"]);
    assert!(output.status.success(), "{output:?}");
    assert!(state(world).given());
}

#[test]
fn trust_is_shown_asked_for_remembered_listed_and_taken_back() {
    let world =
        world("dockerfile: box/Dockerfile").file("project/cellblock.toml", "[sandbox]\nnetwork = 'bridge'\n");
    // Without a terminal, silence is a no.
    let output = run(&world, &["trust"]);
    assert_eq!(output.status.code(), Some(1));
    let shown = text(&output.stdout);
    assert!(shown.contains("containers.x.dockerfile = ") && shown.contains("registry.yaml:4"), "{shown}");
    assert!(shown.contains("sandbox.network = bridge") && shown.contains("cellblock.toml:2"), "{shown}");
    assert!(text(&output.stderr).contains("nothing was trusted"));
    assert_eq!(state(&world), Trust::Not);
    let config = text(&run(&world, &["config"]).stdout);
    assert!(config.contains("is not trusted"), "{config}");

    trust(&world);
    let file = world.path("home/.config/cellblock/trust.toml");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let listed = text(&run(&world, &["trust", "--list"]).stdout);
    assert!(listed.starts_with("valid ") && listed.contains("/project\n"), "{listed}");
    let config = text(&run(&world, &["config"]).stdout);
    assert!(config.contains("is trusted, since ") && config.contains("bridge"), "{config}");

    fs::write(world.path("project/containers/box/more"), "x").unwrap();
    assert!(text(&run(&world, &["trust", "--list"]).stdout).starts_with("changed "));
    let config = text(&run(&world, &["config"]).stdout);
    assert!(config.contains("has changed since you trusted it on "), "{config}");
    trust(&world);
    assert_eq!(text(&run(&world, &["trust", "--list"]).stdout).lines().count(), 1);
    assert!(run(&world, &["trust", "--revoke"]).status.success());
    assert_eq!(state(&world), Trust::Not);
    assert_eq!(text(&run(&world, &["trust", "--list"]).stdout), "nothing is trusted\n");
    assert_eq!(run(&world, &["trust", "--revoke"]).status.code(), Some(1));

    trust(&world);
    fs::remove_dir_all(world.path("project/containers")).unwrap();
    fs::remove_file(world.path("project/cellblock.toml")).unwrap();
    assert!(text(&run(&world, &["trust", "--list"]).stdout).starts_with("missing "));
    let output = run(&world, &["trust"]);
    assert!(text(&output.stderr).contains("nothing to trust"), "{output:?}");
}

#[test]
fn any_change_takes_trust_back() {
    type Change = fn(&World);
    let changes: &[(&str, Change)] = &[
        ("the settings", |w| fs::write(w.path("project/cellblock.toml"), "[sandbox]\npids = 100\n").unwrap()),
        ("the settings' end", |w| fs::remove_file(w.path("project/cellblock.toml")).unwrap()),
        ("the Dockerfile", |w| fs::write(w.path("project/containers/box/Dockerfile"), "FROM y\n").unwrap()),
        ("a new file", |w| fs::write(w.path("project/containers/box/new"), "").unwrap()),
        ("a new folder", |w| fs::create_dir(w.path("project/containers/box/sub")).unwrap()),
        ("a mode", |w| {
            let path = w.path("project/containers/box/Dockerfile");
            fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
        }),
        ("a name", |w| {
            let (old, new) = ("project/containers/box/a", "project/containers/box/b");
            fs::rename(w.path(old), w.path(new)).unwrap();
        }),
        ("a link", |w| {
            let path = w.path("project/containers/box/a");
            fs::remove_file(&path).unwrap();
            std::os::unix::fs::symlink("Dockerfile", path).unwrap();
        }),
        ("the guide", |w| fs::write(w.path("project/GUIDE.md"), "other").unwrap()),
        ("where a mount leads", |w| {
            fs::remove_file(w.path("project/containers/link")).unwrap();
            std::os::unix::fs::symlink(w.path("other"), w.path("project/containers/link")).unwrap();
        }),
    ];
    for (what, change) in changes {
        let text = "containers:\n  x:\n    languages: [sh]\n    dockerfile: box/Dockerfile\n    system: ../GUIDE.md\n    mounts: [{host: link, path: /data}]\n";
        let world = world("")
            .project(text)
            .file("project/cellblock.toml", "[sandbox]\nnetwork = 'bridge'\n")
            .file("project/GUIDE.md", "x")
            .file("project/containers/box/a", "same")
            .file("other/x", "");
        trust(&world);
        assert!(state(&world).given(), "nothing changed");
        change(&world);
        assert!(matches!(state(&world), Trust::Changed { .. }), "{what}: {:?}", state(&world));
    }
}

#[test]
fn what_was_read_is_what_is_judged_even_when_it_changes_at_once() {
    let world = world("image: good").file("project/cellblock.toml", "[sandbox]\npids = 100\n");
    trust(&world);
    let environment = world.environment();
    let project = ProjectFiles::find(&world.path("project/nb"), &environment);
    let draft = Draft::read(&project, &environment);
    // Between reading and judging both files are replaced.
    let evil = "containers:\n  x: {languages: [python], image: evil}\n";
    fs::write(world.path("project/containers/registry.yaml"), evil).unwrap();
    fs::write(world.path("project/cellblock.toml"), "[sandbox]\nnetwork = 'bridge'\n").unwrap();
    let trust = standing(&project, &environment, || draft.matters());
    assert!(trust.given());
    let inputs = Inputs {
        flavor: world.flavor,
        directory: world.path("project/nb"),
        environment: environment.clone(),
        flags: Vec::new(),
    };
    let loaded = load_project(&inputs, &project, &trust);
    assert_eq!((loaded.settings.sandbox.network, loaded.settings.sandbox.pids), (Network::None, 100));
    let standing = cellblock::sandbox::registry::Standing {
        flavor: world.flavor,
        settings: &loaded.settings,
        trust: &trust,
    };
    let registry = cellblock::sandbox::Registry::load(draft, standing);
    assert!(format!("{:?}", registry.find("x").unwrap().source).contains("good"));
    assert!(matches!(state(&world), Trust::Changed { .. }));
}

#[test]
fn a_trusted_project_moves_the_walls_of_the_sandbox_and_nothing_else() {
    let world = world("").file(
        "project/cellblock.toml",
        "[sandbox]\nnetwork = 'bridge'\nmemory = '2g'\n[model]\nbase_url = 'http://evil.example/v1'\n[docker]\nhost = \
         'tcp://evil:1'\n[log]\nfilter = 'trace'\n",
    );
    let load = |trust: &Trust| {
        let environment = world.environment();
        let project = ProjectFiles::find(&world.path("project/nb"), &environment);
        let directory = world.path("project/nb");
        load_project(
            &Inputs { flavor: world.flavor, directory, environment, flags: Vec::new() },
            &project,
            trust,
        )
    };
    let refused = |trust: &Trust| load(trust).refusals.iter().map(|r| r.key.clone()).collect::<Vec<_>>();
    let untrusted = load(&Trust::Not);
    assert_eq!(untrusted.refusals.len(), 5);
    for refusal in &untrusted.refusals {
        let named = refusal.to_string().contains("cellblock trust ");
        assert_eq!(named, refusal.key.starts_with("sandbox."), "{refusal}");
    }
    let given = Trust::Given { since: "2026-11-22".to_owned() };
    assert_eq!(refused(&given), ["model.base_url", "docker.host", "log.filter"]);
    assert_eq!(load(&given).settings.sandbox.memory, 2 << 30);
    let changed = load(&Trust::Changed { since: "2026-11-22".to_owned() });
    assert!(changed.refusals[0].to_string().contains("changed since you trusted it on 2026-11-22"));
}

#[test]
fn what_is_too_much_to_look_at_is_not_trusted() {
    let world = world("dockerfile: box/Dockerfile");
    for n in 0..10_001 {
        fs::write(world.path("project/containers/box").join(n.to_string()), "").unwrap();
    }
    let output = run(&world, &["trust", "--yes"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("more than 10000 files"), "{output:?}");
    assert_eq!(state(&world), Trust::Not);
}

#[test]
fn a_record_that_others_could_have_written_counts_for_nothing() {
    let world = world("image: x");
    trust(&world);
    let file = world.path("home/.config/cellblock/trust.toml");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).unwrap();
    assert!(matches!(state(&world), Trust::Unclear { .. }));
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    assert!(state(&world).given());
    fs::write(&file, "[[trusted]]\nnonsense = 1\n").unwrap();
    assert!(matches!(state(&world), Trust::Unclear { .. }));
}

#[test]
fn a_project_with_mistakes_is_not_trusted() {
    let output = run(&world("mode: x"), &["trust", "--yes"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(text(&output.stderr).contains("registry.yaml:4: containers.x.mode"), "{output:?}");
}

#[tokio::test]
async fn nothing_else_is_built_than_what_was_trusted() {
    let world = world("dockerfile: box/Dockerfile");
    trust(&world);
    let environment = world.environment();
    let project = ProjectFiles::find(&world.path("project/nb"), &environment);
    let draft = Draft::read(&project, &environment);
    let trust = standing(&project, &environment, || draft.matters());
    let standing = cellblock::sandbox::registry::Standing {
        flavor: world.flavor,
        settings: &world.settings,
        trust: &trust,
    };
    let registry = cellblock::sandbox::Registry::load(draft, standing);
    let trusted = Arc::clone(registry.find("x").unwrap());
    // While the kernel runs, and before the image is first needed.
    fs::write(world.path("project/containers/box/Dockerfile"), "FROM scratch\n").unwrap();
    let docker = Docker::new(options(&world.path("project/nb")));
    let refused = docker.make(trusted, false, None).await.unwrap_err().to_string();
    assert!(refused.contains("is not what you trusted") && refused.contains("cellblock trust"), "{refused}");
    docker.destroy_all().await;
}
