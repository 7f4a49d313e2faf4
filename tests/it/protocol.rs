//! The protocol over real sockets, against a scripted interpreter and through a strict client.

use std::time::Duration;

use cellblock::config::{Flavor, Updates};
use cellblock::jupyter::{ExitReason, Options};
use serde_json::{Value, json};

use crate::scripted::{Kernel, interrupt, options};
use crate::wire_client::{Channel, Client, Message, PATIENCE, Request};

/// An `execute_request` with some members of the content and the metadata changed.
pub(crate) fn execute(client: &mut Client, code: &str, content: &Value, metadata: &Value) -> Request {
    let mut whole = json!({
        "code": code, "silent": false, "store_history": true, "user_expressions": {},
        "allow_stdin": true, "stop_on_error": true,
    });
    for (name, value) in content.as_object().expect("an object") {
        whole[name] = value.clone();
    }
    let header = client.session.header("execute_request");
    client.send_with(Channel::Shell, &header, metadata, &whole)
}

/// Everything between busy and idle, and the reply.
pub(crate) fn finish(client: &mut Client, request: &Request) -> (Vec<Message>, Message) {
    client.expect_busy(request);
    let mut messages = client.collect_until_idle(request);
    messages.pop();
    (messages, client.expect_reply(request, "execute_reply"))
}

fn run(client: &mut Client, code: &str) -> (Vec<Message>, Message) {
    let request = client.execute(code);
    finish(client, &request)
}

fn kinds(messages: &[Message]) -> Vec<&str> {
    messages.iter().map(Message::kind).collect()
}

#[test]
fn kernel_info_is_the_same_on_shell_and_control_and_promises_only_what_works() {
    let kernel = Kernel::start();
    let mut client = kernel.client();
    for channel in [Channel::Shell, Channel::Control] {
        let request = client.send(channel, "kernel_info_request", &json!({}));
        client.expect_busy(&request);
        client.expect_idle(&request);
        if channel == Channel::Shell {
            // JupyterLab leaves out the statuses of this request, and has no other when it comes back after a restart.
            let status = client.expect_iopub_any(&json!({}));
            assert_eq!((status.kind(), &status.content["execution_state"]), ("status", &json!("idle")));
        }
        let reply = client.expect_reply(&request, "kernel_info_reply");
        assert_eq!(reply.content["status"], "ok");
        assert_eq!(reply.content["protocol_version"], "5.5");
        assert_eq!(reply.content["implementation"], "cellblock");
        assert_eq!(reply.content["language_info"]["name"], "script");
        assert_eq!(reply.content["supported_features"], json!([]));
    }
    kernel.shut_down(client);
}

#[test]
fn a_request_whose_metadata_is_no_object_is_answered_like_any_other() {
    let kernel = Kernel::start();
    let mut client = kernel.client();
    for metadata in [json!("text"), json!(null), json!(["a", 1])] {
        let request = execute(&mut client, "print a", &json!({}), &metadata);
        let (messages, reply) = finish(&mut client, &request);
        assert_eq!(kinds(&messages), ["execute_input", "stream"], "{metadata}");
        assert_eq!(reply.content["status"], "ok", "{metadata}");
    }
    kernel.shut_down(client);
}

#[test]
fn every_subscriber_gets_its_welcome() {
    let kernel = Kernel::start();
    let first = kernel.client();
    // Connecting asserts the welcome.
    let second = kernel.client();
    drop(second);
    kernel.shut_down(first);
}

#[test]
fn a_cell_shows_its_input_its_output_in_order_and_its_result() {
    let kernel = Kernel::start();
    let mut client = kernel.client();
    let code = "print a\nwarn b\nprint c\ndisplay d\nupdate e\nclear\nresult f";
    let request = execute(&mut client, code, &json!({"user_expressions": {"x": "1"}}), &json!({}));
    client.expect_busy(&request);
    assert_eq!(client.expect_execute_input(&request, code), 1);
    client.expect_stream_text(&request, "stdout", "a\n");
    client.expect_stream_text(&request, "stderr", "b\n");
    client.expect_stream_text(&request, "stdout", "c\n");
    let display = client.expect_iopub(&request, "display_data");
    assert_eq!(display.content["data"], json!({"text/plain": "d"}));
    let update = client.expect_iopub(&request, "update_display_data");
    assert_eq!(update.content["transient"], display.content["transient"]);
    assert_eq!(client.expect_iopub(&request, "clear_output").content, json!({"wait": true}));
    let result = client.expect_iopub(&request, "execute_result");
    assert_eq!(result.content, json!({"data": {"text/plain": "f"}, "metadata": {}, "execution_count": 1}));
    client.expect_idle(&request);
    let reply = client.expect_reply(&request, "execute_reply");
    assert_eq!(
        reply.content,
        json!({"status": "ok", "execution_count": 1, "user_expressions": {"x": "1"}, "payload": []})
    );
    assert_eq!(reply.metadata["scripted"], true);
    assert!(reply.metadata["started"].is_string());
    kernel.shut_down(client);
}

#[test]
fn only_stored_cells_with_text_take_a_count_and_silent_ones_show_no_input_and_no_result() {
    let kernel = Kernel::start();
    let mut client = kernel.client();
    for (content, code, count, shown) in [
        (json!({}), "result a", 1, vec!["execute_input", "execute_result"]),
        (json!({}), " \n", 1, vec!["execute_input", "error"]),
        (json!({"store_history": false}), "result b", 1, vec!["execute_input", "execute_result"]),
        (json!({"silent": true}), "print c\nresult d", 1, vec!["stream"]),
        (json!({}), "result e", 2, vec!["execute_input", "execute_result"]),
    ] {
        let request = execute(&mut client, code, &content, &json!({}));
        let (messages, reply) = finish(&mut client, &request);
        assert_eq!(kinds(&messages), shown, "{code:?}");
        assert_eq!(reply.content["execution_count"], count, "{code:?}");
    }
    kernel.shut_down(client);
}

#[test]
fn a_failure_is_an_error_an_error_reply_and_cancels_the_cells_that_wait() {
    let kernel = Kernel::start();
    let mut client = kernel.client();
    let failing = client.execute("sleep 300\nfail it broke");
    let waiting = client.execute("print never");
    let question = client.send(Channel::Shell, "complete_request", &json!({"code": "é𝒳", "cursor_pos": 2}));
    let lenient = execute(&mut client, "print never", &json!({"stop_on_error": false}), &json!({}));

    let (messages, reply) = finish(&mut client, &failing);
    assert_eq!(kinds(&messages), ["execute_input", "error"]);
    assert_eq!(messages[1].content["ename"], "ScriptError");
    assert_eq!(reply.content["status"], "error");
    assert_eq!(
        (&reply.content["ename"], &reply.content["evalue"]),
        (&json!("ScriptError"), &json!("it broke"))
    );
    for request in [&waiting, &lenient] {
        client.expect_busy(request);
        client.expect_idle(request);
        let reply = client.expect_reply(request, "execute_reply");
        assert_eq!(reply.content["status"], "error", "a bare 'aborted' counts as success for some clients");
        assert_eq!(reply.content["ename"], "ExecutionAborted");
        assert_eq!(reply.content["execution_count"], 1);
        assert_eq!(reply.content["payload"], json!([]));
    }
    client.expect_busy(&question);
    client.expect_idle(&question);
    let reply = client.expect_reply(&question, "complete_reply");
    assert_eq!(reply.content["matches"], json!(["é𝒳!"]));
    assert_eq!(reply.content["cursor_end"], 2);

    let (_, reply) = run(&mut client, "print again");
    assert_eq!(reply.content["execution_count"], 2);
    kernel.shut_down(client);
}

#[test]
fn a_failure_that_does_not_stop_on_error_lets_the_next_cell_run() {
    let kernel = Kernel::start();
    let mut client = kernel.client();
    let failing = execute(&mut client, "sleep 200\nfail", &json!({"stop_on_error": false}), &json!({}));
    let next = client.execute("print next");
    assert_eq!(finish(&mut client, &failing).1.content["status"], "error");
    assert_eq!(finish(&mut client, &next).1.content["status"], "ok");
    kernel.shut_down(client);
}

#[test]
fn an_interrupt_is_answered_at_once_and_stops_what_runs() {
    let kernel = Kernel::start();
    let mut client = kernel.client();
    let running = client.execute("print on\nwait");
    let waiting = client.execute("print never");
    client.expect_busy(&running);
    client.expect_execute_input(&running, "print on\nwait");
    client.expect_stream_text(&running, "stdout", "on\n");

    let interrupt = client.send(Channel::Control, "interrupt_request", &json!({}));
    assert_eq!(client.expect_reply(&interrupt, "interrupt_reply").content, json!({"status": "ok"}));
    let reply = client.expect_reply(&running, "execute_reply");
    assert_eq!(reply.content["ename"], "KeyboardInterrupt");
    assert_eq!(client.expect_reply(&waiting, "execute_reply").content["ename"], "ExecutionAborted");
    // Two requests are served at the same time here: each one's messages are in order.
    let mut seen = std::collections::HashMap::<String, Vec<String>>::new();
    for _ in 0..6 {
        let message = client.next_iopub();
        let what = message.content["execution_state"].as_str().unwrap_or(message.kind()).to_owned();
        seen.entry(message.parent_id().expect("a parent").to_owned()).or_default().push(what);
    }
    assert_eq!(seen[&interrupt.msg_id], ["busy", "idle"]);
    assert_eq!(seen[&running.msg_id], ["error", "idle"]);
    assert_eq!(seen[&waiting.msg_id], ["busy", "idle"]);

    let idle = client.send(Channel::Control, "interrupt_request", &json!({}));
    client.expect_busy(&idle);
    client.expect_idle(&idle);
    client.expect_reply(&idle, "interrupt_reply");
    assert_eq!(
        run(&mut client, "print fine").1.content["status"],
        "ok",
        "an old interrupt reached a new cell"
    );
    kernel.shut_down(client);
}

#[test]
fn questions_go_to_the_client_that_asked_for_the_cell_and_old_replies_do_not_count() {
    let kernel = Kernel::start();
    let mut client = kernel.client();
    let other = kernel.client();
    let request = client.execute("print before\nask name?\npassword secret?");
    let first = client.expect_input_request(&request);
    assert_eq!(first.content, json!({"prompt": "name?", "password": false}));
    client.answer(&first, "Zoë");
    let second = client.expect_input_request(&request);
    assert_eq!(second.content, json!({"prompt": "secret?", "password": true}));
    client.answer(&first, "too late");
    client.answer(&second, "hush");
    let (messages, reply) = finish(&mut client, &request);
    let text: String = messages[1..].iter().filter_map(|m| m.content["text"].as_str()).collect();
    assert_eq!(text, "before\ngot Zoë\ngot hush\n");
    assert_eq!(reply.content["status"], "ok");
    let mut other = other;
    for _ in 0..messages.len() + 2 {
        assert_eq!(other.next_iopub().parent_id(), Some(request.msg_id.as_str()));
    }
    drop(other);
    kernel.shut_down(client);
}

#[test]
fn a_question_ends_with_the_end_of_input_with_an_interrupt_and_where_nobody_may_be_asked() {
    let kernel = Kernel::start();
    let mut client = kernel.client();

    let request = client.execute("ask end?");
    let question = client.expect_input_request(&request);
    client.answer(&question, "\u{4}");
    let (_, reply) = finish(&mut client, &request);
    assert_eq!(reply.content["evalue"], "end of input");

    let request = client.execute("ask stop?");
    let question = client.expect_input_request(&request);
    let interrupt = client.send(Channel::Control, "interrupt_request", &json!({}));
    client.expect_reply(&interrupt, "interrupt_reply");
    let reply = client.expect_reply(&request, "execute_reply");
    assert_eq!(reply.content["evalue"], "the question was interrupted");
    for _ in 0..6 {
        client.next_iopub();
    }
    client.answer(&question, "nobody listens");

    let request = execute(&mut client, "ask no?", &json!({"allow_stdin": false}), &json!({}));
    let (_, reply) = finish(&mut client, &request);
    assert_eq!(reply.content["evalue"], "this front end does not support input requests");
    kernel.shut_down(client);
}

#[test]
fn what_is_unknown_or_unreadable_or_not_offered_is_survived_and_answered() {
    let kernel = Kernel::start();
    let mut client = kernel.client();
    for channel in [Channel::Shell, Channel::Control] {
        let request = client.send(channel, "no_such_request", &json!({"a": 1}));
        client.expect_busy(&request);
        client.expect_idle(&request);
    }
    for (channel, kind, content, reply, name) in [
        (Channel::Shell, "execute_request", json!({}), "execute_reply", "BadRequest"),
        (Channel::Shell, "execute_request", json!({"code": 1}), "execute_reply", "BadRequest"),
        (Channel::Shell, "complete_request", json!({"code": []}), "complete_reply", "BadRequest"),
        (
            Channel::Shell,
            "history_request",
            json!({"hist_access_type": "all"}),
            "history_reply",
            "BadRequest",
        ),
        (Channel::Control, "execute_request", json!({"code": "print 1"}), "execute_reply", "WrongChannel"),
        (Channel::Control, "debug_request", json!({"command": "attach"}), "debug_reply", "NotSupported"),
        (Channel::Control, "create_subshell_request", json!({}), "create_subshell_reply", "NotSupported"),
    ] {
        let request = client.send(channel, kind, &content);
        client.expect_busy(&request);
        client.expect_idle(&request);
        let reply = client.expect_reply(&request, reply);
        assert_eq!(
            (&reply.content["status"], &reply.content["ename"]),
            (&json!("error"), &json!(name)),
            "{kind}"
        );
        if reply.kind() == "execute_reply" {
            assert_eq!(reply.content["execution_count"], 0);
        }
    }
    client.send(Channel::Stdin, "input_reply", &json!({"value": "nobody asked"}));
    client.send(Channel::Stdin, "input_reply", &json!({"value": 1}));
    client.send(Channel::Stdin, "execute_request", &json!({"code": "print 1"}));
    assert_eq!(run(&mut client, "print fine").1.content["status"], "ok");
    kernel.shut_down(client);
}

#[test]
fn a_request_for_a_subshell_that_does_not_exist_is_refused_even_while_a_cell_runs() {
    let kernel = Kernel::start();
    let mut client = kernel.client();
    let running = client.execute("wait");
    client.expect_busy(&running);
    client.expect_execute_input(&running, "wait");
    for kind in ["execute", "shutdown"] {
        let mut header = client.session.header(&format!("{kind}_request"));
        header["subshell_id"] = json!("nine");
        let request = client.send_with(Channel::Shell, &header, &json!({}), &json!({"code": "print 1"}));
        client.expect_busy(&request);
        client.expect_idle(&request);
        let reply = client.expect_reply(&request, &format!("{kind}_reply"));
        assert_eq!(reply.content["ename"], "UnknownSubshell");
    }
    interrupt(&mut client, &running);
    kernel.shut_down(client);
}

#[test]
fn comms_are_refused_and_their_messages_are_harmless() {
    let kernel = Kernel::start();
    let mut client = kernel.client();
    let request = client.send(Channel::Shell, "comm_info_request", &json!({}));
    client.expect_busy(&request);
    client.expect_idle(&request);
    assert_eq!(
        client.expect_reply(&request, "comm_info_reply").content,
        json!({"status": "ok", "comms": {}})
    );

    let open = json!({"comm_id": "c1", "target_name": "jupyter.widget", "data": {}});
    let request = client.send(Channel::Shell, "comm_open", &open);
    client.expect_busy(&request);
    assert_eq!(client.expect_iopub(&request, "comm_close").content["comm_id"], "c1");
    client.expect_idle(&request);
    for kind in ["comm_msg", "comm_close"] {
        let request = client.send(Channel::Shell, kind, &json!({"comm_id": "c1", "data": {}}));
        client.expect_busy(&request);
        client.expect_idle(&request);
    }
    kernel.shut_down(client);
}

#[test]
fn whether_code_is_complete_is_answered_in_time_whatever_happens() {
    let kernel = Kernel::start();
    let mut client = kernel.client();
    for (code, expected) in [
        ("done", json!({"status": "complete"})),
        ("more", json!({"status": "incomplete", "indent": "    "})),
        ("never", json!({"status": "unknown"})),
    ] {
        let request = client.send(Channel::Shell, "is_complete_request", &json!({"code": code}));
        client.expect_busy(&request);
        client.expect_idle(&request);
        assert_eq!(client.expect_reply(&request, "is_complete_reply").content, expected);
    }
    let running = client.execute("wait");
    client.expect_busy(&running);
    client.expect_execute_input(&running, "wait");
    let request = client.send(Channel::Shell, "is_complete_request", &json!({"code": "done"}));
    client.expect_busy(&request);
    client.expect_idle(&request);
    assert_eq!(client.expect_reply(&request, "is_complete_reply").content, json!({"status": "unknown"}));
    interrupt(&mut client, &running);
    kernel.shut_down(client);
}

#[test]
fn history_and_inspection_and_ports_are_answered() {
    let kernel = Kernel::start();
    let mut client = kernel.client();
    run(&mut client, "result one");
    let request = execute(&mut client, "result hidden", &json!({"store_history": false}), &json!({}));
    finish(&mut client, &request);
    for (kind, content, expected) in [
        (
            "history",
            json!({"hist_access_type": "tail", "n": 5, "output": true, "raw": true}),
            json!({"status": "ok", "history": [[1, 1, ["result one", "one"]]]}),
        ),
        (
            "inspect",
            json!({"code": "x", "cursor_pos": 1, "detail_level": 0}),
            json!({"status": "ok", "found": true, "data": {"text/plain": "x"}, "metadata": {}}),
        ),
        (
            "inspect",
            json!({"code": "", "cursor_pos": 0}),
            json!({"status": "ok", "found": false, "data": {}, "metadata": {}}),
        ),
        (
            "connect",
            json!({}),
            json!({
                "status": "ok", "shell_port": client.connection.shell, "iopub_port": client.connection.iopub,
                "stdin_port": client.connection.stdin, "control_port": client.connection.control,
                "hb_port": client.connection.heartbeat,
            }),
        ),
    ] {
        let request = client.send(Channel::Shell, &format!("{kind}_request"), &content);
        client.expect_busy(&request);
        client.expect_idle(&request);
        assert_eq!(client.expect_reply(&request, &format!("{kind}_reply")).content, expected);
    }
    kernel.shut_down(client);
}

#[test]
fn what_the_front_end_says_about_its_cells_reaches_the_interpreter() {
    let kernel = Kernel::start();
    let mut client = kernel.client();
    let metadata = json!({"cellId": "c-1", "deletedCells": ["c-0", 7, "c-9"]});
    let request = execute(&mut client, "cell", &json!({}), &metadata);
    let (messages, _) = finish(&mut client, &request);
    assert_eq!(messages[1].content["text"], "Some(\"c-1\") [\"c-0\", \"c-9\"]\n");
    kernel.shut_down(client);
}

#[test]
fn a_panic_and_a_sender_that_is_kept_cost_no_reply_and_no_idle() {
    let kernel = Kernel::start();
    let mut client = kernel.client();
    let (messages, reply) = run(&mut client, "print before\npanic");
    assert_eq!(kinds(&messages), ["execute_input", "stream", "error"]);
    assert_eq!(reply.content["ename"], "InternalError");
    let (messages, reply) = run(&mut client, "keep\nprint kept");
    assert_eq!(kinds(&messages), ["execute_input", "stream"]);
    assert_eq!(reply.content["status"], "ok");
    kernel.shut_down(client);
}

#[test]
fn a_shutdown_ends_what_runs_answers_what_waits_and_tells_everybody() {
    let kernel = Kernel::start();
    let mut client = kernel.client();
    let running = client.execute("wait");
    client.expect_busy(&running);
    client.expect_execute_input(&running, "wait");
    let waiting = client.execute("print never");
    // Its reply tells that what was sent before it has arrived.
    let mut header = client.session.header("kernel_info_request");
    header["subshell_id"] = json!("none");
    let arrived = client.send_with(Channel::Shell, &header, &json!({}), &json!({}));
    client.expect_reply(&arrived, "kernel_info_reply");
    let request = client.send(Channel::Control, "shutdown_request", &json!({"restart": true}));
    let mut names = std::collections::HashMap::new();
    for _ in 0..2 {
        let reply = client.try_recv(Channel::Shell, PATIENCE).expect("a reply");
        names.insert(reply.parent_id().expect("a parent").to_owned(), reply.content["ename"].clone());
    }
    assert_eq!(names[&running.msg_id], "KeyboardInterrupt");
    assert_eq!(names[&waiting.msg_id], "ExecutionAborted");
    assert_eq!(
        client.expect_reply(&request, "shutdown_reply").content,
        json!({"status": "ok", "restart": true})
    );
    let mut last = None;
    while let Some(message) = client.try_iopub(PATIENCE) {
        last = Some(message);
    }
    let last = last.expect("messages on iopub");
    assert_eq!(last.parent_id(), Some(request.msg_id.as_str()));
    assert_eq!(last.content["execution_state"], "idle");
    assert_eq!(kernel.ended(), ExitReason::Shutdown { restart: true });
}

#[test]
fn a_shutdown_does_not_wait_for_a_cell_that_does_not_listen() {
    let kernel = Kernel::start();
    let mut client = kernel.client();
    let running = client.execute("deaf");
    client.expect_busy(&running);
    client.expect_execute_input(&running, "deaf");
    let request = client.send(Channel::Control, "shutdown_request", &json!({"restart": false}));
    client.expect_reply(&request, "shutdown_reply");
    client.expect_busy(&request);
    client.expect_iopub(&request, "shutdown_reply");
    client.expect_idle(&request);
    assert_eq!(kernel.ended(), ExitReason::Shutdown { restart: false });
}

#[test]
fn the_kernel_ends_when_the_process_that_started_it_is_gone() {
    let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("a process");
    let parent = i32::try_from(child.id()).expect("a process id");
    let kernel = Kernel::start_with(Options { parent: Some(parent), ..options() });
    let mut client = kernel.client();
    assert_eq!(run(&mut client, "print alive").1.content["status"], "ok");
    child.kill().expect("a process that can be killed");
    child.wait().expect("its end");
    assert_eq!(kernel.ended(), ExitReason::ParentGone);
}

#[test]
fn sigint_interrupts_the_cell_and_sigterm_ends_the_kernel_in_order() {
    let kernel = Kernel::start_with(Options { signals: true, ..options() });
    let mut client = kernel.client();
    let itself = rustix::process::getpid();
    let running = client.execute("wait");
    client.expect_busy(&running);
    client.expect_execute_input(&running, "wait");
    rustix::process::kill_process(itself, rustix::process::Signal::INT).expect("a signal");
    assert_eq!(client.expect_reply(&running, "execute_reply").content["ename"], "KeyboardInterrupt");
    client.expect_iopub(&running, "error");
    client.expect_idle(&running);
    assert_eq!(run(&mut client, "print alive").1.content["status"], "ok");
    rustix::process::kill_process(itself, rustix::process::Signal::TERM).expect("a signal");
    assert_eq!(kernel.ended(), ExitReason::Terminated);
}

#[test]
fn remarks_are_quiet_displays_in_a_notebook_and_lines_in_a_console() {
    let kernel = Kernel::start();
    let mut client = kernel.client();
    let request = execute(&mut client, "notice <b>hi</b>", &json!({}), &json!({"cellId": "c"}));
    let (messages, _) = finish(&mut client, &request);
    let html = messages[1].content["data"]["text/html"].as_str().expect("HTML");
    assert!(html.contains("&lt;b&gt;hi&lt;/b&gt;") && html.contains("--jp-ui-font-color2"), "{html}");
    assert_eq!(messages[1].content["data"]["text/plain"], "<b>hi</b>");
    let (messages, _) = run(&mut client, "notice hi");
    assert_eq!(messages[1].content, json!({"name": "stderr", "text": "hi\n"}));
    kernel.shut_down(client);
}

#[test]
fn the_drop_in_kernel_keeps_remarks_out_of_the_outputs() {
    let kernel = Kernel::start_with(Options { flavor: Flavor::Python, ..options() });
    let mut client = kernel.client();
    let request = execute(&mut client, "notice hi\nwarning careful", &json!({}), &json!({"cellId": "c"}));
    let (messages, _) = finish(&mut client, &request);
    assert_eq!(kinds(&messages), ["execute_input", "stream"]);
    assert_eq!(messages[1].content, json!({"name": "stderr", "text": "careful\n"}));
    kernel.shut_down(client);
}

#[test]
fn a_reply_is_one_display_with_few_updates_and_an_exact_end() {
    let kernel = Kernel::start();
    let mut client = kernel.client();
    let started = std::time::Instant::now();
    let request = execute(&mut client, "reply 1000", &json!({}), &json!({"cellId": "c"}));
    let (messages, _) = finish(&mut client, &request);
    let seconds = started.elapsed().as_secs_f64();
    let replies = &messages[1..];
    assert_eq!(replies[0].kind(), "display_data");
    assert!(replies[1..].iter().all(|m| m.kind() == "update_display_data"), "{:?}", kinds(replies));
    let id = &replies[0].content["transient"]["display_id"];
    assert!(replies.iter().all(|m| m.content["transient"]["display_id"] == *id));
    let most = 12.0 * seconds + 3.0;
    assert!(u32::try_from(replies.len()).is_ok_and(|count| f64::from(count) < most), "{}", replies.len());
    let whole = (0..1000).map(|n| format!("w{n} ")).collect::<Vec<_>>().concat();
    let last = &replies[replies.len() - 1].content;
    assert_eq!(last["data"]["text/plain"], whole);
    assert_eq!(last["metadata"]["cellblock"]["model"], "scripted/model");
    assert_eq!(last["metadata"]["cellblock"]["usage"]["output_tokens"], 1000);
    kernel.shut_down(client);
}

#[test]
fn a_reply_is_stream_text_where_displays_cannot_be_updated() {
    for (updates, metadata) in [(Updates::Auto, json!({})), (Updates::Never, json!({"cellId": "c"}))] {
        let kernel = Kernel::start_with(Options { updates, ..options() });
        let mut client = kernel.client();
        let request = execute(&mut client, "reply 3", &json!({}), &metadata);
        let (messages, _) = finish(&mut client, &request);
        let text: String = messages[1..].iter().filter_map(|m| m.content["text"].as_str()).collect();
        assert_eq!(text, "w0 w1 w2 \n");
        kernel.shut_down(client);
    }
}

#[test]
fn an_interrupted_reply_keeps_its_text_and_says_so() {
    let kernel = Kernel::start();
    let mut client = kernel.client();
    let request = execute(&mut client, "reply 100000", &json!({}), &json!({"cellId": "c"}));
    client.expect_busy(&request);
    client.expect_execute_input(&request, "reply 100000");
    client.expect_iopub(&request, "display_data");
    let interrupt = client.send(Channel::Control, "interrupt_request", &json!({}));
    client.expect_reply(&interrupt, "interrupt_reply");
    client.expect_reply(&request, "execute_reply");
    let mut messages = Vec::new();
    while let Some(message) = client.try_iopub(Duration::from_millis(500)) {
        messages.push(message);
    }
    messages.retain(|m| m.parent_id() == Some(request.msg_id.as_str()) && m.kind() != "status");
    let said = messages.pop().expect("a remark");
    assert_eq!(said.content["data"]["text/plain"], "The reply was interrupted.");
    let last = messages.pop().expect("the last update");
    assert_eq!(last.content["metadata"]["cellblock"]["ending"], "interrupted");
    assert!(last.content["data"]["text/plain"].as_str().is_some_and(|text| text.starts_with("w0 ")));
    kernel.shut_down(client);
}
