//! Tool calls on the wire: offered, streamed, shown while they form, answered; and servers that can't.

use cellblock::chat::{Chat, Prompt, Tool, ToolCall, ToolResult};
use cellblock::event::{Ending, Event};
use serde_json::json;

use crate::chat_server::*;

async fn ask_tools(chat: &Chat, prompt: &str, tools: &[Tool]) -> (cellblock::chat::Reply, Vec<Event>) {
    let place = chat.begin(None, "");
    let (reply, events) = ask_at(chat, &place, &Prompt::text(prompt), tools, |_| false).await;
    (reply.expect("an answer"), events)
}

#[tokio::test]
async fn tools_are_offered_and_a_call_is_shown_while_it_forms() {
    let script = vec![
        streaming(),
        text("I'll compute it."),
        call(0, "call_1", "run_code", ""),
        call(0, "", "", r#"{"code": "print(2 **"#),
        call(0, "", "", r#" 10)\n"}"#),
        stop("tool_calls"),
        usage(20, 9),
        done(),
    ];
    let server = Server::play(vec![script]).await;
    let (reply, events) = ask_tools(&chat(&settings(&server.v1())), "2 to the 10?", &tools()).await;
    assert_eq!((reply.text.as_str(), &reply.ending), ("I'll compute it.", &Ending::Complete));
    let arguments = r#"{"code":"print(2 ** 10)\n"}"#.to_owned();
    assert_eq!(reply.calls, [ToolCall { id: "call_1".into(), name: "run_code".into(), arguments }]);
    assert!(reply.could_call);
    assert_eq!((reply.usage.input_tokens, reply.usage.output_tokens), (Some(20), Some(9)));
    let shown = texts(&events);
    assert_eq!(shown.concat(), "I'll compute it.\n\n````python\nprint(2 ** 10)\n````\n");
    assert!(shown.contains(&"\n\n````python\nprint(2 **"), "it grows: {shown:?}");
    let asked = server.only();
    let offered = asked.body["tools"].as_array().expect("tools");
    assert_eq!(offered.len(), 2);
    assert_eq!(offered[0]["function"]["name"], "run_code");
    assert_eq!(offered[0]["function"]["parameters"]["required"], json!(["code"]));
}

#[tokio::test]
async fn parallel_calls_without_ids_or_text_are_all_there_in_their_order() {
    let whole = json!({"tool_calls": [
        {"function": {"name": "read_file", "arguments": "{\"path\": \"a.csv\"}"}},
    ]});
    let second = json!({"tool_calls": [
        {"function": {"name": "no_such_tool", "arguments": {"deep": [1, {"x": null}]}}},
    ]});
    let script =
        vec![streaming(), send(chunk(&whole, None)), send(chunk(&second, None)), stop("stop"), done()];
    let server = Server::play(vec![script]).await;
    let (reply, events) = ask_tools(&chat(&settings(&server.v1())), "?", &tools()).await;
    assert_eq!(reply.ending, Ending::Complete);
    let called: Vec<_> =
        reply.calls.iter().map(|call| (call.name.as_str(), call.arguments.as_str())).collect();
    assert_eq!(
        called,
        [("read_file", r#"{"path":"a.csv"}"#), ("no_such_tool", r#"{"deep":[1,{"x":null}]}"#)]
    );
    assert!(reply.calls.iter().all(|call| !call.id.is_empty()) && reply.calls[0].id != reply.calls[1].id);
    assert_eq!(
        texts(&events).concat(),
        "`read_file(path=\"a.csv\")`\n\n\n\n`no_such_tool(deep=[1,{\"x\":null}])`\n\n"
    );
    assert!(!events.iter().any(|e| matches!(e, Event::Notice(_))), "calls alone are an answer: {events:?}");
}

#[tokio::test]
async fn a_call_stands_in_one_fence_with_its_language_in_whatever_order_it_came() {
    for (raw, shown) in [
        (r#"{"code": "fn main() {}", "language": "rust"}"#, "````rust\nfn main() {}\n````\n"),
        (r#"{"language": "sh", "code": "ls"}"#, "````sh\nls\n````\n"),
        (r#"{"code": "print('safe')", "code": "print('EVIL')"}"#, "````python\nprint('EVIL')\n````\n"),
    ] {
        let (begin, end) = raw.split_at(14);
        let script = vec![
            streaming(),
            call(0, "c", "run_code", begin),
            call(0, "", "", end),
            stop("tool_calls"),
            done(),
        ];
        let server = Server::play(vec![script]).await;
        let (reply, events) = ask_tools(&chat(&settings(&server.v1())), "?", &tools()).await;
        assert_eq!((reply.calls.len(), page(&events).as_str()), (1, shown));
    }
}

#[tokio::test]
async fn malformed_arguments_come_through_as_the_model_wrote_them() {
    for raw in [r#"{"code": "print(1)"#, "print(1)", "[1, 2]", r#"{"code": 'x'}"#] {
        let script = vec![streaming(), call(0, "c", "run_code", raw), stop("tool_calls"), done()];
        let server = Server::play(vec![script]).await;
        let (reply, _) = ask_tools(&chat(&settings(&server.v1())), "?", &tools()).await;
        assert_eq!(reply.calls.len(), 1, "{raw}");
        assert_eq!(reply.calls[0].arguments, raw);
    }
}

#[tokio::test]
async fn a_call_that_is_cut_is_no_call() {
    let script =
        vec![streaming(), call(0, "c", "run_code", r#"{"code": "import os"#), Step::Pause(50), Step::Reset];
    let server = Server::play(vec![script, answer(&["ok"])]).await;
    let chat = chat(&settings(&server.v1()));
    let (reply, events) = ask_tools(&chat, "?", &tools()).await;
    assert!(matches!(reply.ending, Ending::Cut(_)), "{:?}", reply.ending);
    assert!(reply.calls.is_empty());
    assert_eq!(texts(&events).concat(), "````python\nimport os\n````\n");
    ask_tools(&chat, "go on", &tools()).await;
    let said = server.asked()[1].body["messages"][2]["content"].to_string();
    assert!(said.contains("cut off here, in a call of run_code"), "{said}");
}

#[tokio::test]
async fn a_server_that_refuses_tools_is_asked_without_them_from_then_on() {
    for refusal in [
        error("400 Bad Request", "", "registry.ollama.ai/library/gemma3:1b does not support tools"),
        error("422 Unprocessable Entity", "", "Unrecognized request argument supplied: tools"),
        error("500 Internal Server Error", "", "tools param requires --jinja flag"),
        error("400 Bad Request", "", "\"auto\" tool choice requires --enable-auto-tool-choice to be set"),
    ] {
        let server = Server::play(vec![refusal, answer(&["1024"]), answer(&["ok"])]).await;
        let chat = chat(&settings(&server.v1()));
        let (reply, _) = ask_tools(&chat, "?", &tools()).await;
        assert_eq!((reply.text.as_str(), reply.could_call), ("1024", false));
        ask_tools(&chat, "?", &tools()).await;
        let asked = server.asked();
        assert_eq!(asked.len(), 3, "the second question knows already");
        assert!(asked[0].body.get("tools").is_some());
        assert!(asked[1..].iter().all(|asked| asked.body.get("tools").is_none()));
    }
}

#[tokio::test]
async fn a_call_written_as_text_is_a_call_and_is_told_to_the_model_as_one() {
    let words =
        ["```js", "on\n{\"name\": \"run_co", "de\", \"arguments\": {\"code\": \"1 +", " 1\"}}\n``", "`"];
    let server = Server::play(vec![answer(&words), answer(&["It is {\"name\": \"2\"}."])]).await;
    let chat = chat(&settings(&server.v1()));
    let place = chat.begin(None, "");
    let prompt = Prompt::text("1 + 1?");
    let (reply, events) = ask_at(&chat, &place, &prompt, &tools(), |_| false).await;
    let reply = reply.expect("an answer");
    assert_eq!((reply.text.as_str(), reply.calls.len()), ("", 1));
    assert_eq!(reply.calls[0].arguments, r#"{"code":"1 + 1"}"#);
    assert_eq!(texts(&events), ["````python\n1 +", " 1", "\n````\n"]);
    let result = ToolResult {
        id: reply.calls[0].id.clone(),
        name: "run_code".to_owned(),
        text: "2".to_owned(),
        ..ToolResult::default()
    };
    chat.record_results(&place, vec![result]);
    let (reply, events) = ask_at(&chat, &place, &prompt, &tools(), |_| false).await;
    assert_eq!(reply.expect("an answer").text, "It is {\"name\": \"2\"}.");
    assert_eq!(texts(&events).concat(), "It is {\"name\": \"2\"}.");
    let messages = server.asked()[1].body["messages"].clone();
    let call = &messages[2]["tool_calls"][0];
    assert_eq!(call["function"], json!({"name": "run_code", "arguments": "{\"code\":\"1 + 1\"}"}));
    assert_eq!((&messages[3]["role"], &messages[3]["content"]), (&json!("tool"), &json!("2")));
    assert_eq!(messages[3]["tool_call_id"], call["id"]);
}

#[tokio::test]
async fn reasoning_is_no_call_and_is_not_sent_back() {
    let call = r#"{"name": "run_code", "arguments": {"code": "1"}}"#;
    let thought = send(chunk(&json!({"reasoning_content": call}), None));
    let first = vec![streaming(), thought, call_step(), stop("tool_calls"), done()];
    let server = Server::play(vec![first, answer(&["<think>", call, "</think>", "ok"])]).await;
    let chat = chat(&settings(&server.v1()));
    let place = chat.begin(None, "");
    let prompt = Prompt::text("?");
    let reply = ask_at(&chat, &place, &prompt, &tools(), |_| false).await.0.expect("an answer");
    assert_eq!(reply.calls.len(), 1);
    assert_eq!(reply.calls[0].name, "read_file");
    let result = ToolResult {
        id: "c".to_owned(),
        name: "read_file".to_owned(),
        text: "x".to_owned(),
        ..ToolResult::default()
    };
    chat.record_results(&place, vec![result]);
    let reply = ask_at(&chat, &place, &prompt, &tools(), |_| false).await.0.expect("an answer");
    assert_eq!((reply.text.as_str(), reply.calls.len()), ("ok", 0));
    ask_tools(&chat, "and?", &tools()).await;
    let last = server.asked()[2].body.to_string();
    assert!(!last.contains("run_code\\"), "{last}");
}

fn call_step() -> Step {
    call(0, "c", "read_file", r#"{"path": "a"}"#)
}
