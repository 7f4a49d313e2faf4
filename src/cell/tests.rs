#![allow(clippy::unwrap_used, clippy::panic)]

use proptest::prelude::*;

use super::*;

fn words() -> Vocabulary {
    Vocabulary::new()
        .language("python", ["py", "python3"])
        .language("sh", ["bash", "shell"])
        .language("c++", ["cpp"])
        .magics(["help", "model", "reset"])
}

fn markdown(text: &str) -> Result<Cell, CellError> {
    parse(text, Dialect::Markdown, &words())
}

fn python(text: &str) -> Result<Cell, CellError> {
    parse(text, Dialect::Python, &words())
}

/// One line per part: `p|text`, `language@line attributes|source`; directives first as `%name argument@line`.
fn shown(cell: &Cell) -> Vec<String> {
    let directives = cell.directives.iter().map(|d| format!("%{} {}@{}", d.name, d.argument, d.line));
    let parts = cell.parts.iter().map(|part| match part {
        Part::Prose(text) => format!("p|{text}"),
        Part::Code(block) => {
            let attributes: Vec<_> = block
                .attributes
                .iter()
                .map(|(key, value)| value.as_ref().map_or(key.clone(), |value| format!("{key}={value}")))
                .collect();
            format!("{}@{} {}|{}", block.language, block.line, attributes.join(" "), block.source)
        }
    });
    directives.chain(parts).collect()
}

#[track_caller]
fn check(cases: &[(&str, &[&str])], dialect: Dialect) {
    for (text, expected) in cases {
        let cell = parse(text, dialect, &words()).unwrap_or_else(|e| panic!("{text:?}: {e}"));
        assert_eq!(shown(&cell), *expected, "{text:?}");
    }
}

#[test]
fn prose_and_fences_come_in_their_order() {
    check(
        &[
            ("", &[]),
            (" \n\t\n", &[]),
            ("Why is the sky blue?", &["p|Why is the sky blue?"]),
            ("```python\nx = 1\n```", &["python@2 |x = 1\n"]),
            ("```py\nx\n```\n```bash\nls\n```\n", &["python@2 |x\n", "sh@5 |ls\n"]),
            ("a\n\n```PYTHON3\nx\n```\nb\n", &["p|a\n\n", "python@4 |x\n", "p|\nb\n"]),
            ("```python timeout=10 title=\"a b\"\nx\n```", &["python@2 timeout=10 title=a b|x\n"]),
            ("```{.python timeout=10}\nx\n```", &["python@2 timeout=10|x\n"]),
            ("```cpp\nx\n```", &["c++@2 |x\n"]),
            ("```python\n```", &["python@2 |"]),
            ("```python\n\n\n```", &["python@2 |\n\n"]),
        ],
        Dialect::Markdown,
    );
}

#[test]
fn fences_follow_commonmark() {
    check(
        &[
            ("~~~python\nx\n~~~", &["python@2 |x\n"]),
            ("~~~~ python\n~~~\nx\n~~~~~", &["python@2 |~~~\nx\n"]),
            ("````python\n```\nx\n```\n````", &["python@2 |```\nx\n```\n"]),
            ("````md\n```python\nx\n```\n````", &["p|````md\n```python\nx\n```\n````"]),
            ("  ```python\n   x\n  y\n ```  ", &["python@2 | x\ny\n"]),
            ("```python\n    ```\n```", &["python@2 |    ```\n"]),
            ("```python\n~~~\n```", &["python@2 |~~~\n"]),
            // An indented code block, inline code, and a backtick in the info string of a backtick fence.
            ("    ```python\n    x\n    ```", &["p|    ```python\n    x\n    ```"]),
            ("use ```python x``` here", &["p|use ```python x``` here"]),
            ("```py `x`\ny```", &["p|```py `x`\ny```"]),
            // A fence interrupts a paragraph.
            ("text\n```sh\nls\n```\nmore", &["p|text\n", "sh@3 |ls\n", "p|\nmore"]),
            // HTML blocks and comments are prose.
            ("<!--\n```python\nx\n```\n-->", &["p|<!--\n```python\nx\n```\n-->"]),
            ("<pre>\n```python\nx\n```\n</pre>", &["p|<pre>\n```python\nx\n```\n</pre>"]),
            ("\\```python\nx", &["p|\\```python\nx"]),
            ("```p\\ython\nx\n```", &["p|```p\\ython\nx\n```"]),
            ("```&#112;ython\nx\n```", &["python@2 |x\n"]),
        ],
        Dialect::Markdown,
    );
}

#[test]
fn fences_in_lists_run_without_their_indentation_and_in_quotes_not_at_all() {
    check(
        &[
            ("- ```python\n  if x:\n      y\n  ```", &["python@2 |if x:\n    y\n"]),
            ("1. do\n   ```sh\n   ls\n   ```\n2. end", &["p|1. do\n   ", "sh@3 |ls\n", "p|\n2. end"]),
            (
                "- a\n  - b\n\n    ```sh\n    ls\n\n    w\n    ```",
                &["p|- a\n  - b\n\n    ", "sh@5 |ls\n\nw\n"],
            ),
            ("- ```sh\n  a\n  ```\n- ```sh\n  b\n  ```", &["sh@2 |a\n", "sh@5 |b\n"]),
            ("> ```python\n> x\n> ```", &["p|> ```python\n> x\n> ```"]),
            ("> ```python\n> x\n\nwhy?", &["p|> ```python\n> x\n\nwhy?"]),
            ("- > ```python\n  > x\n  > ```", &["p|- > ```python\n  > x\n  > ```"]),
            ("> a\n\n```sh\nls\n```", &["p|> a\n\n", "sh@4 |ls\n"]),
        ],
        Dialect::Markdown,
    );
}

#[test]
fn only_known_languages_run_unless_told_otherwise() {
    check(
        &[
            ("```\nx\n```", &["p|```\nx\n```"]),
            ("```output\nx\n```", &["p|```output\nx\n```"]),
            ("```python norun\nx\n```", &["p|```python norun\nx\n```"]),
            ("```python run\nx\n```", &["python@2 run|x\n"]),
            ("```python run norun\nx\n```", &["p|```python run norun\nx\n```"]),
            ("> ```cobol run\n> x\n> ```", &["p|> ```cobol run\n> x\n> ```"]),
        ],
        Dialect::Markdown,
    );
    let error = markdown("a\n```pyton run\nx\n```").unwrap_err();
    assert_eq!(
        error.to_string(),
        "the fence in line 2 is marked `run` but nothing here runs \"pyton\" (did you mean python?); \
         the languages here are c++, python, sh"
    );
    assert_eq!(
        markdown("``` run\nx\n```").unwrap_err().to_string(),
        "the fence in line 1 is marked `run` but names no language; the languages here are c++, python, sh"
    );
}

#[test]
fn a_fence_that_is_never_closed_is_an_error_with_its_place() {
    for (text, line, fence) in [
        ("```python\nx", 1, "```"),
        ("```python", 1, "```"),
        ("a\n\n~~~~sh\nls\n~~~\n", 3, "~~~~"),
        ("```python\nx\n    ```", 1, "```"),
        ("```\nno tag", 1, "```"),
        ("```python\nx\n```\n```", 4, "```"),
        ("- ```sh\n  ls\n\nafter", 1, "```"),
        ("%reset\n\n```python\nx", 3, "```"),
        ("```python\n``` x", 1, "```"),
    ] {
        let expected = CellError::UnterminatedFence { line, fence: fence.to_owned() };
        assert_eq!(markdown(text).unwrap_err(), expected, "{text:?}");
    }
}

#[test]
fn magics_and_commands_count_only_at_the_head() {
    check(
        &[
            ("%reset", &["%reset @1"]),
            (
                "\n  %model  openai/gpt-5 \n\n%reset\nHello",
                &["%model openai/gpt-5@2", "%reset @4", "p|Hello"],
            ),
            ("Hello\n%reset", &["p|Hello\n%reset"]),
            ("    %reset", &["p|    %reset"]),
            ("% of them", &["p|% of them"]),
            ("%5 is little", &["p|%5 is little"]),
            ("!ls -l", &["sh@1 run|ls -l"]),
            (
                "! echo 1\n!echo 2\nWhat was that?",
                &["sh@1 run|echo 1", "sh@2 run|echo 2", "p|What was that?"],
            ),
            ("!echo a \\\n  b\nc", &["sh@1 run|echo a \\\n  b", "p|c"]),
            ("%reset\n!ls\n```py\nx\n```", &["%reset @1", "sh@2 run|ls", "python@4 |x\n"]),
            ("![image](x.png)", &["p|![image](x.png)"]),
            ("!!! note", &["p|!!! note"]),
            ("!", &["p|!"]),
            ("text\n!ls", &["p|text\n!ls"]),
        ],
        Dialect::Markdown,
    );
}

#[test]
fn a_cell_magic_takes_the_rest_as_it_is() {
    check(
        &[
            ("%%python\nx = '''\n```\n'''", &["python@2 |x = '''\n```\n'''"]),
            ("%%bash timeout=5\nls\n", &["sh@2 timeout=5|ls\n"]),
            ("%reset\n\n%%sh\nls", &["%reset @1", "sh@4 |ls"]),
            ("%%chat\nexplain\n```python\nx\n```", &["p|explain\n```python\nx\n```"]),
            ("%%chat why?", &["p|why?"]),
            ("%%chat temperature=0.5  why x=1?", &["p|why x=1?"]),
            ("%%python\n", &[]),
            ("%%chat", &[]),
            ("%%python\r\nx\r\ny\r\n", &["python@2 |x\ny\n"]),
            ("%% a cell mark", &["p|%% a cell mark"]),
        ],
        Dialect::Markdown,
    );
}

#[test]
fn an_unknown_magic_names_the_nearest() {
    for (text, dialect, expected) in [
        ("%modle x", Dialect::Markdown, "there is no magic %modle (line 1); did you mean %model?"),
        (
            "\n%zzz",
            Dialect::Markdown,
            "there is no magic %zzz (line 2); %help lists those there are; IPython's own work in a ```python fence",
        ),
        ("%python\nx", Dialect::Markdown, "there is no magic %python (line 1); did you mean %%python?"),
        ("%%pyton\nx", Dialect::Markdown, "there is no magic %%pyton (line 1); did you mean %%python?"),
        ("%%reset", Dialect::Markdown, "there is no magic %%reset (line 1); did you mean %reset?"),
        ("%cb modle x", Dialect::Python, "there is no magic %cb modle (line 1); did you mean %cb model?"),
        ("%cb zzz", Dialect::Python, "there is no magic %cb zzz (line 1); %cb help lists those there are"),
    ] {
        assert_eq!(parse(text, dialect, &words()).unwrap_err().to_string(), expected);
    }
    assert!(markdown(&format!("%{}", "x".repeat(100_000))).is_err());
}

#[test]
fn code_in_the_line_of_a_cell_magic_is_not_swallowed() {
    let error = markdown("%reset\n%%sh ls -la\n\n").unwrap_err().to_string();
    assert!(
        error.contains("%%sh runs the lines below") && error.contains("(line 2); put `ls -la`"),
        "{error}"
    );
    assert!(markdown(&format!("%%python {}", "é".repeat(1000))).unwrap_err().to_string().len() < 400);
    check(&[("%%sh timeout=5\nls", &["sh@2 timeout=5|ls"])], Dialect::Markdown);
}

#[test]
fn in_python_everything_but_a_few_words_is_python() {
    check(
        &[
            ("", &[]),
            ("x = 1\r\n", &["python@1 |x = 1\r\n"]),
            ("\n\n# comment", &["python@1 |\n\n# comment"]),
            ("%matplotlib inline\n%%time", &["python@1 |%matplotlib inline\n%%time"]),
            ("%%bash\nls", &["python@1 |%%bash\nls"]),
            ("!ls", &["python@1 |!ls"]),
            ("'''\n```python\n'''", &["python@1 |'''\n```python\n'''"]),
            ("  x", &["python@1 |  x"]),
            ("%cb model a/b\n%cb reset\n\nx = 1", &["%model a/b@1", "%reset @2", "python@3 |\nx = 1"]),
            ("%cb", &["%help @1"]),
            ("%cb %reset", &["%reset @1"]),
            ("x\n%cb reset", &["python@1 |x\n%cb reset"]),
            ("%cbx", &["python@1 |%cbx"]),
            ("%%chat\nhello\n```python\nx\n```", &["p|hello\n```python\nx\n```"]),
            ("\n```sh\nls\n```\nand?", &["sh@3 |ls\n", "p|\nand?"]),
            ("%cb reset\n~~~py\nx\n~~~", &["%reset @1", "python@3 |x\n"]),
        ],
        Dialect::Python,
    );
    assert!(python("```python\nx").is_err());
}

#[test]
fn odd_bytes_are_no_trouble() {
    check(
        &[
            ("\u{feff}%reset\nHello", &["%reset @1", "p|Hello"]),
            ("\u{feff}```py\nx\n```", &["python@2 |x\n"]),
            ("```py\r\nx\r\n\r\ny\r\n```\r\nz", &["python@2 |x\n\ny\n", "p|\r\nz"]),
            ("```py\n\u{0}\n```", &["python@2 |\u{0}\n"]),
            ("- a\n\n  ```py\n\ty\n  ```", &["p|- a\n\n  ", "python@4 |  y\n"]),
        ],
        Dialect::Markdown,
    );
    check(&[("\u{feff}x = 1", &["python@1 |x = 1"])], Dialect::Python);
}

#[test]
fn the_prompt_is_the_body_as_written_when_there_is_prose() {
    let cell = markdown("%reset\n!ls\nExplain:\n\n```python\nx\n```\n").unwrap();
    assert_eq!(cell.prompt, "Explain:\n\n```python\nx\n```");
    assert!(cell.has_prose());
    assert_eq!(cell.blocks().count(), 2);
    let cell = markdown("1. ```python\n   x\n   ```\n\n---\n").unwrap();
    assert_eq!((cell.prompt.as_str(), cell.has_prose()), ("", false), "list markers and rules are no words");
    assert_eq!(markdown("%%chat why?\n").unwrap().prompt, "why?");
}

#[test]
fn deep_and_large_cells_take_linear_work() {
    // Quadratic work on any of these would take minutes; there is no clock in this test.
    let prose = "word ".repeat(400_000);
    assert_eq!(markdown(&prose).unwrap().parts.len(), 1);
    let fences = "```python\nx\n```\n".repeat(40_000);
    let cell = markdown(&fences).unwrap();
    assert_eq!(cell.parts.len(), 40_000);
    assert_eq!(cell.blocks().last().unwrap().line, 119_999);
    for piece in
        ["> ", "- ", "[", "*a", "`", "<", "![", "&", "1. ", "_", "<!--", "[a](", "```\n", "~~~ x\n", "!x\\\n"]
    {
        let _ = markdown(&piece.repeat(100_000 / piece.len()));
    }
}

fn cellish() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        4 => prop::sample::select(vec![
            "```", "~~~", "````", "python", "py", " run", " norun", "\n", "\n", "\n", "\r\n", "  ", "    ", "\t", "- ",
            "1. ", "> ", "%", "%%", "%cb ", "model", "reset", "chat", "temperature=", "system='", "!", "![", "x", "é𝒳", "<!--", "-->", "<div>",
            "\\", "\u{feff}", "\u{0}", "`", "[a]: b\n", "timeout=10", "\"", "\r", "---\n",
        ]).prop_map(str::to_owned),
        1 => any::<String>(),
    ];
    prop::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
}

fn is_subsequence(part: &str, whole: &str) -> bool {
    let mut whole = whole.chars();
    part.chars().all(|c| whole.any(|w| w == c))
}

proptest! {
    #[test]
    fn every_text_is_a_cell_or_an_error(text in cellish()) {
        for dialect in [Dialect::Markdown, Dialect::Python] {
            let lines = text.matches('\n').count() + 1;
            match parse(&text, dialect, &words()) {
                Ok(cell) => {
                    for block in cell.blocks() {
                        prop_assert!(words().canonical(&block.language).is_some());
                        prop_assert!((1..=lines + 1).contains(&block.line), "{block:?} of {text:?}");
                        // Tabs are expanded by the width of a list item; nothing else is ever added.
                        prop_assert!(text.contains('\t') || is_subsequence(&block.source, &text));
                    }
                    for part in &cell.parts {
                        if let Part::Prose(prose) = part {
                            prop_assert!(text.contains(prose.as_str()));
                        }
                    }
                    prop_assert!(text.contains(&cell.prompt));
                    prop_assert_eq!(cell.has_prose(), !cell.prompt.is_empty());
                }
                Err(CellError::UnterminatedFence { line, fence }) => {
                    prop_assert!(text.lines().nth(line - 1).is_some_and(|l| l.contains(&fence)), "{text:?}");
                }
                Err(
                    CellError::UnknownMagic { line, .. }
                    | CellError::UnknownLanguage { line, .. }
                    | CellError::NothingBelow { line, .. }
                    | CellError::UnknownAttribute { line, .. }
                    | CellError::RepeatedAttribute { line, .. }
                    | CellError::OpenQuote { line, .. },
                ) => {
                    prop_assert!(line <= lines);
                }
            }
        }
    }

    #[test]
    fn a_block_stands_at_its_line(before in "[a-z\\n]{0,30}", code in "[a-z =]{1,20}", after in "[a-z\\n]{0,30}") {
        let text = format!("{before}\n\n```python\n{code}\n```\n{after}");
        let cell = markdown(&text).unwrap();
        let block = cell.blocks().next().unwrap();
        prop_assert_eq!(text.lines().nth(block.line - 1), Some(code.as_str()));
        prop_assert_eq!(&block.source, &format!("{code}\n"));
    }

    #[test]
    fn locating_is_total_and_its_positions_are_in_the_text(text in cellish(), cursor in 0usize..200) {
        for dialect in [Dialect::Markdown, Dialect::Python] {
            let length = text.chars().count();
            match locate(&text, cursor, dialect, &words()) {
                Place::Code { source, cursor: inner, cell_cursor, .. } => {
                    prop_assert!(inner <= source.chars().count());
                    prop_assert_eq!(cell_cursor, cursor.min(length));
                }
                Place::Magic { prefix, start, .. }
                | Place::Argument { prefix, start, .. }
                | Place::Language { prefix, start } => {
                    prop_assert!(start + prefix.chars().count() <= length, "{text:?} {cursor}");
                    let there: String = text.chars().skip(start).take(prefix.chars().count()).collect();
                    prop_assert_eq!(there, prefix);
                }
                Place::Prose => {}
            }
        }
    }
}
