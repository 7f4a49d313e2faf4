//! Code in the reply of a model that can't call tools: fences marked `run` in its final text. What it quotes does not
//! count.
//!
//! Reasoning never comes here: the text of a reply is without it.

use serde_json::json;

use super::tools::RUN_CODE;
use crate::cell::{self, CellError, Vocabulary};
use crate::chat::{Told, ToolCall};

/// The calls that a reply's marked fences stand for, in order. A fence that can't be read is a call as well, which
/// will be answered with what is wrong with it.
pub(super) fn calls(text: &str, words: &Vocabulary, reply: u64, told: &Told) -> Vec<ToolCall> {
    let call = |index: usize, arguments: String| ToolCall {
        id: format!("fence-{reply}-{index}"),
        name: RUN_CODE.to_owned(),
        arguments,
    };
    match cell::fences(text, words) {
        Ok(blocks) => blocks
            .into_iter()
            .filter(|block| block.has("run") && !told.has_fence(&block.source))
            .enumerate()
            .map(|(index, block)| {
                let mut arguments = json!({ "code": block.source, "language": block.language });
                if let Some(container) = block.value("container") {
                    arguments["container"] = container.into();
                }
                call(index, arguments.to_string())
            })
            .collect(),
        // Language and code of one that names no language of ours are left to whoever reads the call.
        Err(CellError::UnknownLanguage { language, .. }) => {
            vec![call(0, json!({ "code": "", "language": language.unwrap_or_default() }).to_string())]
        }
        Err(_) => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Vec<String> {
        let words = Vocabulary::new().language("python", ["py"]).language("sh", []);
        calls(text, &words, 1, &Told::default()).into_iter().map(|call| call.arguments).collect()
    }

    #[test]
    fn only_marked_fences_run_in_their_order() {
        let text = "Let me see.\n\n```python\n1\n```\n\n```py run\nx = 1\nx\n```\n\nand\n\n```sh run container=b\nls\n```\n";
        assert_eq!(
            read(text),
            [
                r#"{"code":"x = 1\nx\n","language":"python"}"#,
                r#"{"code":"ls\n","language":"sh","container":"b"}"#
            ]
        );
    }

    #[test]
    fn what_is_no_whole_fence_does_not_run() {
        for text in ["", "```python run\n1", "`python run`", "    ```python run\n    1\n    ```", "%reset\n"]
        {
            assert_eq!(read(text), Vec::<String>::new(), "{text:?}");
        }
    }

    #[test]
    fn an_unknown_language_is_a_call_that_will_be_refused() {
        assert_eq!(read("```cobol run\nDISPLAY 1\n```"), [r#"{"code":"","language":"cobol"}"#]);
    }
}
