//! Calls as they form.

use serde_json::json;

use super::*;

fn tools() -> Vec<Tool> {
    let tool = |name, code| Tool { name, description: String::new(), parameters: json!({}), code };
    let code = CodeArguments { code: "code", language: "language", default: "python" };
    vec![tool("run_code", Some(code)), tool("read_file", None)]
}

fn start(part: u64, name: &str) -> Delta {
    Delta::CallStart { part, name: name.to_owned() }
}

fn more(part: u64, json: &str) -> Delta {
    Delta::CallArguments { part, json: json.to_owned() }
}

fn whole(part: u64, name: &str, arguments: &str) -> Delta {
    let call = ToolCall { id: format!("c{part}"), name: name.to_owned(), arguments: arguments.to_owned() };
    Delta::Call { part, call }
}

fn shown(deltas: Vec<Delta>) -> (Vec<String>, Vec<String>) {
    let tools = tools();
    let mut forming = Forming::new(&tools);
    let mut pieces: Vec<String> =
        deltas.into_iter().map(|delta| forming.take(delta).expect("few calls")).collect();
    let (rest, calls) = forming.finish();
    pieces.push(rest);
    pieces.retain(|piece| !piece.is_empty());
    (pieces, calls.into_iter().map(|call| call.id).collect())
}

#[test]
fn code_grows_in_its_fence() {
    let arguments = r#"{"language": "r", "code": "x <- 1\nx"}"#;
    let (pieces, calls) = shown(vec![
        start(0, "run_code"),
        more(0, r#"{"language": "r", "co"#),
        more(0, r#"de": "x <-"#),
        more(0, r" 1\"),
        more(0, r#"nx"}"#),
        whole(0, "run_code", arguments),
    ]);
    assert_eq!(pieces, ["\n\n````r\nx <-", " 1", "\nx", "\n````\n"]);
    assert_eq!(calls, ["c0"]);
}

#[test]
fn the_language_may_come_too_late_and_must_be_a_name() {
    let late = r#"{"code": "x", "language": "r"}"#;
    let odd = r#"{"language": "py`\n# hi", "code": "x"}"#;
    for arguments in [late, odd] {
        let deltas = vec![start(0, "run_code"), more(0, arguments), whole(0, "run_code", arguments)];
        assert_eq!(shown(deltas).0.concat(), "\n\n````python\nx\n````\n");
    }
}

#[test]
fn a_call_without_its_beginning_is_shown_at_its_end() {
    let (pieces, _) = shown(vec![whole(3, "run_code", r#"{"code": "1+1"}"#)]);
    assert_eq!(pieces.concat(), "\n\n````python\n1+1\n````\n");
}

#[test]
fn what_is_shown_in_the_end_is_what_will_be_run() {
    let twice = r#"{"code": "good()", "code": "bad()"}"#;
    let (pieces, _) =
        shown(vec![start(0, "run_code"), more(0, twice), whole(0, "run_code", r#"{"code": "bad()"}"#)]);
    assert!(pieces.concat().ends_with("````python\nbad()\n````\n"), "{pieces:?}");
}

#[test]
fn parallel_calls_are_shown_one_after_the_other_and_kept_in_their_order() {
    let (pieces, calls) = shown(vec![
        start(0, "run_code"),
        start(1, "run_code"),
        more(1, r#"{"code": "two"}"#),
        more(0, r#"{"code": "one"#),
        whole(1, "run_code", r#"{"code": "two"}"#),
        more(0, r#""}"#),
        whole(0, "run_code", r#"{"code": "one"}"#),
    ]);
    assert_eq!(pieces.concat(), "\n\n````python\none\n````\n\n\n````python\ntwo\n````\n");
    assert_eq!(calls, ["c0", "c1"]);
}

#[test]
fn other_calls_are_one_short_line() {
    let long = format!(r#"{{"path": "data.csv", "text": "{}"}}"#, "y\\n".repeat(500));
    let (pieces, _) = shown(vec![start(0, "read_file"), more(0, &long), whole(0, "read_file", &long)]);
    let line = pieces.concat();
    assert!(line.starts_with("\n\n`read_file(path=\"data.csv\", text=\"y\\ny"), "{line}");
    assert!(line.chars().count() < 220 && line.trim().lines().count() == 1, "{line}");
    let (pieces, _) = shown(vec![whole(0, "`x`\n# h\u{202e}", "`{\n\n# not json`")]);
    let line = pieces.concat();
    assert_eq!(line.trim(), "`` `x` # h (`{  # not json`) ``");
}

#[test]
fn a_malformed_call_closes_its_fence_and_says_what_came() {
    let arguments = r#"{"code": "x = 1"#;
    let (pieces, calls) =
        shown(vec![start(0, "run_code"), more(0, arguments), whole(0, "run_code", arguments)]);
    assert_eq!(pieces.concat(), "\n\n````python\nx = 1\n````\n\n\n`run_code({\"code\": \"x = 1)`\n\n");
    assert_eq!(calls, ["c0"]);
}

#[test]
fn a_reply_that_ends_in_a_call_closes_the_fence() {
    let (pieces, calls) = shown(vec![start(0, "run_code"), more(0, r#"{"code": "while"#)]);
    assert_eq!(pieces, ["\n\n````python\nwhile", "\n````\n"]);
    assert!(calls.is_empty());
}

#[test]
fn calls_are_counted() {
    let tools = tools();
    let mut forming = Forming::new(&tools);
    for part in 0..128 {
        forming.take(whole(part, "read_file", "{}")).expect("room");
    }
    assert_eq!(forming.take(start(128, "read_file")), Err(TooMany));
}
