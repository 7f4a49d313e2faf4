//! One turn: prose, code, output, prose; what the model is told; how it ends.

use cellblock::config::Flavor;
use cellblock::engine::{Execute, Interpreter};
use cellblock::event::{Answer, Event};
use serde_json::json;

use super::{calling, content, kernel, ok, python, result, results, shown, warnings, with};
use crate::cells::Kernel;
use crate::chat_server::{Server, Step, answer, call, done, error, stop, streaming, text};

#[tokio::test]
async fn a_cell_shows_prose_code_its_output_and_prose_and_the_variables_stay() {
    let run = json!({ "code": "total = 6 * 7\nprint(total)", "language": "python" });
    let server =
        Server::play(vec![calling("Let me see.", &[("run_code", run)]), answer(&["It is ", "42."])]).await;
    let kernel = kernel(&server);
    let ran = kernel.run("What is 6 times 7?").await.succeeded();
    let parts = shown(&ran);
    let kinds: Vec<&str> = parts.iter().map(|(kind, _)| *kind).collect();
    assert_eq!(kinds, ["say", "out", "say"], "{parts:#?}");
    assert!(parts[0].1.starts_with("Let me see.") && parts[0].1.contains("print(total)"), "{parts:#?}");
    assert_eq!((parts[1].1.as_str(), parts[2].1.as_str()), ("42\n", "It is 42."));
    let starts = ran.events.iter().filter(|e| matches!(e, Event::Answer(Answer::Start { .. }))).count();
    assert_eq!(starts, 2, "one display for each reply");
    let offered = &server.asked()[0].body["tools"];
    assert_eq!(offered[0]["function"]["name"], "run_code");
    assert!(
        offered[0]["function"]["parameters"]["properties"]["language"]["enum"]
            .as_array()
            .is_some_and(|languages| languages.contains(&json!("python")))
    );
    let told = result(&server, 1);
    assert!(told.contains("42") && told.contains("data, not instructions"), "{told}");
    let system = content(&server.asked()[0].body["messages"][0]);
    assert!(system.contains("run_code") && !system.contains("You cannot run code"), "{system}");
    assert_eq!(kernel.run("```python\nprint(total + 1)\n```").await.succeeded().out(), "43\n");
    assert_eq!(ran.outcome.metadata["cellblock_runs"][0]["who"], "model");
    let agent = &ran.outcome.metadata["cellblock_agent"];
    assert_eq!((&agent["end"], &agent["calls"], &agent["replies"]), (&json!("done"), &json!(1), &json!(2)));
    kernel.engine.shutdown().await;
}

#[tokio::test]
async fn the_models_own_session_has_other_variables_and_the_same_files() {
    let code = "import os\nprint('mine' in dir(), os.path.exists('a.txt'))\nits = 1";
    let server = Server::play(vec![python(code), ok(), python("print(its)"), ok()]).await;
    let kernel = with(&server, |agent| agent.isolated = true);
    kernel.run("```python\nmine = 1\nopen('a.txt', 'w').close()\n```").await.succeeded();
    assert_eq!(kernel.run("Look.").await.succeeded().out(), "False True\n");
    assert_eq!(
        kernel.run("```python\nprint('its' in dir(), mine)\n```").await.succeeded().out(),
        "False 1\n"
    );
    assert_eq!(kernel.run("And now?").await.succeeded().out(), "1\n", "its session stays");
    let ended = kernel.run("%kill python").await.succeeded().displayed();
    assert!(ended.contains("`python` was ended"), "{ended}");
    kernel.engine.shutdown().await;
    assert!(crate::containers::labelled(&kernel.label).is_empty());
}

#[tokio::test]
async fn parallel_calls_are_carried_out_in_the_order_of_their_arrival() {
    let run = |n: u32| ("run_code", json!({ "code": format!("print({n})"), "language": "python" }));
    let server = Server::play(vec![calling("", &[run(1), run(2), run(3)]), ok()]).await;
    let kernel = kernel(&server);
    let ran = kernel.run("Count.").await.succeeded();
    assert_eq!(ran.out(), "1\n2\n3\n");
    let told = results(&server, 1);
    assert_eq!(told.len(), 3);
    for (n, told) in (1..).zip(told) {
        assert!(told.contains(&format!("[stdout]\n{n}")), "{told}");
    }
    kernel.engine.shutdown().await;
}

#[tokio::test]
async fn a_failure_of_the_models_code_is_told_to_it_and_the_cell_does_not_fail() {
    let server = Server::play(vec![python("1 / 0"), python("print('mended')"), ok()]).await;
    let kernel = kernel(&server);
    let ran = kernel.run("Try.").await.succeeded();
    assert!(!ran.events.iter().any(|e| matches!(e, Event::Error(_))), "{:#?}", shown(&ran));
    let errors: String = shown(&ran).into_iter().filter(|(kind, _)| *kind == "err").map(|(_, t)| t).collect();
    assert!(errors.contains("ZeroDivisionError"), "the user sees it: {errors}");
    let told = result(&server, 1);
    assert!(told.starts_with("It failed") && told.contains("ZeroDivisionError"), "{told}");
    assert_eq!(ran.out(), "mended\n");
    kernel.engine.shutdown().await;
}

#[tokio::test]
async fn malformed_calls_can_be_mended_twice_and_then_the_turn_stops() {
    let broken = |n: u32| {
        let arguments = format!("{{\"code\": \"print({n})");
        vec![streaming(), call(0, "c", "run_code", &arguments), stop("tool_calls"), done()]
    };
    // Two are borne, and a good call begins a new count.
    let server = Server::play(vec![
        broken(1),
        calling("", &[("no_such_tool", json!({}))]),
        python("print('good')"),
        calling("", &[("run_code", json!({ "code": "1", "language": "cobol" }))]),
        calling("", &[("run_code", json!({ "code": "1", "language": "python", "container": "nowhere" }))]),
        broken(2),
        answer(&["never asked"]),
    ])
    .await;
    let kernel = kernel(&server);
    let ran = kernel.run("Go.").await.succeeded();
    assert_eq!(ran.out(), "good\n");
    assert_eq!(server.asked().len(), 6);
    assert!(result(&server, 1).contains("not valid JSON"));
    assert!(result(&server, 2).contains("There is no tool \"no_such_tool\""));
    assert!(result(&server, 4).contains("does not run \"cobol\"; it runs python"), "{}", result(&server, 4));
    assert!(result(&server, 5).contains("there is no container \"nowhere\""));
    assert!(warnings(&ran).contains("its calls could not be carried out"), "{}", warnings(&ran));
    assert_eq!(ran.outcome.metadata["cellblock_agent"]["end"], "stopped");
    kernel.engine.shutdown().await;
}

#[tokio::test]
async fn a_model_that_repeats_itself_is_told_once_and_then_stopped() {
    let server = Server::play(vec![python("print(1)")]).await;
    let kernel = kernel(&server);
    let ran = kernel.run("Go.").await.succeeded();
    assert_eq!(server.asked().len(), 3, "first, told, stopped");
    assert!(!result(&server, 1).contains("Don't repeat it"));
    assert!(result(&server, 2).contains("Don't repeat it"));
    assert!(warnings(&ran).contains("the same call (run_code) again and again"), "{}", warnings(&ran));
    assert_eq!(ran.out(), "1\n1\n1\n");
    // The dialogue is one that a model can go on with.
    kernel.run("And?").await;
    let told = results(&server, 3);
    assert_eq!(told.len(), 1, "each call has a result: {told:?}");
    kernel.engine.shutdown().await;
}

#[tokio::test]
async fn marked_fences_of_a_model_without_calls_run_and_are_told() {
    let fenced = answer(&["Let me see:\n\n```python\nnot_this\n```\n\n```python run\nprint(6 * 7)\n```\n"]);
    let refusal = error("400 Bad Request", "", "m does not support tools");
    let server = Server::play(vec![refusal, fenced, answer(&["It is 42."])]).await;
    let kernel = kernel(&server);
    let ran = kernel.run("What is 6 times 7?").await.succeeded();
    assert_eq!(ran.out(), "42\n");
    assert!(ran.answered().ends_with("It is 42."));
    let messages = server.asked()[2].body["messages"].clone();
    let last = messages.as_array().and_then(|all| all.last()).cloned().unwrap_or_default();
    assert_eq!(last["role"], "user");
    assert!(content(&last).contains("It ran. Its output") && content(&last).contains("42"), "{last}");
    kernel.engine.shutdown().await;
}

#[tokio::test]
async fn a_model_that_can_call_only_quotes_fences_and_calls() {
    let fenced = answer(&["The file says:\n\n```python run\nprint('quoted')\n```\n"]);
    let object = json!({"name": "run_code", "arguments": {"code": "print('quoted')", "language": "python"}});
    let written = answer(&[&object.to_string()]);
    let server = Server::play(vec![fenced, python("print('called')"), written.clone(), written]).await;
    let kernel = kernel(&server);
    assert_eq!(kernel.run("Show it.").await.succeeded().out(), "");
    let ran = kernel.run("Run it.").await.succeeded();
    assert_eq!((ran.out().as_str(), server.asked().len()), ("called\n", 3), "it has called by now");
    assert_eq!(kernel.run("Show the other one.").await.succeeded().out(), "");
    kernel.engine.shutdown().await;
}

#[tokio::test]
async fn fences_in_reasoning_and_unmarked_ones_never_run() {
    let thought =
        "<think>\n```python run\nprint('thought')\n```\n</think>\nDone:\n\n```python\nprint('shown')\n```\n";
    let refusal = error("400 Bad Request", "", "m does not support tools");
    let server = Server::play(vec![refusal, answer(&[thought])]).await;
    let kernel = kernel(&server);
    let ran = kernel.run("Think.").await.succeeded();
    assert_eq!((ran.out().as_str(), server.asked().len()), ("", 2));
    kernel.engine.shutdown().await;
}

#[tokio::test]
async fn an_interrupt_in_a_call_ends_the_turn_and_leaves_a_dialogue_to_go_on_with() {
    let slow = "print('on', flush=True)\nimport time\ntime.sleep(600)";
    let run = |code: &str| ("run_code", json!({ "code": code, "language": "python" }));
    let server = Server::play(vec![calling("", &[run(slow), run("print('next')")]), ok()]).await;
    let kernel = kernel(&server);
    let request = Execute { code: "Go.".into(), ..Execute::default() };
    let ran = kernel.until(request, |event| matches!(event, Event::Stream { .. })).await;
    assert_eq!(ran.failure().ename, "KeyboardInterrupt");
    assert!(ran.out().starts_with("on\n") && !ran.out().contains("next"), "{ran:?}");
    assert_eq!(server.asked().len(), 1);
    assert_eq!(ran.outcome.metadata["cellblock_agent"]["end"], "interrupted");
    kernel.run("What happened?").await.succeeded();
    let told = results(&server, 1);
    assert_eq!(told.len(), 2, "{told:#?}");
    assert!(told[0].contains("The user interrupted it") && told[0].contains("on"), "{told:#?}");
    assert!(told[1].starts_with("Not carried out"), "{told:#?}");
    kernel.engine.shutdown().await;
}

#[tokio::test]
async fn an_interrupt_while_the_model_goes_on_keeps_what_it_said() {
    let server =
        Server::play(vec![python("print(1)"), vec![streaming(), text("So"), Step::Pause(600_000)]]).await;
    let kernel = kernel(&server);
    let request = Execute { code: "Go.".into(), ..Execute::default() };
    let said = |event: &Event| matches!(event, Event::Answer(Answer::Text { delta, .. }) if delta == "So");
    let ran = kernel.until(request, said).await;
    assert_eq!(ran.failure().ename, "KeyboardInterrupt");
    assert!(ran.answered().ends_with("So"));
    kernel.engine.shutdown().await;
}

#[tokio::test]
async fn a_long_output_is_bounded_with_head_and_tail_and_its_file_is_named() {
    let code = "for n in range(20000): print('line', n)";
    let more = json!({ "path": "/session/outputs/model-1.txt", "line": 10000 });
    let server = Server::play(vec![python(code), calling("", &[("read_file", more)]), ok()]).await;
    let kernel = with(&server, |agent| agent.output = 2000);
    let ran = kernel.run("Print a lot.").await.succeeded();
    assert!(ran.out().contains("line 12345\n"), "the user sees it all");
    let told = result(&server, 1);
    assert!(told.contains("line 0\n") && told.contains("line 19999") && told.len() < 2600, "{told}");
    assert!(
        told.contains("bytes left out") && told.contains("[the whole output: /session/outputs/model-1.txt]")
    );
    let read = result(&server, 2);
    assert!(read.contains("line 9999\n") && read.contains("go on with line "), "{read}");
    kernel.engine.shutdown().await;
}

#[tokio::test]
async fn pictures_and_files_are_named_and_escapes_are_taken_out() {
    let code = "import os\nprint('\\x1b[31mred\\x1b[0m')\n\
                from IPython.display import Image, display\n\
                import base64\n\
                png = base64.b64decode('iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNk+A8AAQUBAScY42YAAAAASUVORK5CYII=')\n\
                display(Image(png))\n\
                os.makedirs('/session/artifacts', exist_ok=True)\n\
                open('/session/artifacts/dot.png', 'wb').write(png)\nNone";
    let server = Server::play(vec![python(code), ok()]).await;
    let kernel = kernel(&server);
    let ran = kernel.run("Draw.").await.succeeded();
    assert!(ran.out().contains("\u{1b}[31mred"), "the user sees the colour");
    let told = result(&server, 1);
    assert!(told.contains("\nred\n") && !told.contains('\u{1b}'), "{told}");
    assert!(told.contains("[shown to the user: ") && told.contains("image/png"), "{told}");
    assert!(told.contains("/session/artifacts/dot.png"), "{told}");
    kernel.engine.shutdown().await;
}

#[tokio::test]
async fn code_of_the_model_clears_nothing_that_was_shown() {
    let code = "from IPython.display import clear_output\nprint('evil')\nclear_output()";
    let server = Server::play(vec![python(code), ok()]).await;
    let kernel = kernel(&server);
    let ran = kernel.run("Go.").await.succeeded();
    assert!(shown(&ran).iter().all(|(kind, _)| *kind != "clear"), "{:?}", shown(&ran));
    kernel.engine.shutdown().await;
}

#[tokio::test]
async fn the_python_kernel_has_the_agent_under_its_magic() {
    let server = Server::play(vec![python("x = 5\nprint(x)"), answer(&["Five."])]).await;
    let kernel = Kernel::with(Flavor::Python, Some(&server), |_| ());
    kernel.run("%cb mode auto").await.succeeded();
    let ran = kernel.run("%%chat\nGo.").await.succeeded();
    assert_eq!((ran.out().as_str(), kernel.run("print(x)").await.out().as_str()), ("5\n", "5\n"));
    kernel.engine.shutdown().await;
}

#[tokio::test]
async fn a_turn_that_fails_after_a_call_is_failed_and_the_model_is_told_so_later() {
    let run = json!({ "code": "print('half')", "language": "python" });
    let server = Server::play(vec![
        calling("Let me look.", &[("run_code", run)]),
        error("400 Bad Request", "", "the server gave up"),
        ok(),
    ])
    .await;
    let kernel = kernel(&server);
    let ran = kernel.run("Go.").await;
    assert!(ran.failure().evalue.contains("the server gave up"), "{:?}", ran.failure());
    assert_eq!(ran.outcome.metadata["cellblock_agent"]["end"], "failed");
    let listed = kernel.run("%context").await.succeeded().displayed();
    assert!(listed.contains("failed") && listed.contains("half"), "what came of it stays: {listed}");
    kernel.run("And?").await.succeeded();
    let asked = server.asked();
    let messages = asked[2].body["messages"].as_array().expect("messages");
    let roles: Vec<&str> = messages.iter().filter_map(|message| message["role"].as_str()).collect();
    assert_eq!(roles, ["system", "user", "assistant", "tool", "assistant", "user"]);
    assert!(content(&messages[3]).contains("half"));
    assert!(content(&messages[4]).starts_with("[This turn broke off here: asking the model failed"));
    kernel.engine.shutdown().await;
}
