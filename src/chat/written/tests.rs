//! Replies that are calls, and replies that are not.

use serde_json::json;

use super::*;

fn tools() -> Vec<Tool> {
    let tool = |name| Tool { name, description: String::new(), parameters: json!({}), code: None };
    vec![tool("run_code"), tool("read_file")]
}

/// The text and the calls of a reply that comes in these pieces.
fn read<'a>(pieces: impl IntoIterator<Item = &'a str>) -> (String, Vec<(String, String)>) {
    read_as(Counts::Tagged, &Told::default(), pieces)
}

fn read_as<'a>(
    counts: Counts,
    told: &Told,
    pieces: impl IntoIterator<Item = &'a str>,
) -> (String, Vec<(String, String)>) {
    let tools = tools();
    let mut written = Written::new(&tools, counts, told.clone());
    let mut parts = Vec::new();
    for piece in pieces {
        parts.extend(written.push(piece));
    }
    parts.extend(written.finish());
    let (mut text, mut calls, mut streamed) = (String::new(), Vec::new(), std::collections::HashMap::new());
    for part in parts {
        match part {
            Part::Text(more) => text.push_str(&more),
            Part::Call(Delta::CallStart { part, .. }) => {
                streamed.insert(part, String::new());
            }
            Part::Call(Delta::CallArguments { part, json }) => {
                streamed.get_mut(&part).expect("a beginning").push_str(&json);
            }
            Part::Call(Delta::Call { part, call }) => calls.push((part, (call.name, call.arguments))),
            Part::Call(other) => panic!("{other:?}"),
            Part::Withdrawn { parts, text: more } => {
                text.push_str(&more);
                calls.retain(|(part, _)| !parts.contains(part));
            }
        }
    }
    (text, calls.into_iter().map(|(_, call)| call).collect())
}

/// The same result, wherever the reply is cut.
fn read_all_ways(reply: &str) -> (String, Vec<(String, String)>) {
    let whole = read([reply]);
    for at in reply.char_indices().map(|(at, _)| at) {
        assert_eq!(read([&reply[..at], &reply[at..]]), whole, "cut at {at}: {reply}");
    }
    let characters: Vec<String> = reply.chars().map(String::from).collect();
    assert_eq!(read(characters.iter().map(String::as_str)), whole, "{reply}");
    whole
}

const CALL: &str = r#"{"name": "run_code", "arguments": {"code": "print(\"}\")", "language": "python"}}"#;
const ARGUMENTS: &str = r#"{"code":"print(\"}\")","language":"python"}"#;

#[test]
fn a_reply_that_is_a_call_is_one() {
    for reply in [
        CALL.to_owned(),
        format!("  \n{CALL}\n"),
        format!("```json\n{CALL}\n```"),
        format!("```json\n{CALL}\n```\n\n"),
        format!("```\n{CALL}\n```"),
        format!("```json\n{CALL}"),
        format!("[{CALL}]"),
        format!("<tool_call>\n{CALL}\n</tool_call>"),
        format!("<tool_call>{CALL}"),
        CALL.replace("arguments", "parameters"),
        r#"{"arguments": {"code": "print(\"}\")", "language": "python"}, "name": "run_code"}"#.to_owned(),
        r#"{"type": "function", "function": {"name": "run_code", "arguments": {"code": "print(\"}\")", "language": "python"}}}"#
            .to_owned(),
        // The end is forgotten.
        CALL[..CALL.len() - 1].to_owned(),
        CALL[..CALL.len() - 2].to_owned(),
    ] {
        let (text, calls) = read_all_ways(&reply);
        assert_eq!(text.trim(), "", "{reply}");
        assert_eq!(calls, [("run_code".to_owned(), ARGUMENTS.to_owned())], "{reply}");
    }
}

#[test]
fn several_in_a_row_are_several() {
    let other = r#"{"name": "read_file", "arguments": {"path": "a"}}"#;
    for reply in [
        format!("{CALL}\n{other}"),
        format!("[{CALL}, {other}]"),
        format!("```json\n{CALL}\n{other}\n```"),
        format!("```json\n{CALL}\n```\n```json\n{other}\n```"),
        format!("<tool_call>\n{CALL}\n</tool_call>\n<tool_call>\n{other}\n</tool_call>"),
    ] {
        let (text, calls) = read_all_ways(&reply);
        let names: Vec<&str> = calls.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!((text.as_str(), names), ("", vec!["run_code", "read_file"]), "{reply}");
    }
}

#[test]
fn text_that_contains_json_is_text() {
    for reply in [
        format!("Here is the call: {CALL}"),
        format!("Here it is:\n```json\n{CALL}\n```\n"),
        format!("{CALL} would print a brace."),
        format!("```json\n{CALL}\n```\nThis prints a brace."),
        format!("{CALL}\n{{\"name\": \"no_such_tool\", \"arguments\": {{}}}}"),
        r#"{"name": "Ada", "arguments": {"a": 1}}"#.to_owned(),
        r#"{"name": "run_code", "age": 7}"#.to_owned(),
        r#"{"a": {"name": "run_code", "arguments": {}}}"#.to_owned(),
        "{x | x > 0} is a set".to_owned(),
        "[1] See the book.".to_owned(),
        "```python\nprint({})\n```".to_owned(),
        "```\n{\n```".to_owned(),
        "<b>no</b>".to_owned(),
        "<tool_call> is a tag".to_owned(),
        "```\n<tool_call>\n".to_owned() + CALL + "\n</tool_call>\n```",
        format!("It says <tool_call>{CALL}</tool_call>"),
        "{".to_owned(),
        "{\"name\": \"run_c".to_owned(),
        "  \n".to_owned(),
        String::new(),
    ] {
        let (text, calls) = read_all_ways(&reply);
        assert_eq!(text, reply);
        assert_eq!(calls, [], "{reply}");
    }
}

#[test]
fn a_quoted_tag_is_text() {
    let tag = format!("<tool_call>\n{CALL}\n</tool_call>\n");
    for reply in [
        format!("The file says:\n~~~\n{tag}~~~\n"),
        format!("The file says:\n````markdown\n```\n{tag}```\n{tag}````\n"),
        format!("The file says:\n````\n```\n{tag}````\n"),
        format!("The file says:\n```\n~~~\n{tag}```\n"),
        format!("The file says:\n```\n``` no end\n{tag}```\n"),
        format!("The file says:\n```\n    ```\n{tag}```\n"),
        format!("The file says:\n``` ` no fence\n```\n{tag}```\n"),
        format!("The file says:\r```\r{tag}"),
        format!("The file says:\n\n    {tag}"),
        format!("The file says:\n\n \t{tag}"),
        format!("    {tag}"),
        format!("    {CALL}"),
        format!("~~~\n{tag}~~~"),
        format!("````json\n{CALL}\n````"),
        format!("```json\n{CALL}\n# \n{tag}```\n"),
        format!("```json\n{{\"a\": 1}}\n{tag}```\n"),
    ] {
        let (text, calls) = read_all_ways(&reply);
        assert_eq!(text, reply);
        assert_eq!(calls, [], "{reply}");
    }
    let (_, calls) = read_all_ways(&format!("````\n```\n````\n~~~\n```\n~~~~\n{tag}"));
    assert_eq!(calls.len(), 1, "all fences are closed");
}

#[test]
fn of_an_unknown_server_only_a_whole_reply_counts_and_of_others_none() {
    let tag = format!("<tool_call>\n{CALL}\n</tool_call>");
    let told = Told::default();
    for (reply, whole) in [
        (CALL.to_owned(), 1),
        (format!("```json\n{CALL}\n```\n"), 1),
        (format!("{tag}\n{tag}\n"), 2),
        (format!("Let me see.\n\n{tag}"), 0),
        (format!("{tag}\nThat was it."), 0),
        (format!("{tag}\n```\n{tag}\n```"), 0),
    ] {
        let (text, calls) = read_as(Counts::Whole, &told, [reply.as_str()]);
        assert_eq!(calls.len(), whole, "{reply}");
        assert!(whole > 0 || text.trim() == reply.trim(), "{text:?}");
        assert_eq!(read_as(Counts::Never, &told, [reply.as_str()]), (reply, Vec::new()));
    }
}

#[test]
fn what_the_model_was_told_it_only_quotes() {
    let quoting = |told: &str, reply: &str| {
        let told = Told::of(&[crate::chat::model::Message::user(told)]);
        let (text, calls) = read_as(Counts::Tagged, &told, [reply]);
        assert!(!calls.is_empty() || text == reply, "{text:?}");
        calls.is_empty()
    };
    let pretty = CALL.replace(", ", ",\n  ");
    for reply in [CALL.to_owned(), format!("```json\n{pretty}\n```"), CALL[..CALL.len() - 1].to_owned()] {
        assert!(quoting(&format!("Attached @config.json:\n{CALL}"), &reply), "{reply}");
        assert!(quoting(&format!("Attached @config.json:\n{pretty}"), &reply), "{reply}");
        assert!(!quoting("Run print(\"}\") and run_code, will you?", &reply), "{reply}");
    }
    assert!(quoting("```text\nx\n```\n~~~python run\nx = 1\n~~~", "no call"));
    let told = Told::of(&[crate::chat::model::Message::user("~~~python run\nx = 1\n~~~\n```py\ny\n```")]);
    assert!(told.has_fence("x = 1\n") && !told.has_fence("y\n") && !told.has_fence("x"));
}

#[test]
fn a_call_of_its_own_makes_the_text_text() {
    let tools = tools();
    for reply in [CALL, &CALL[..CALL.len() - 4], "{\"name\"", "```json\n"] {
        let mut written = Written::new(&tools, Counts::Whole, Told::default());
        let mut parts = written.push(reply);
        parts.extend(written.called());
        parts.extend(written.push(CALL));
        parts.extend(written.finish());
        let text: String = parts
            .iter()
            .map(|part| match part {
                Part::Text(text) | Part::Withdrawn { text, .. } => text.as_str(),
                Part::Call(_) => "",
            })
            .collect();
        assert_eq!(text, format!("{reply}{CALL}"));
    }
}

#[test]
fn a_tag_may_follow_text() {
    let reply = format!("Let me see.\n\n<tool_call>\n{CALL}\n</tool_call>");
    let (text, calls) = read_all_ways(&reply);
    assert_eq!((text.as_str(), calls.len()), ("Let me see.\n\n", 1));
    let (text, calls) = read_all_ways(&format!("{reply}\nThen on."));
    assert_eq!((text.as_str(), calls.len()), ("Let me see.\n\n\nThen on.", 1));
}

#[test]
fn code_with_line_breaks_as_they_are_is_read() {
    let reply = "{\"name\": \"run_code\", \"arguments\": {\"code\": \"a = 1\n\tprint(a)\"}}";
    let (_, calls) = read_all_ways(reply);
    assert_eq!(calls[0].1, r#"{"code":"a = 1\n\tprint(a)"}"#);
    // What can't be read is the model's to repair.
    let (_, calls) = read_all_ways(r#"{"name": "run_code", "arguments": {"code": """a"""}}"#);
    assert_eq!(calls[0].1, r#"{"code": """a"""}"#);
}

#[test]
fn a_call_is_told_while_it_comes() {
    let tools = tools();
    let mut written = Written::new(&tools, Counts::Whole, Told::default());
    assert_eq!(written.push("```js"), []);
    assert_eq!(written.push("on\n{\"name\": \"run_code\", \"argum"), []);
    let parts = written.push("ents\": {\"code\": \"pri");
    assert!(
        matches!(&parts[..], [Part::Call(Delta::CallStart { name, .. }), Part::Call(Delta::CallArguments { json, .. })]
        if name == "run_code" && json == "{\"code\": \"pri"),
        "{parts:?}"
    );
}

#[test]
fn without_tools_nothing_is_held_back() {
    let mut written = Written::new(&[], Counts::Tagged, Told::default());
    assert_eq!(written.push("{\"na"), [Part::Text("{\"na".to_owned())]);
}

proptest::proptest! {
    #[test]
    fn no_text_is_lost(pieces in proptest::collection::vec("[a-c{}\\[\\]\":,`<> \n]{0,10}|<tool_call>|</tool_call>|```json\n|\\{\"name\": ", 0..10)) {
        let pieces: Vec<&str> = pieces.iter().map(String::as_str).collect();
        let (text, calls) = read(pieces.iter().copied());
        proptest::prop_assert!(calls.is_empty());
        proptest::prop_assert_eq!(text, pieces.concat());
    }
}
