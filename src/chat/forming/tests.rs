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

fn changes(deltas: Vec<Delta>) -> (Vec<Change>, Vec<String>) {
    let tools = tools();
    let mut forming = Forming::new(&tools);
    let mut changes: Vec<Change> =
        deltas.into_iter().flat_map(|delta| forming.take(delta).expect("few calls")).collect();
    let (rest, calls) = forming.finish();
    if !rest.is_empty() {
        changes.push(Change::More(rest));
    }
    (changes, calls.into_iter().map(|call| call.id).collect())
}

/// The pieces, when nothing is mended.
fn shown(deltas: Vec<Delta>) -> (Vec<String>, Vec<String>) {
    let (changes, calls) = changes(deltas);
    let piece = |change| match change {
        Change::More(piece) => piece,
        other @ Change::Instead { .. } => panic!("{other:?}"),
    };
    (changes.into_iter().map(piece).collect(), calls)
}

/// How the page looks in the end: where what was shown can be replaced, and where it can't.
fn pages(deltas: Vec<Delta>) -> (String, String) {
    let (mut page, mut stream) = (String::new(), String::new());
    for change in changes(deltas).0 {
        match change {
            Change::More(piece) => {
                page.push_str(&piece);
                stream.push_str(&piece);
            }
            Change::Instead { old, new, added } => {
                page.truncate(page.strip_suffix(old.as_str()).expect("it stands there").len());
                page.push_str(&new);
                stream.push_str(&added);
            }
        }
    }
    (page, stream)
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
fn a_language_must_be_a_name() {
    for arguments in [
        r#"{"language": "py`\n# hi", "code": "x"}"#,
        r#"{"code": "x", "language": "py`\n# hi"}"#,
        r#"{"code": "x", "language": "Python"}"#,
    ] {
        let deltas = vec![start(0, "run_code"), more(0, arguments), whole(0, "run_code", arguments)];
        assert_eq!(shown(deltas).0.concat(), "\n\n````python\nx\n````\n");
    }
}

#[test]
fn a_language_that_comes_behind_the_code_is_that_of_the_only_fence_in_the_end() {
    let arguments = r#"{"code": "fn main() {}\n", "language": "rust"}"#;
    let deltas = vec![
        start(0, "run_code"),
        more(0, r#"{"code": "fn main"#),
        more(0, r#"() {}\n", "langu"#),
        more(0, r#"age": "rust"}"#),
        whole(0, "run_code", arguments),
        whole(1, "run_code", r#"{"code": "ls", "language": "sh"}"#),
    ];
    let (grown, _) = changes(deltas.clone());
    assert_eq!(grown[0], Change::More("\n\n````python\nfn main".to_owned()), "it is shown as it comes");
    let (page, stream) = pages(deltas);
    let next = "\n\n````sh\nls\n````\n";
    assert_eq!(page, format!("\n\n````rust\nfn main() {{}}\n````\n{next}"));
    assert_eq!(
        stream,
        format!("\n\n````python\nfn main() {{}}\n````\n\nThe language of the code above is rust.\n\n{next}")
    );
}

#[test]
fn a_call_that_waits_for_its_turn_has_the_right_fence_at_once() {
    let arguments = r#"{"code": "ls", "language": "sh"}"#;
    let deltas = vec![
        start(0, "run_code"),
        more(0, r#"{"code": "1"#),
        start(1, "run_code"),
        more(1, arguments),
        whole(1, "run_code", arguments),
        whole(0, "run_code", r#"{"code": "1"}"#),
    ];
    assert_eq!(shown(deltas).0.concat(), "\n\n````python\n1\n````\n\n\n````sh\nls\n````\n");
}

#[test]
fn a_call_without_its_beginning_is_shown_at_its_end() {
    let (pieces, _) = shown(vec![whole(3, "run_code", r#"{"code": "1+1"}"#)]);
    assert_eq!(pieces.concat(), "\n\n````python\n1+1\n````\n");
}

#[test]
fn what_is_shown_in_the_end_is_what_will_be_run() {
    let twice = r#"{"code": "good()", "code": "bad()"}"#;
    let (page, stream) =
        pages(vec![start(0, "run_code"), more(0, twice), whole(0, "run_code", r#"{"code": "bad()"}"#)]);
    assert_eq!(page, "\n\n````python\nbad()\n````\n");
    let (before, counts) = stream.split_once("what counts is this:").expect("it is said");
    assert_eq!(before, "\n\n````python\ngood()bad()\n````\n\nThe call ended otherwise than it began; ");
    assert_eq!(counts, page);
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
