//! A turn of several steps, on the wire: what a provider signs in its first reply is in the second request, in its own
//! shape, and so are the pictures that the model's code showed. And OpenAI's newer API (Responses).

use cellblock::chat::{ChatError, Image, Prompt, Reply, ToolCall, ToolResult};
use cellblock::config::{ModelSettings, Secret};
use cellblock::event::Ending;
use serde_json::{Value, json};

use crate::chat_server::*;

/// A picture of one dot.
const DOT: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

/// Events of a stream, named as Anthropic and OpenAI name them.
fn named(events: &[Value]) -> Vec<Step> {
    let event = |data: &Value| {
        send(format!("event: {}\ndata: {data}\n\n", data["type"].as_str().unwrap_or_default()))
    };
    std::iter::once(streaming()).chain(events.iter().map(event)).collect()
}

fn model(name: &str, address: &str) -> ModelSettings {
    ModelSettings {
        name: Some(name.to_owned()),
        api_key: Some(Secret::new("sk-of-the-test")),
        ..settings(address)
    }
}

/// The model calls, sees what came of it with these pictures, and answers; then it is asked something else. The replies
/// of the first turn, and what the server was asked.
async fn two_steps(
    name: &str,
    at: &str,
    scripts: [Vec<Step>; 2],
    images: Vec<Image>,
) -> ([Reply; 2], Vec<Value>) {
    let [first, second] = scripts;
    let server = Server::play(vec![first, second]).await;
    let chat = chat(&model(name, &format!("{}{at}", server.address)));
    let place = chat.begin(None, "");
    let prompt = Prompt::text("1 + 1?");
    let (reply, _) = ask_at(&chat, &place, &prompt, &tools(), |_| false).await;
    let first = reply.expect("a call");
    let [call] = first.calls.as_slice() else { panic!("one call: {first:?}") };
    assert_eq!((call.name.as_str(), call.arguments.as_str()), ("run_code", r#"{"code":"1 + 1"}"#));
    let ToolCall { id, name, .. } = call.clone();
    let text = "It ran. 2".to_owned();
    chat.record_results(&place, vec![ToolResult { id, name, text, images, ..ToolResult::default() }]);
    let (reply, _) = ask_at(&chat, &place, &prompt, &tools(), |_| false).await;
    let second = reply.expect("an answer");
    assert_eq!((second.text.as_str(), &second.ending), ("It is 2.", &Ending::Complete));
    let (place, prompt) = (chat.begin(None, ""), Prompt::text("and now?"));
    ask_at(&chat, &place, &prompt, &tools(), |_| false).await.0.expect("an answer");
    ([first, second], server.asked().into_iter().map(|asked| asked.body).collect())
}

fn dots(count: usize) -> Vec<Image> {
    vec![Image { media_type: "image/png".to_owned(), base64: DOT.to_owned() }; count]
}

/// Anthropic's stream of these blocks, each with the deltas that fill it.
fn anthropic(blocks: &[(Value, &[Value])], stop: &str) -> Vec<Step> {
    let mut events = vec![json!({"type": "message_start", "message": {"id": "m1", "type": "message",
        "role": "assistant", "model": "claude-x", "content": [], "stop_reason": null, "stop_sequence": null,
        "usage": {"input_tokens": 12, "output_tokens": 1}}})];
    for (index, (block, deltas)) in blocks.iter().enumerate() {
        events.push(json!({"type": "content_block_start", "index": index, "content_block": block}));
        let delta = |delta: &Value| json!({"type": "content_block_delta", "index": index, "delta": delta});
        events.extend(deltas.iter().map(delta));
        events.push(json!({"type": "content_block_stop", "index": index}));
    }
    events.push(json!({"type": "message_delta", "delta": {"stop_reason": stop, "stop_sequence": null},
        "usage": {"output_tokens": 5}}));
    events.push(json!({"type": "message_stop"}));
    named(&events)
}

fn anthropic_steps() -> [Vec<Step>; 2] {
    let thinking = json!({"type": "thinking", "thinking": "", "signature": ""});
    let thought = [
        json!({"type": "thinking_delta", "thinking": "I should "}),
        json!({"type": "thinking_delta", "thinking": "compute."}),
        json!({"type": "signature_delta", "signature": "c2lnbmVkLWJ5LXRoZW0="}),
    ];
    let hidden = json!({"type": "redacted_thinking", "data": "b3BhcXVl"});
    let call = json!({"type": "tool_use", "id": "toolu_1", "name": "run_code", "input": {}});
    let arguments = [
        json!({"type": "input_json_delta", "partial_json": "{\"code\": \"1 "}),
        json!({"type": "input_json_delta", "partial_json": "+ 1\"}"}),
    ];
    let words = [json!({"type": "text_delta", "text": "It is 2."})];
    [
        anthropic(&[(thinking, &thought), (hidden, &[]), (call, &arguments)], "tool_use"),
        anthropic(&[(json!({"type": "text", "text": ""}), &words)], "end_turn"),
    ]
}

#[tokio::test]
async fn anthropic_gets_its_signed_thoughts_back_with_the_result_and_not_in_later_turns() {
    let (replies, asked) = two_steps("anthropic/claude-x", "", anthropic_steps(), dots(1)).await;
    assert_eq!(replies[0].usage.input_tokens, Some(12));
    let messages = asked[1]["messages"].as_array().expect("messages");
    let [_, said, result] = messages.as_slice() else { panic!("{messages:#?}") };
    assert_eq!(
        said["content"],
        json!([
            {"type": "thinking", "thinking": "I should compute.", "signature": "c2lnbmVkLWJ5LXRoZW0="},
            {"type": "redacted_thinking", "data": "b3BhcXVl"},
            {"type": "tool_use", "id": "toolu_1", "name": "run_code", "input": {"code": "1 + 1"}},
        ])
    );
    let result = &result["content"][0];
    assert_eq!((&result["type"], &result["tool_use_id"]), (&json!("tool_result"), &json!("toolu_1")));
    assert_eq!(
        result["content"],
        json!([
            {"type": "text", "text": "It ran. 2"},
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": DOT}},
        ])
    );
    let later = asked[2]["messages"].to_string();
    assert!(!later.contains("thinking") && later.contains("toolu_1") && later.contains(DOT), "{later}");
}

fn gemini(parts: &Value, finish: &str) -> Vec<Step> {
    let data = json!({
        "candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": finish, "index": 0}],
        "usageMetadata": {"promptTokenCount": 9, "candidatesTokenCount": 2, "totalTokenCount": 11},
    });
    vec![streaming(), send(format!("data: {data}\r\n\r\n"))]
}

#[tokio::test]
async fn gemini_gets_its_signature_back_where_it_stood() {
    let call = json!({"functionCall": {"name": "run_code", "args": {"code": "1 + 1"}},
        "thoughtSignature": "c2lnbmVkLWJ5LXRoZW0="});
    let scripts = [
        gemini(&json!([{"text": "I compute.", "thought": true}, call]), "STOP"),
        gemini(&json!([{"text": "It is 2."}]), "STOP"),
    ];
    let (_, asked) = two_steps("gemini/gemini-3-pro", "", scripts, dots(1)).await;
    let contents = asked[1]["contents"].as_array().expect("contents");
    let said = contents[1]["parts"].as_array().expect("parts");
    let signed = said.iter().find(|part| part.get("functionCall").is_some()).expect("the call");
    assert_eq!(signed["thoughtSignature"], "c2lnbmVkLWJ5LXRoZW0=");
    assert_eq!(signed["functionCall"]["args"], json!({"code": "1 + 1"}));
    let result = contents[2].to_string();
    assert!(
        result.contains("functionResponse") && result.contains("It ran. 2") && result.contains(DOT),
        "{result}"
    );
    assert!(!asked[2].to_string().contains("c2lnbmVkLWJ5LXRoZW0="), "{}", asked[2]);
}

/// A stream of the Responses API in which these items come whole.
fn responses(items: &[Value]) -> Vec<Step> {
    let mut events = vec![json!({"type": "response.created", "sequence_number": 0, "response":
        {"id": "resp_1", "object": "response", "created_at": 1, "status": "in_progress", "model": "gpt-x", "output": []}})];
    for (index, item) in items.iter().enumerate() {
        let mut begun = item.clone();
        begun["status"] = "in_progress".into();
        let delta = |kind: &str, text: &str| json!({"type": kind, "item_id": item["id"], "output_index": index, "content_index": 0, "delta": text});
        let pieces = |kind: &str, text: &str| {
            let (head, tail) = text.split_at(text.len() / 2);
            [delta(kind, head), delta(kind, tail)]
        };
        match item["type"].as_str() {
            Some("message") => {
                begun["content"] = json!([]);
                events.push(
                    json!({"type": "response.output_item.added", "output_index": index, "item": begun}),
                );
                let text = item["content"][0]["text"].as_str().expect("text");
                events.extend(pieces("response.output_text.delta", text));
            }
            Some("function_call") => {
                begun["arguments"] = "".into();
                events.push(
                    json!({"type": "response.output_item.added", "output_index": index, "item": begun}),
                );
                let arguments = item["arguments"].as_str().expect("arguments");
                events.extend(pieces("response.function_call_arguments.delta", arguments));
            }
            _ => events
                .push(json!({"type": "response.output_item.added", "output_index": index, "item": begun})),
        }
        events.push(json!({"type": "response.output_item.done", "output_index": index, "item": item}));
    }
    events.push(json!({"type": "response.completed", "response": {"id": "resp_1", "object": "response",
        "created_at": 1, "status": "completed", "model": "gpt-x", "output": items,
        "usage": {"input_tokens": 14, "input_tokens_details": {"cached_tokens": 3}, "output_tokens": 6,
            "output_tokens_details": {"reasoning_tokens": 4}, "total_tokens": 20}}}));
    named(&events)
}

fn message(text: &str) -> Value {
    json!({"type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
        "content": [{"type": "output_text", "text": text, "annotations": []}]})
}

#[tokio::test]
async fn the_responses_api_streams_a_reply() {
    let server = Server::play(vec![responses(&[message("It is 2.")])]).await;
    let chat = chat(&model("openai/gpt-x", &format!("{}/v1/responses", server.address)));
    let (reply, events) = ask(&chat, "1 + 1?").await;
    let reply = reply.expect("an answer");
    assert_eq!((reply.text.as_str(), &reply.ending), ("It is 2.", &Ending::Complete));
    assert_eq!(texts(&events), ["It i", "s 2."], "it streams");
    let usage = &reply.usage;
    assert_eq!((usage.input_tokens, usage.cached_tokens), (Some(14), Some(3)));
    assert_eq!((usage.output_tokens, usage.reasoning_tokens), (Some(6), Some(4)));
    let asked = server.only();
    assert_eq!(asked.target(), "POST /v1/responses");
    assert_eq!(asked.header("authorization"), Some("Bearer sk-of-the-test"));
    assert_eq!((&asked.body["model"], &asked.body["stream"]), (&json!("gpt-x"), &json!(true)));
    assert!(asked.body.to_string().contains("Cellblock"), "{}", asked.body);
}

#[tokio::test]
async fn the_responses_api_gets_its_reasoning_and_its_call_back_as_they_came() {
    let reasoning = json!({"type": "reasoning", "id": "rs_1", "summary": [],
        "encrypted_content": "Z0FBQUFBQm8=", "status": "completed"});
    let call = json!({"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "run_code",
        "arguments": "{\"code\":\"1 + 1\"}", "status": "completed"});
    let scripts = [responses(&[reasoning, call]), responses(&[message("It is 2.")])];
    let (_, asked) = two_steps("openai/gpt-5-x", "/v1/responses", scripts, dots(1)).await;
    assert!(asked[0]["include"].to_string().contains("reasoning.encrypted_content"), "{}", asked[0]);
    assert_eq!(asked[0]["store"], false);
    assert_eq!(asked[0]["tools"][0]["name"], "run_code");
    let input = asked[1]["input"].as_array().expect("input");
    let at = input.iter().position(|item| item["type"] == "reasoning").expect("the reasoning");
    assert_eq!((&input[at]["id"], &input[at]["encrypted_content"]), (&json!("rs_1"), &json!("Z0FBQUFBQm8=")));
    assert_eq!(
        (&input[at + 1]["type"], &input[at + 1]["call_id"]),
        (&json!("function_call"), &json!("call_1"))
    );
    assert_eq!(input[at + 1]["id"], "fc_1");
    let result = &input[at + 2];
    assert_eq!((&result["type"], &result["call_id"]), (&json!("function_call_output"), &json!("call_1")));
    assert!(result["output"].to_string().contains(&format!("data:image/png;base64,{DOT}")), "{result}");
    assert!(!asked[2].to_string().contains("Z0FBQUFBQm8="), "{}", asked[2]);
}

#[tokio::test]
async fn the_responses_apis_errors_are_told_in_its_words() {
    let failed = json!({"type": "response.failed", "response": {"id": "resp_1", "object": "response",
        "created_at": 1, "status": "failed", "model": "gpt-x", "output": [],
        "error": {"code": "server_error", "message": "the engine is on fire"}}});
    let mut cut = responses(&[message("It is 2.")]);
    cut.truncate(4);
    cut.extend(named(&[failed]).into_iter().skip(1));
    let server = Server::play(vec![error("400 Bad Request", "", "your input is odd"), cut]).await;
    let chat = chat(&model("openai/gpt-x", &format!("{}/v1/responses", server.address)));
    let Err(ChatError::Refused(text)) = ask(&chat, "?").await.0 else { panic!("no failure") };
    assert!(text.contains("your input is odd"), "{text}");
    let reply = ask(&chat, "?").await.0.expect("the beginning of an answer");
    let Ending::Cut(why) = &reply.ending else { panic!("{:?}", reply.ending) };
    assert!(
        why.contains("the engine is on fire") && "It is 2.".starts_with(&reply.text),
        "{why} {}",
        reply.text
    );
}

#[tokio::test]
async fn a_server_that_names_no_calls_gets_the_result_of_its_call() {
    let line = |message: &Value, done: bool| {
        let mut line =
            json!({"model": "qwen3", "created_at": "2026-01-01T00:00:00Z", "message": message, "done": done});
        if done {
            line["done_reason"] = "stop".into();
        }
        send(format!("{line}\n"))
    };
    let call = json!({"role": "assistant", "content": "",
        "tool_calls": [{"function": {"name": "run_code", "arguments": {"code": "1 + 1"}}}]});
    let nothing = json!({"role": "assistant", "content": ""});
    let words = json!({"role": "assistant", "content": "It is 2."});
    let ndjson = || head("200 OK", "content-type: application/x-ndjson\r\n");
    let scripts = [
        vec![ndjson(), line(&call, false), line(&nothing, true)],
        vec![ndjson(), line(&words, false), line(&nothing, true)],
    ];
    let (_, asked) = two_steps("ollama/qwen3", "", scripts, Vec::new()).await;
    for asked in &asked[1..] {
        let messages = asked["messages"].as_array().expect("messages");
        let results: Vec<&Value> = messages.iter().filter(|message| message["role"] == "tool").collect();
        assert_eq!(results.len(), 1, "{messages:#?}");
        assert_eq!(results[0]["content"], "It ran. 2");
    }
}

fn compatible() -> [Vec<Step>; 2] {
    let calls = vec![
        streaming(),
        call(0, "call_1", "run_code", r#"{"code": "1 + 1"}"#),
        stop("tool_calls"),
        usage(20, 9),
        done(),
    ];
    [calls, answer(&["It is 2."])]
}

#[tokio::test]
async fn where_a_result_takes_no_picture_the_user_shows_it_and_a_few_are_enough() {
    let (_, asked) = two_steps("openai/gpt-4o", "/v1", compatible(), dots(12)).await;
    let messages = asked[1]["messages"].as_array().expect("messages");
    let result = messages.iter().position(|message| message["role"] == "tool").expect("the result");
    assert!(
        messages[result].to_string().contains("It ran. 2") && !messages[result].to_string().contains(DOT)
    );
    let shown = &messages[result + 1];
    assert_eq!(shown["role"], "user");
    assert_eq!(shown.to_string().matches(DOT).count(), 8, "{shown}");
    assert!(shown.to_string().contains(&format!("data:image/png;base64,{DOT}")));
}

#[tokio::test]
async fn a_model_that_is_not_known_to_see_gets_no_picture() {
    let (_, asked) = two_steps("openai/some-coder", "/v1", compatible(), dots(1)).await;
    assert!(asked[1].to_string().contains("It ran. 2"));
    assert!(asked.iter().all(|asked| !asked.to_string().contains(DOT)), "{asked:?}");
}
