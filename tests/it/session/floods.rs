//! Too much of everything: output, displays, processes.

use cellblock::event::{Event, Stream};
use cellblock::sandbox::Run;

use super::{Around, Bed};

const MB: usize = 1 << 20;

#[tokio::test(flavor = "multi_thread")]
async fn fifty_megabytes_arrive_whole_below_the_cap() {
    let bed = Bed::with(|settings| settings.output = 1 << 30);
    let ran = bed.python("import sys\nfor i in range(500_000): sys.stdout.write('x' * 99 + '\\n')").await;
    let out = ran.ok().out();
    assert_eq!(out.len(), 50_000_000);
    assert!(out.split_terminator('\n').all(|line| line.len() == 99));
}

#[tokio::test(flavor = "multi_thread")]
async fn above_the_cap_the_whole_text_is_in_a_file_and_the_user_is_told_where() {
    let bed = Bed::with(|settings| settings.output = MB as u64);
    for (language, code) in [
        ("python", "import sys\nprint('first')\nfor n in range(300_000): print('line', n)\n1 / 0"),
        ("sh", "echo first; seq 600000; exit 3"),
    ] {
        let ran = bed.run(Run::new(language, code), Around::default()).await;
        assert!(ran.out().len() <= MB && ran.out().len() > MB / 2, "{}", ran.out().len());
        assert!(["ZeroDivisionError", "ExitCode"].contains(&ran.failure().ename.as_str()));
        let told = ran.warnings();
        assert_eq!(told.matches("/workspace/.cellblock/").count(), 1, "{told}");
        let name = told.split("/workspace/").nth(1).and_then(|t| t.split(' ').next()).expect("a path");
        let file = bed.directory.path().join("workspace").join(name);
        let whole = std::fs::read_to_string(file).expect("the file");
        assert!(whole.starts_with("first\n") && whole.starts_with(&ran.out()), "{language}");
        assert!(whole.ends_with(if language == "sh" { "600000\n" } else { "line 299999\n" }), "{language}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_file_is_bounded_too_and_a_blocked_folder_is_said() {
    let bed = Bed::with(|settings| {
        settings.output = MB as u64;
        settings.spill = 2 * MB as u64;
    });
    let ran = bed.sh("head -c 9000000 /dev/zero | tr '\\0' y").await;
    assert!(ran.ok().warnings().contains("neither shown nor kept"), "{}", ran.warnings());
    bed.sh("mv .cellblock kept; ln -s /etc .cellblock").await.ok();
    let ran = bed.sh("head -c 3000000 /dev/zero | tr '\\0' y").await;
    assert!(ran.ok().warnings().contains("no file for it can be made"), "{}", ran.warnings());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_cap_counts_displays_and_never_the_error() {
    let bed = Bed::with(|settings| settings.output = MB as u64);
    let code = "from IPython.display import display, clear_output, HTML\n\
                for n in range(50): display({'text/plain': 'x' * 100_000}, raw=True)\n\
                for n in range(50_000): clear_output()\nboom";
    let ran = bed.python(code).await;
    assert_eq!(ran.failure().ename, "NameError");
    assert!(ran.warnings().contains("were left out"), "{}", ran.warnings());
    assert!(ran.events.len() < 20_000, "{}", ran.events.len());
    let run = Run { shown: ran.end.shown, ..Run::new("python", "print('no room is left' * 1000)") };
    let next = bed.run(run, Around::default()).await;
    assert!(next.ok().out().len() < 200, "{}", next.out());
    assert!(next.warnings().contains("cut here"), "{}", next.warnings());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_surface_that_does_not_read_does_not_stall_the_guest() {
    let bed = Bed::new();
    let code = "import time\nbegun = time.monotonic()\nprint('stall')\n\
                for n in range(80_000): print('x' * 99)\nprint(time.monotonic() - begun)";
    let plan = Around { stall_at: Some("stall"), ..Around::default() };
    let ran = bed.run(Run::new("python", code), plan).await;
    let out = ran.ok().out();
    assert_eq!(out.lines().count(), 80_002);
    let spent: f64 = out.lines().last().expect("a line").parse().expect("a number");
    assert!(spent < ran.took.as_secs_f64() / 2.0, "the guest waited: {spent} s of {:?}", ran.took);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_is_interrupted_and_its_rest_is_kept() {
    let bed = Bed::new();
    for (language, code) in [("sh", "yes flood"), ("python", "while True: print('flood')")] {
        let plan = Around { cancel_at: Some("flood"), ..Around::default() };
        let ran = bed.run(Run::new(language, code), plan).await;
        assert_eq!(ran.failure().ename, "KeyboardInterrupt");
        assert!(ran.text(Stream::Stdout).starts_with("flood\n"));
    }
    assert_eq!(bed.python("1").await.ok().result(), "1");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fork_bomb_ends_with_its_shell() {
    let bed = Bed::new();
    bed.python("kept = 1").await.ok();
    let code = "bomb() { bomb | bomb & }; bomb; sleep 1; echo over";
    // Whether the shell itself still gets a process for `sleep` is a matter of luck.
    let _ = bed.sh(code).await;
    let ran = bed.sh("ls -d /proc/[0-9]* | wc -l").await;
    let processes: u32 = ran.ok().out().trim().parse().expect("a number");
    assert!(processes < 12, "{processes} are left");
    let after = bed.python("1 + 1").await;
    assert_eq!(after.ok().result(), "2");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_huge_display_is_joined_and_one_above_the_limit_is_left_out() {
    let bed = Bed::with(|settings| settings.output = 1 << 30);
    let show = |size: usize| format!("display({{'text/plain': 'x' * {size}}}, raw=True)\nprint('after')");
    let ran = bed.python(&show(5 * MB)).await;
    let display = ran.ok().events.iter().find_map(|event| match event {
        Event::Display { bundle, .. } => Some(bundle),
        _ => None,
    });
    let bundle = display.expect("a display");
    assert_eq!(bundle.data()["text/plain"].as_str().expect("text").len(), 5 * MB);
    let ran = bed.python(&show(70 * MB)).await;
    assert_eq!(ran.ok().out(), "after\n");
    assert!(ran.warnings().contains("left out"), "{}", ran.warnings());
}
