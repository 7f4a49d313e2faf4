//! The Python session: values, errors, displays, magics, questions.

use std::sync::Arc;

use cellblock::event::{AskError, Event};
use cellblock::sandbox::{Completeness, Run};
use serde_json::json;

use super::{Answers, Around, Bed};

#[tokio::test(flavor = "multi_thread")]
async fn a_value_is_a_result_and_state_stays_from_cell_to_cell() {
    let bed = Bed::new();
    assert_eq!(bed.python("x = 20\nx + 1").await.ok().result(), "21");
    let ran = bed.python("print('héllo')\nx * 2").await;
    assert_eq!((ran.ok().result(), ran.out()), ("40".to_owned(), "héllo\n".to_owned()));
    assert_eq!(ran.end.transcript, "[stdout]\nhéllo\n[result]\n40\n");
    assert!(bed.sandbox.python().expect("known by now").ipython.is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_exception_is_an_error_with_the_cells_own_lines_and_colours() {
    let bed = Bed::new();
    let ran = bed.run(Run { count: 7, ..Run::new("python", "a = 1\nboom = a / 0") }, Around::default()).await;
    let failure = ran.failure();
    assert_eq!((failure.ename.as_str(), failure.evalue.as_str()), ("ZeroDivisionError", "division by zero"));
    let text = failure.traceback.join("\n");
    assert!(text.contains("\u{1b}["), "{text}");
    let plain = ran.end.transcript;
    assert!(plain.contains("Cell In[7], line 2") && plain.contains("boom = a / 0"), "{plain}");
    let ran = bed.python("import sys\nsys.exit(3)").await;
    assert_eq!(ran.failure().ename, "SystemExit");
    let ran = bed.python("def f(:\n").await;
    assert_eq!(ran.failure().ename, "SyntaxError");
    let ran = bed.python("boom").await;
    assert_eq!(ran.failure().ename, "NameError", "the variable was never made, and the session lives");
}

#[tokio::test(flavor = "multi_thread")]
async fn figures_tables_and_displays_come_without_being_asked_for() {
    let bed = Bed::new();
    let ran = bed.python("import matplotlib.pyplot as plt\n_ = plt.plot([1, 2])").await;
    let figure = ran.ok().events.iter().find_map(|event| match event {
        Event::Display { bundle, .. } => bundle.data().get("image/png"),
        _ => None,
    });
    assert!(figure.and_then(|f| f.as_str()).expect("a figure").starts_with("iVBOR"));
    let ran = bed.python("import pandas\npandas.DataFrame({'a': [1]})").await;
    let Some(Event::Result { bundle }) = ran.ok().events.last() else { panic!("{ran:?}") };
    assert!(bundle.data()["text/html"].as_str().expect("a table").contains("<table"));
    let code = "from IPython.display import display, clear_output, JSON\n\
                handle = display('first', display_id=True)\n\
                handle.update('second')\n\
                clear_output(wait=True)\n\
                display({'application/json': {'n': float('nan'), 'b': b'\\x00', 's': {1}, 'x': '\\ud800'}}, raw=True)";
    let ran = bed.python(code).await;
    let [
        Event::Display { display_id: Some(id), .. },
        Event::UpdateDisplay { display_id, .. },
        Event::Clear { wait: true },
        Event::Display { .. },
    ] = ran.ok().events.as_slice()
    else {
        panic!("{ran:?}")
    };
    assert_eq!(id, display_id);
}

#[tokio::test(flavor = "multi_thread")]
async fn magics_and_shell_lines_work_as_in_a_notebook() {
    let bed = Bed::new();
    assert_eq!(bed.python("!printf 'a\\nb\\n'; exit 3").await.ok().out(), "a\nb\n");
    assert_eq!(bed.python("_exit_code").await.ok().result(), "3");
    let ran = bed.python("%%bash\necho out; echo err >&2").await;
    assert_eq!((ran.ok().out(), ran.err()), ("out\n".to_owned(), "err\n".to_owned()));
    assert!(bed.python("%%time\n1").await.ok().out().contains("Wall time"));
    assert!(bed.python("%timeit -n1 -r1 1").await.ok().out().contains("loop"));
    assert_eq!(bed.python("%%capture seen\nprint('hidden')").await.ok().out(), "");
    assert_eq!(bed.python("seen.stdout").await.ok().result(), "'hidden\\n'");
    assert!(bed.python("%who").await.ok().out().contains("seen"));
    bed.python("%matplotlib inline").await.ok();
    bed.python("%reset -f").await.ok();
    assert_eq!(bed.python("seen").await.failure().ename, "NameError");
    let ran = bed.python("print?").await;
    assert_eq!(ran.ok().end.payload[0]["source"], "page");
    let ran = bed.python("get_ipython().set_next_input('next')").await;
    assert_eq!(ran.ok().end.payload, [json!({"source": "set_next_input", "text": "next", "replace": false})]);
    assert_eq!(bed.python("import os; os.getcwd()").await.ok().result(), "'/workspace'");
    assert_eq!(bed.python("import asyncio\nawait asyncio.sleep(0, 'woken')").await.ok().result(), "'woken'");
}

#[tokio::test(flavor = "multi_thread")]
async fn silent_runs_and_expressions_follow_the_protocol() {
    let bed = Bed::new();
    let ran = bed.run(Run { count: 1, ..Run::new("python", "'first'") }, Around::default()).await;
    ran.ok();
    let quiet = Run { silent: true, store_history: false, ..Run::new("python", "41 + 1") };
    assert_eq!(bed.run(quiet, Around::default()).await.ok().events, []);
    let mut run = Run { count: 5, ..Run::new("python", "(In[1], Out[1], _)") };
    run.user_expressions.insert("good".into(), json!("1 + 1"));
    run.user_expressions.insert("bad".into(), json!("1 / 0"));
    let ran = bed.run(run, Around::default()).await;
    assert_eq!(ran.ok().result(), "(\"'first'\", 'first', 'first')");
    assert_eq!(ran.end.user_expressions["good"]["data"]["text/plain"], "2");
    assert_eq!(ran.end.user_expressions["bad"]["ename"], "ZeroDivisionError");
    let ran = bed.run(Run { count: 6, ..Run::new("python", "In[5]") }, Around::default()).await;
    assert_eq!(ran.ok().result(), "'(In[1], Out[1], _)'");
}

#[tokio::test(flavor = "multi_thread")]
async fn questions_reach_the_user_and_come_back() {
    let bed = Bed::new();
    let answers = Answers::new([Ok("Ada"), Ok("secret"), Err(AskError::EndOfInput)]);
    let code = "import getpass\nname = input('Name? ')\nword = getpass.getpass()\nprint(name, word)\ninput()";
    let plan = Around { ask: Arc::clone(&answers) as _, ..Around::default() };
    let ran = bed.run(Run::new("python", code), plan).await;
    assert_eq!(ran.out(), "Ada secret\n");
    assert_eq!(ran.failure().ename, "EOFError");
    let asked: Vec<_> =
        answers.1.lock().expect("no panic").iter().map(|q| (q.prompt.clone(), q.password)).collect();
    assert_eq!(asked, [("Name? ".into(), false), ("Password: ".into(), true), (String::new(), false)]);
    let ran = bed.python("input('nobody there')").await;
    assert_eq!(ran.failure().ename, "StdinNotImplementedError");
}

#[tokio::test(flavor = "multi_thread")]
async fn completion_and_inspection_see_live_objects() {
    let bed = Bed::new();
    assert_eq!(bed.sandbox.complete("'x'.upp", 7).await.matches, Vec::<String>::new(), "nothing was started");
    bed.python("word = 'é𝒳'").await.ok();
    let found = bed.sandbox.complete("word.upp", 8).await;
    assert_eq!((found.matches, found.end), (vec!["upper".to_owned()], 8));
    let found = bed.sandbox.complete("'é𝒳'.upp", 8).await;
    assert!(found.matches.iter().any(|m| m.contains("upper")), "{found:?}");
    let seen = bed.sandbox.inspect("word.upper", 10, 0).await.expect("known");
    assert!(seen.data()["text/plain"].as_str().expect("text").contains("uppercase"));
    assert_eq!(bed.sandbox.inspect("nowhere", 3, 0).await, None);
    assert_eq!(bed.sandbox.is_complete("1 + 1").await, Completeness::Complete);
    let Completeness::Incomplete { indent } = bed.sandbox.is_complete("def f():").await else { panic!() };
    assert_eq!(indent, "    ");
    assert_eq!(bed.sandbox.is_complete("x = )").await, Completeness::Invalid);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reset_forgets_and_the_next_cell_works() {
    let bed = Bed::new();
    bed.python("x = 1").await.ok();
    bed.sandbox.reset().await;
    let ran = bed.python("x").await;
    assert_eq!((ran.failure().ename.as_str(), ran.warnings()), ("NameError", String::new()));
}
