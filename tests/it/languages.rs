//! Every language that runs as a process of its own: compiled, fed, heard, failing, interrupted. The programs lie in
//! `languages/NAME/`; a row of the table that has none fails here.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use cellblock::config::{Flavor, Settings};
use cellblock::sandbox::backend::Backend;
use cellblock::sandbox::definition::Definition;
use cellblock::sandbox::docker::Docker;
use cellblock::sandbox::language::{LANGUAGES, Language, Process, Program};
use cellblock::sandbox::{Run, language};

use crate::containers::options;
use crate::session::{Around, Bed};

/// A bed with the polyglot image at hand: it is built once, by whichever test comes first.
async fn bed() -> Bed {
    let lock = fs::File::create(std::env::temp_dir().join("cellblock-test-polyglot.lock")).expect("a lock");
    let lock = tokio::task::spawn_blocking(move || lock.lock().map(|()| lock)).await.expect("no panic");
    let directory = tempfile::tempdir().expect("a directory");
    let definition = Definition::polyglot(&Settings::builtin(Flavor::Markdown).sandbox);
    Docker::new(options(directory.path())).make(Arc::new(definition), false, None).await.expect("the image");
    drop(lock);
    Bed::new()
}

/// All languages but Python, which the tests of the session are about.
fn processes() -> impl Iterator<Item = (&'static Language, &'static Process)> {
    LANGUAGES.iter().filter_map(|language| match &language.program {
        Program::Session => None,
        Program::Process(process) => Some((language, process)),
    })
}

/// A program of the tests.
fn program(language: &Language, process: &Process, which: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/languages").join(language.name);
    let path = folder.join(process.file.replace("cell", which));
    fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// A run in the polyglot container.
fn run(language: &Language, code: impl Into<String>) -> Run {
    Run { container: Some("polyglot".to_owned()), ..Run::new(language.name, code) }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_language_reads_its_input_writes_both_streams_and_exits_as_it_likes() {
    let bed = bed().await;
    for (language, process) in processes() {
        let code = program(language, process, "whole");
        let input = Some("eins\nzwei é\n".to_owned());
        let ran = bed.run(Run { stdin: input, ..run(language, code) }, Around::default()).await;
        // SQL has no exit code of its own.
        let exit = if language.name == "sql" { 1 } else { 3 };
        assert_eq!(ran.end.exit_code, Some(exit), "{}: {ran:?}", language.name);
        assert_eq!(ran.out(), "out eins\nout zwei é\n", "{}: {ran:?}", language.name);
        assert!(ran.err().contains("err é\n"), "{}: {ran:?}", language.name);
        assert!(ran.failure().evalue.contains(&format!("the code ended with exit code {exit}")), "{ran:?}");
        let ran = bed.run(run(language, program(language, process, "whole")), Around::default()).await;
        assert_eq!(ran.out(), "", "{}: no input is the end of it: {ran:?}", language.name);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mistake_is_told_as_the_compiler_or_interpreter_tells_it() {
    let bed = bed().await;
    for (language, process) in processes() {
        let said = match language.name {
            "sh" | "bash" => "line 2: syntax error",
            "javascript" => "SyntaxError: missing )",
            "typescript" => "TS2322",
            "java" => "cell.java:2: error: incompatible types",
            "c" => "cell.c:2:",
            "c++" => "cell.cpp:2:",
            "go" => "cell.go:3:",
            "rust" => "cell.rs:2:",
            "ruby" => "cell.rb:2:",
            "r" => "Error: unexpected",
            "perl" => "cell.pl line 2",
            "php" => "cell.php on line 2",
            "sql" => "near line 2",
            other => panic!("what does {other} say to a mistake?"),
        };
        let ran = bed.run(run(language, program(language, process, "broken")), Around::default()).await;
        // The TypeScript compiler writes to standard output.
        let told = ran.out() + &ran.err();
        assert!(told.contains(said), "{}: {told}", language.name);
        let who = if process.compile.is_some() { "the compiler" } else { "the code" };
        assert!(ran.failure().evalue.contains(&format!("{who} ended with exit code")), "{ran:?}");
        if process.compile.is_some() {
            assert!(!told.contains("/tmp/"), "{}: {told}", language.name);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endless_program_is_interrupted_with_its_children() {
    let bed = bed().await;
    let shell = language::find("sh").expect("a shell");
    bed.run(run(shell, "mark=same"), Around::default()).await.ok();
    let mut whole = true;
    for (language, process) in processes() {
        let at_go = Around { cancel_at: Some("go\n"), ..Around::default() };
        let ran = bed.run(run(language, program(language, process, "endless")), at_go).await;
        let failure = ran.failure();
        // Where signals take long to arrive (gVisor on a busy machine) the container may have to go with it.
        assert_eq!(failure.ename, "KeyboardInterrupt", "{}: {failure:?}", language.name);
        assert!(failure.evalue.starts_with("the code was interrupted"), "{}: {failure:?}", language.name);
        whole &= failure.evalue == "the code was interrupted";
        let look = "cat /proc/[0-9]*/cmdline | tr '\\0' ' '";
        let left = bed.run(run(shell, look), Around::default()).await;
        assert!(!left.ok().out().contains("sleep 1000"), "{}: {left:?}", language.name);
    }
    let mark = bed.run(run(shell, "echo $mark"), Around::default()).await.ok().out();
    assert_eq!(
        mark,
        if whole { "same\n" } else { "\n" },
        "the shell's state is lost with its container alone"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn every_language_says_its_version_and_is_chosen_by_its_name() {
    let bed = bed().await;
    let shell = language::find("sh").expect("a shell");
    for language in LANGUAGES {
        let ran = bed.run(run(shell, language.version.join(" ")), Around::default()).await;
        assert!(ran.ok().out().contains(|c: char| c.is_ascii_digit()), "{}: {ran:?}", language.name);
    }
    for (alias, code) in [("js", "console.log(1)"), ("RB", "puts 1"), ("sqlite", ".headers off\nSELECT 1;")] {
        let ran = bed.run(Run::new(alias, code), Around::default()).await;
        assert_eq!((ran.ok().out().trim(), ran.end.container.as_str()), ("1", "polyglot"));
    }
    assert_eq!(bed.run(Run::new("sh", "true"), Around::default()).await.end.container, "python");
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_languages_that_say_so_keep_state() {
    let bed = bed().await;
    let shell = language::find("sh").expect("a shell");
    bed.run(run(shell, "kept=yes; cd /usr"), Around::default()).await.ok();
    let ran = bed.run(
        Run { container: Some("polyglot".into()), ..Run::new("ruby", "puts Dir.pwd") },
        Around::default(),
    );
    assert_eq!(ran.await.ok().out(), "/workspace\n", "other languages begin in the workspace");
    assert_eq!(bed.run(run(shell, "echo $kept; pwd"), Around::default()).await.ok().out(), "yes\n/usr\n");
    let python = language::find("python").expect("Python");
    bed.run(run(python, "kept = 1"), Around::default()).await.ok();
    assert_eq!(bed.run(run(python, "kept"), Around::default()).await.ok().result(), "1");
}

#[test]
fn the_documents_table_has_every_language() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/languages.md");
    let text = fs::read_to_string(path).expect("docs/languages.md");
    for language in LANGUAGES {
        let names: Vec<_> =
            std::iter::once(&language.name).chain(language.aliases).map(|n| format!("`{n}`")).collect();
        let begin = format!("| {} | ", names.join(" "));
        let row =
            text.lines().find(|line| line.starts_with(&begin)).unwrap_or_else(|| panic!("no row {begin}"));
        assert_eq!(row.contains("| yes |"), language.keeps_state, "{row}");
        if let Program::Process(process) = &language.program {
            let first = process.compile.unwrap_or(process.run)[0];
            assert!(row.contains(&format!("`{first}")), "{row}");
        }
    }
}
