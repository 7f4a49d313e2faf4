//! Registries of containers: what they may say, mistakes, layers, and what a project's may do.

use std::fs;
use std::path::{Path, PathBuf};

use cellblock::config::{Environment, Flavor, ProjectFiles, Settings, Trust};
use cellblock::sandbox::Registry;
use cellblock::sandbox::definition::{Mode, Source};
use cellblock::sandbox::registry::{Draft, Standing};
use tempfile::TempDir;

/// A user with a home, and a project with a notebook in `nb/`.
pub(crate) struct World {
    pub(crate) dir: TempDir,
    pub(crate) settings: Settings,
    pub(crate) trust: Trust,
    pub(crate) flavor: Flavor,
}

impl World {
    pub(crate) fn new() -> Self {
        let dir = TempDir::new().unwrap();
        for folder in ["home/.config/cellblock/containers", "project/nb", "project/containers/box"] {
            fs::create_dir_all(dir.path().join(folder)).unwrap();
        }
        fs::write(dir.path().join("project/containers/box/Dockerfile"), "FROM x\n").unwrap();
        let flavor = Flavor::Markdown;
        World { dir, settings: Settings::builtin(flavor), trust: Trust::Not, flavor }
    }
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().canonicalize().unwrap().join(name)
    }
    pub(crate) fn file(self, name: &str, text: impl AsRef<[u8]>) -> Self {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        self
    }
    pub(crate) fn user(self, text: &str) -> Self {
        self.file("home/.config/cellblock/containers/registry.yaml", text)
    }
    pub(crate) fn project(self, text: &str) -> Self {
        self.file("project/containers/registry.yaml", text)
    }
    pub(crate) fn trusted(mut self) -> Self {
        self.trust = Trust::Given { since: "2026-11-22".to_owned() };
        self
    }
    pub(crate) fn environment(&self) -> Environment {
        [("HOME", self.path("home"))].into_iter().collect()
    }
    pub(crate) fn load(&self) -> Registry {
        let environment = self.environment();
        let draft = Draft::read(&ProjectFiles::find(&self.path("project/nb"), &environment), &environment);
        Registry::load(draft, Standing { flavor: self.flavor, settings: &self.settings, trust: &self.trust })
    }
    /// Loads what must be without a mistake.
    pub(crate) fn good(&self) -> Registry {
        let registry = self.load();
        assert_eq!(registry.errors, Vec::<String>::new());
        registry
    }
}

const EXAMPLE: &str = r#"
containers:
  code-sandbox:
    description: "Python code execution environment"
    dockerfile: "./code-sandbox/Dockerfile"      # or image: / build: {context, args, target}
    languages: [python, sh]
    triggers: ["execute code", "run python", "test this"]
    mode: session            # or ephemeral
    security: {network_mode: none, read_only: false, needs_confirm: false, runtime: default, user: auto, seccomp: default}
    resources: {memory: "256m", cpus: "0.5", timeout: 60, pids: 256, tmpfs: "64m", output: "16m", disk: "1g"}
    mounts: [{host: ./llm_data, path: /data, read_only: true}]
    env: {TZ: UTC}
settings: {auto_cleanup: true, max_concurrent: 3, default: code-sandbox, warm: 1, idle_timeout: 1800}
"#;

#[test]
fn the_example_of_the_guide_means_what_it_says() {
    let folder = Path::new("home/.config/cellblock/containers");
    let world = World::new()
        .user(&EXAMPLE.replace("./llm_data", "~/llm_data"))
        .file(folder.join("code-sandbox/Dockerfile").to_str().unwrap(), "FROM x\n")
        .file(folder.join("code-sandbox/SYSTEM.md").to_str().unwrap(), "Use it well.\n")
        .file("home/llm_data/x", "");
    let registry = world.good();
    let definition = registry.find("code-sandbox").unwrap();
    assert_eq!(definition.description, "Python code execution environment");
    assert_eq!(definition.languages, ["python", "sh"]);
    assert_eq!(definition.triggers, ["execute code", "run python", "test this"]);
    assert_eq!(definition.mode, Mode::Session);
    assert!(!definition.read_only && !definition.confirm && !definition.keep);
    assert_eq!(definition.limits.memory, 256 << 20);
    assert_eq!(definition.limits.tmpfs, 64 << 20);
    assert_eq!(definition.disk, Some(1 << 30));
    let Source::Build(build) = &definition.source else { panic!("{:?}", definition.source) };
    assert_eq!(build.dockerfile, world.path("home/.config/cellblock/containers/code-sandbox/Dockerfile"));
    assert_eq!(build.context, build.dockerfile.parent().unwrap());
    assert_eq!(definition.guide.as_deref(), Some("Use it well.\n"));
    let [mount] = definition.mounts.as_slice() else { panic!("{:?}", definition.mounts) };
    assert_eq!(
        (&mount.host, mount.path.as_str(), mount.read_only),
        (&world.path("home/llm_data"), "/data", true)
    );
    assert_eq!(definition.environment, [("TZ".to_owned(), "UTC".to_owned())]);
    assert_eq!((definition.withheld.len(), &definition.refused), (0, &None));
    let settings = &registry.settings;
    assert_eq!(
        (settings.max_concurrent, settings.default.as_str(), settings.warm),
        (Some(3), "code-sandbox", 1)
    );
    assert_eq!(settings.idle_timeout, Some(std::time::Duration::from_mins(30)));
}

#[test]
fn a_projects_registry_that_only_tightens_is_taken_as_it_stands() {
    let registry = World::new()
        .project("containers:\n  small:\n    languages: [python]\n    resources: {memory: 64m}\n")
        .good();
    let small = registry.find("small").unwrap();
    assert_eq!((small.limits.memory, small.withheld.len(), &small.refused), (64 << 20, 0, &None));
    assert_eq!(registry.containers().len(), 3);
}

#[test]
fn an_image_of_a_projects_making_waits_for_trust() {
    let text = "containers:\n  box:\n    dockerfile: box/Dockerfile\n    languages: [python]\n";
    let refused = World::new().project(text).good().find("box").unwrap().refused.clone().unwrap();
    assert!(refused.contains("cellblock trust "), "{refused}");
    assert_eq!(World::new().project(text).trusted().good().find("box").unwrap().refused, None);
}

/// A registry with one mistake: its text, the line and key that the message names, and what it says.
type Bad = (&'static str, usize, &'static str, &'static str);

const BAD: &[Bad] = &[
    // What is not a registry.
    ("containers:\n\tx: 1\n", 2, "not valid YAML", "tab"),
    ("containers: [\n", 2, "not valid YAML", ""),
    ("a: &x 1\nb: *x\n", 1, "anchors", "write the value out"),
    ("settings: !evil {}\n", 1, "tags", "plain value"),
    ("settings: {}\n---\nsettings: {}\n", 2, "a second document", "one document"),
    ("settings: {}\nsettings: {}\n", 2, "the key settings is here twice", "line 1"),
    ("- a\n", 1, "", "it takes a table of keys, not a list"),
    ("container:\n  x: {}\n", 1, "container", "did you mean containers?"),
    ("zzzzzz: 1\n", 1, "zzzzzz", "the keys here are containers, settings"),
    ("containers: [a]\n", 1, "containers", "it takes a table of keys, not a list"),
    // Containers.
    ("containers:\n  '../x': {languages: [python]}\n", 2, "containers.../x", "a container's name"),
    ("containers:\n  x y: {languages: [python]}\n", 2, "containers.x y", "a container's name"),
    ("containers:\n  -x: {languages: [python]}\n", 2, "containers.-x", "a container's name"),
    ("containers:\n  x: {languages: [sh]}\n  x: {languages: [sh]}\n", 3, "the key x is here twice", "line 2"),
    ("containers:\n  x: python\n", 2, "containers.x", "it takes a table of keys, not a single value"),
    ("containers:\n  x: {}\n", 2, "containers.x", "languages is missing"),
    ("containers:\n  x:\n    languages: []\n", 3, "containers.x.languages", "it names no language"),
    (
        "containers:\n  x:\n    languages: [pythn]\n",
        3,
        "containers.x.languages = pythn",
        "did you mean python?",
    ),
    (
        "containers:\n  x:\n    languages:\n      - python\n      - cobol9000\n",
        5,
        "containers.x.languages",
        "there is no such language",
    ),
    ("containers:\n  x:\n    languages: python\n", 3, "containers.x.languages", "it takes a list"),
    (
        "containers:\n  x:\n    langages: [python]\n    languages: [python]\n",
        3,
        "containers.x.langages",
        "did you mean languages?",
    ),
    (
        "containers:\n  x:\n    languages: [sh]\n    description: [a]\n",
        4,
        "containers.x.description",
        "it takes a single value, not a list",
    ),
    (
        "containers:\n  x:\n    languages: [sh]\n    triggers: [{a: b}]\n",
        4,
        "containers.x.triggers",
        "it takes a single value",
    ),
    (
        "containers:\n  x:\n    languages: [sh]\n    mode: forever\n",
        4,
        "containers.x.mode = forever",
        "it takes `session` or `ephemeral`",
    ),
    (
        "containers:\n  x:\n    languages: [sh]\n    keep: yes\n",
        4,
        "containers.x.keep = yes",
        "`true` or `false`",
    ),
    // Images.
    (
        "containers:\n  x:\n    languages: [sh]\n    dockerfile: nowhere/Dockerfile\n",
        4,
        "containers.x.dockerfile = nowhere/Dockerfile",
        "does not exist",
    ),
    (
        "containers:\n  x:\n    languages: [sh]\n    dockerfile: box\n",
        4,
        "containers.x.dockerfile = box",
        "is not a file",
    ),
    (
        "containers:\n  x:\n    languages: [sh]\n    dockerfile: box/Dockerfile\n    image: a\n",
        5,
        "containers.x.image",
        "image and dockerfile both say",
    ),
    (
        "containers:\n  x:\n    languages: [sh]\n    image: a\n    build: {context: box}\n",
        5,
        "containers.x.build",
        "build and image both say",
    ),
    (
        "containers:\n  x:\n    languages: [sh]\n    image: '-x y'\n",
        4,
        "containers.x.image = -x y",
        "name of an image",
    ),
    (
        "containers:\n  x:\n    languages: [sh]\n    build: {args: {}}\n",
        4,
        "containers.x.build",
        "context is missing",
    ),
    (
        "containers:\n  x:\n    languages: [sh]\n    build: {context: gone}\n",
        4,
        "containers.x.build.context = gone",
        "does not exist",
    ),
    (
        "containers:\n  x:\n    languages: [sh]\n    build: {context: box/Dockerfile}\n",
        4,
        "containers.x.build.context",
        "is not a folder",
    ),
    (
        "containers:\n  x:\n    languages: [sh]\n    build:\n      context: box\n      dockerfile: Other\n",
        6,
        "containers.x.build.dockerfile = Other",
        "there is no file Other",
    ),
    (
        "containers:\n  x:\n    languages: [sh]\n    build:\n      context: box\n      dockerfile: ../registry.yaml\n",
        6,
        "containers.x.build.dockerfile",
        "outside of the context",
    ),
    (
        "containers:\n  x:\n    languages: [sh]\n    build:\n      context: box\n      args: {'A B': 1}\n",
        6,
        "containers.x.build.args.A B",
        "a variable's name",
    ),
    (
        "containers:\n  x:\n    languages: [sh]\n    build:\n      context: box\n      target: a b\n",
        6,
        "containers.x.build.target = a b",
        "a stage",
    ),
    (
        "containers:\n  x:\n    languages: [sh]\n    requirements: gone.txt\n",
        4,
        "containers.x.requirements = gone.txt",
        "does not exist",
    ),
    (
        "containers:\n  x:\n    languages: [sh]\n    environment: {pip: ['git+https://evil/x']}\n",
        4,
        "containers.x.environment.pip",
        "URLs",
    ),
    (
        "containers:\n  x:\n    languages: [sh]\n    environment: {apt: ['-o x']}\n",
        4,
        "containers.x.environment.apt",
        "options are not taken",
    ),
    (
        "containers:\n  x:\n    languages: [sh]\n    environment: {cargo: [x]}\n",
        4,
        "containers.x.environment.cargo",
        "there is no such key",
    ),
    (
        "containers:\n  x:\n    languages: [sh]\n    system: gone.md\n",
        4,
        "containers.x.system = gone.md",
        "does not exist",
    ),
    // Security.
    (
        "containers:\n  x:\n    languages: [sh]\n    security: {network: none}\n",
        4,
        "containers.x.security.network",
        "did you mean network_mode?",
    ),
    (
        "containers:\n  x:\n    languages: [sh]\n    security: {network_mode: host}\n",
        4,
        "containers.x.security.network_mode = host",
        "`none` or `bridge`",
    ),
    (
        "containers:\n  x:\n    languages: [sh]\n    security: {privileged: true}\n",
        4,
        "containers.x.security.privileged",
        "there is no such key",
    ),
    (
        "containers:\n  x:\n    languages: [sh]\n    security: {read_only: 'true'}\n",
        4,
        "containers.x.security.read_only",
        "without quotes",
    ),
    (
        "containers:\n  x:\n    languages: [sh]\n    security: {runtime: 'a b'}\n",
        4,
        "containers.x.security.runtime = a b",
        "runtime",
    ),
    (
        "containers:\n  x:\n    languages: [sh]\n    security: {user: root}\n",
        4,
        "containers.x.security.user = root",
        "`auto`",
    ),
    (
        "containers:\n  x:\n    languages: [sh]\n    security: {user: 0}\n",
        4,
        "containers.x.security.user = 0",
        "which is root",
    ),
    (
        "containers:\n  x:\n    languages: [sh]\n    security: {user: '1000:0'}\n",
        4,
        "containers.x.security.user = 1000:0",
        "which is root",
    ),
    (
        "containers:\n  x:\n    languages: [sh]\n    security: {seccomp: unconfined}\n",
        4,
        "containers.x.security.seccomp = unconfined",
        "no container runs without",
    ),
    (
        "containers:\n  x:\n    languages: [sh]\n    security: {seccomp: box/Dockerfile}\n",
        4,
        "containers.x.security.seccomp",
        "a JSON object",
    ),
    // Limits.
    (
        "containers:\n  x:\n    languages: [sh]\n    resources: {memory: lots}\n",
        4,
        "containers.x.resources.memory = lots",
        "it takes a size",
    ),
    (
        "containers:\n  x:\n    languages: [sh]\n    resources: {memory: 1x}\n",
        4,
        "containers.x.resources.memory = 1x",
        "it takes a size",
    ),
    (
        "containers:\n  x:\n    languages: [sh]\n    resources: {memory: 1m}\n",
        4,
        "containers.x.resources.memory = 1m",
        "at least `32m`",
    ),
    (
        "containers:\n  x:\n    languages: [sh]\n    resources:\n      cpus: -1\n",
        5,
        "containers.x.resources.cpus = -1",
        "a number from",
    ),
    (
        "containers:\n  x:\n    languages: [sh]\n    resources: {timeout: 1d}\n",
        4,
        "containers.x.resources.timeout = 1d",
        "it takes a time",
    ),
    (
        "containers:\n  x:\n    languages: [sh]\n    resources: {pids: 1.5}\n",
        4,
        "containers.x.resources.pids = 1.5",
        "a whole number",
    ),
    (
        "containers:\n  x:\n    languages: [sh]\n    resources: {disk: 1}\n",
        4,
        "containers.x.resources.disk = 1",
        "it takes a size",
    ),
    (
        "containers:\n  x:\n    languages: [sh]\n    resources: {swap: 1g}\n",
        4,
        "containers.x.resources.swap",
        "there is no such key",
    ),
    (
        "containers:\n  x:\n    languages: [sh]\n    resources: {output:}\n",
        4,
        "containers.x.resources.output",
        "it is empty",
    ),
    // Mounts.
    (
        "containers:\n  x:\n    languages: [sh]\n    mounts: [{path: /data}]\n",
        4,
        "containers.x.mounts",
        "host is missing",
    ),
    (
        "containers:\n  x:\n    languages: [sh]\n    mounts: [{host: box}]\n",
        4,
        "containers.x.mounts",
        "path is missing",
    ),
    (
        "containers:\n  x:\n    languages: [sh]\n    mounts: [box]\n",
        4,
        "containers.x.mounts",
        "it takes a table of keys",
    ),
    (
        "containers:\n  x:\n    languages: [sh]\n    mounts: [{host: gone, path: /data}]\n",
        4,
        "containers.x.mounts.host = gone",
        "does not exist",
    ),
    (
        "containers:\n  x:\n    languages: [sh]\n    mounts: [{host: box/Dockerfile, path: /data}]\n",
        4,
        "containers.x.mounts.host",
        "is not a folder",
    ),
    (
        "containers:\n  x:\n    languages: [sh]\n    mounts: [{host: box, path: data}]\n",
        4,
        "containers.x.mounts.path = data",
        "an absolute path",
    ),
    (
        "containers:\n  x:\n    languages: [sh]\n    mounts: [{host: box, path: /data/../etc}]\n",
        4,
        "containers.x.mounts.path",
        "without `..`",
    ),
    (
        "containers:\n  x:\n    languages: [sh]\n    mounts: [{host: box, path: '/data:rw'}]\n",
        4,
        "containers.x.mounts.path",
        "colons",
    ),
    (
        "containers:\n  x:\n    languages: [sh]\n    mounts: [{host: box, path: /}]\n",
        4,
        "containers.x.mounts.path = /",
        "an absolute path",
    ),
    (
        "containers:\n  x:\n    languages: [sh]\n    mounts: [{host: box, path: /workspace/x}]\n",
        4,
        "containers.x.mounts.path",
        "/workspace is the sandbox's own",
    ),
    (
        "containers:\n  x:\n    languages: [sh]\n    mounts: [{host: box, path: /home}]\n",
        4,
        "containers.x.mounts.path",
        "the sandbox's own",
    ),
    (
        "containers:\n  x:\n    languages: [sh]\n    mounts: [{host: box, path: /d}, {host: box, path: /d/}]\n",
        4,
        "containers.x.mounts.host",
        "/d is mounted twice",
    ),
    (
        "containers:\n  x:\n    languages: [sh]\n    mounts: [{host: box, path: /d, mode: rw}]\n",
        4,
        "containers.x.mounts.mode",
        "there is no such key",
    ),
    // Variables.
    (
        "containers:\n  x:\n    languages: [sh]\n    env: [A=b]\n",
        4,
        "containers.x.env",
        "it takes a table of keys",
    ),
    (
        "containers:\n  x:\n    languages: [sh]\n    env: {1A: b}\n",
        4,
        "containers.x.env.1A",
        "a variable's name",
    ),
    (
        "containers:\n  x:\n    languages: [sh]\n    env: {HOME: /x}\n",
        4,
        "containers.x.env.HOME",
        "the sandbox sets",
    ),
    (
        "containers:\n  x:\n    languages: [sh]\n    env: {A: [b]}\n",
        4,
        "containers.x.env.A",
        "it takes a single value",
    ),
    // Settings.
    ("settings: {idle_time: 1}\n", 1, "settings.idle_time", "did you mean idle_timeout?"),
    ("settings: {warm: 65}\n", 1, "settings.warm = 65", "a whole number from 0 to 64"),
    ("settings: {max_concurrent: 0}\n", 1, "settings.max_concurrent = 0", "a whole number from 1"),
    ("settings: {idle_timeout: soon}\n", 1, "settings.idle_timeout = soon", "it takes a time"),
    ("settings: {auto_cleanup: 1}\n", 1, "settings.auto_cleanup = 1", "`true` or `false`"),
    ("settings: {default: pyton}\n", 1, "settings.default = pyton", "did you mean python?"),
    ("settings: {default: '..'}\n", 1, "settings.default = ..", "a container's name"),
];

#[test]
fn every_mistake_names_file_line_and_key_and_says_what_is_right() {
    assert!(BAD.len() >= 40);
    for (text, line, key, why) in BAD {
        let world = World::new().project(text);
        let errors = world.load().errors;
        let [said] = errors.as_slice() else { panic!("{text}\n{errors:#?}") };
        let place = format!("{}:{line}: {key}", world.path("project/containers/registry.yaml").display());
        assert!(said.starts_with(&place) && said.contains(why), "{text}\n{said}\nwanted {place} ... {why}");
    }
}

#[test]
fn every_mistake_is_told_and_none_is_shown_raw() {
    let text = "containers:\n  a: {languages: [x1]}\n  b: {mode: 1}\nsettings: {\"\\e[2J\": 1}\n";
    let errors = World::new().project(text).load().errors;
    assert_eq!(errors.len(), 4, "{errors:#?}");
    assert!(errors.iter().all(|error| !error.contains(char::is_control)), "{errors:?}");
}

#[test]
fn files_that_are_too_large_or_no_files_are_refused() {
    let said = |world: World| world.load().errors.join("\n");
    assert!(said(World::new().project(&"# x\n".repeat(300_000))).contains("larger than 1048576 bytes"));
    let bomb = "a: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]\n";
    assert!(said(World::new().project(bomb)).contains("anchors"));
    let world = World::new();
    std::os::unix::fs::symlink("/dev/zero", world.path("project/containers/registry.yaml")).unwrap();
    assert!(said(world).contains("can't be read"));
    let world = World::new().file("secret.yaml", "Host: secret\n");
    std::os::unix::fs::symlink(world.path("secret.yaml"), world.path("project/containers/registry.yaml"))
        .unwrap();
    let told = said(world);
    assert!(told.contains("leads out of the project") && !told.contains("Host"), "{told}");
}

#[test]
fn no_container_sees_the_keys_the_engine_or_the_system_of_the_host() {
    let world = World::new();
    for folder in ["home/.ssh", "home/.gnupg", "home/.aws", "home/.local/share/jupyter/runtime", "engine"] {
        fs::create_dir_all(world.path(folder)).unwrap();
    }
    std::os::unix::fs::symlink(world.path("home/.ssh"), world.path("project/containers/link")).unwrap();
    let mut world = world.trusted();
    world.settings.docker.host = Some(format!("unix://{}", world.path("engine/engine.sock").display()));
    let hosts = [
        "/",
        "/proc",
        "/proc/self",
        "/sys",
        "/dev",
        "/run",
        "/var/run",
        "~/.ssh",
        "~/.gnupg",
        "~/.aws",
        "~/.config/cellblock",
        "~/.config/cellblock/containers",
        "~/.config",
        "~/",
        "~/.local/share/jupyter",
        "link",
    ];
    let engine = world.path("engine").display().to_string();
    for host in hosts.into_iter().chain([engine.as_str()]) {
        let text = format!(
            "containers:\n  x:\n    languages: [sh]\n    mounts: [{{host: '{host}', path: /data}}]\n"
        );
        world = world.project(&text);
        let said = world.load().errors.join("\n");
        assert!(
            said.contains("registry.yaml:4: containers.x.mounts.host") && said.contains("never given"),
            "{host}: {said}"
        );
        // Neither are they in the user's own registry.
        let own = World { settings: world.settings.clone(), ..World::new() };
        fs::create_dir_all(own.path("home/.local/share/jupyter")).unwrap();
        for folder in [".ssh", ".gnupg", ".aws"] {
            fs::create_dir_all(own.path("home").join(folder)).unwrap();
        }
        std::os::unix::fs::symlink(own.path("home/.ssh"), own.path("home/.config/cellblock/containers/link"))
            .unwrap();
        let said = own.user(&text).load().errors.join("\n");
        assert!(said.contains("never given"), "{host}: {said}");
    }
}

#[test]
fn later_layers_win_by_name_and_the_loser_is_told() {
    let both = "containers:\n  a: {languages: [python]}\n  python: {languages: [python]}\n";
    let world = World::new().project(both).user(both);
    let registry = world.good();
    let names: Vec<_> = registry.containers().iter().map(|c| (c.name.as_str(), c.origin.clone())).collect();
    let user = format!("{}:2", world.path("home/.config/cellblock/containers/registry.yaml").display());
    assert!(names.contains(&("a", user.clone())), "{names:?}");
    assert!(names.contains(&("python", "built in".to_owned())), "{names:?}");
    assert_eq!(registry.warnings.len(), 3, "{:#?}", registry.warnings);
    let project = world.path("project/containers/registry.yaml").display().to_string();
    let told = registry.warnings.iter().find(|told| told.contains("container a ")).unwrap();
    assert!(
        told.starts_with(&format!("{project}:2")) && told.contains(&user) && told.contains("another name"),
        "{told}"
    );
}

#[test]
fn settings_are_layered_key_by_key_and_a_project_tightens() {
    let minutes = |n| Some(std::time::Duration::from_mins(n));
    let plain = World::new().good().settings;
    assert_eq!((plain.max_concurrent, plain.warm, plain.idle_timeout), (None, 1, minutes(30)));
    let mut python = World::new();
    python.flavor = Flavor::Python;
    assert_eq!(python.good().settings.idle_timeout, None);

    let wide = "settings: {auto_cleanup: false, max_concurrent: 5, warm: 9, idle_timeout: 60m}\n";
    let registry = World::new().project(wide).good();
    let kept = &registry.settings;
    assert!(kept.auto_cleanup);
    assert_eq!((kept.max_concurrent, kept.warm, kept.idle_timeout), (Some(5), 4, minutes(30)));
    assert_eq!(registry.warnings.len(), 3, "{:#?}", registry.warnings);
    assert!(registry.warnings.iter().all(|told| told.contains("cellblock trust ")));
    let trusted = World::new().project(wide).trusted().good();
    assert_eq!((trusted.settings.warm, trusted.settings.idle_timeout), (9, minutes(60)));
    assert!(!trusted.settings.auto_cleanup && trusted.warnings.is_empty());

    let tight = "settings: {warm: 0, idle_timeout: 5m, max_concurrent: 2}\n";
    let registry = World::new().project(tight).good();
    assert_eq!((registry.settings.warm, registry.settings.idle_timeout), (0, minutes(5)));
    assert!(registry.warnings.is_empty());
    let user = "settings: {warm: 3, auto_cleanup: false}\n";
    let kept = World::new().project(tight).user(user).good().settings;
    assert_eq!((kept.warm, kept.max_concurrent, kept.auto_cleanup), (3, Some(2), false));
}

#[test]
fn packages_come_from_lists_and_from_a_file_of_requirements() {
    let registry = World::new()
        .user("containers:\n  x:\n    languages: [python]\n    requirements: r.txt\n    environment: {pip: [rich], apt: [jq]}\n")
        .file("home/.config/cellblock/containers/r.txt", "# head\nhttpx >= 0.27, < 1  # why\n\nattrs==25.1.0\n")
        .good();
    assert_eq!(registry.find("x").unwrap().packages.to_string(), "attrs==25.1.0, httpx>=0.27,<1, rich, jq");
    let world = World::new()
        .user("containers:\n  x:\n    languages: [python]\n    requirements: r.txt\n")
        .file("home/.config/cellblock/containers/r.txt", "httpx\n--index-url https://evil\n");
    let said = world.load().errors.join("\n");
    assert!(said.contains(":4: containers.x.requirements") && said.contains("r.txt:2: "), "{said}");
}

#[test]
fn nothing_hidden_in_a_project_is_read_and_no_line_of_a_file_is_quoted() {
    let secret = "TOKEN=hunter2 more";
    for (line, file) in [
        ("requirements: ../.env", "project/.env"),
        ("requirements: ../notes.txt", "project/notes.txt"),
        ("requirements: ../../outside/r.txt", "outside/r.txt"),
        ("system: ../.git/config", "project/.git/config"),
        ("security: {seccomp: ../.env}", "project/.env"),
        ("security: {seccomp: ../notes.json}", "project/notes.json"),
    ] {
        let text = format!("containers:\n  x:\n    languages: [python]\n    {line}\n");
        let said = World::new().project(&text).file(file, format!("\"{secret}\"\n")).load().errors.join("\n");
        assert!(said.contains(":4: ") && !said.contains("hunter2"), "{line}: {said}");
    }
}

#[test]
fn a_limit_on_the_disk_is_one_on_every_file() {
    let text = "containers:\n  x: {languages: [sh], resources: {disk: 64m}}\n";
    let x = World::new().project(text).good().find("x").unwrap().clone();
    assert_eq!((x.disk, x.limits.file_size), (Some(64 << 20), 64 << 20));
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig { cases: 48, ..Default::default() })]
    #[test]
    fn any_registry_is_read_without_a_panic(
        words in proptest::collection::vec(
            proptest::sample::select(vec![
                "containers", "settings", "x", "languages", "security", "mounts", "build", "host", "path", "user",
                ": ", ":\n  ", "\n", "\n    ", "[", "]", "{", "}", ", ", "- ", "python", "/data", "..", "~/", "0",
                "true", "none", "1g", "'", "\"", "#", "box", "\u{0}", "é", "&a", "*a", "!t", "|", ">", "?",
            ]),
            0..40,
        ),
    ) {
        let _ = World::new().project(&words.concat()).load();
    }
}
