//! Answers of the model as variables of the next Python cell: `answer`, and what `%save` names. They are texts, put
//! there as data; nothing of them is executed.

use super::names;
use crate::sandbox::{NamedText, Texts};

/// The variable that holds the last answer, unless the user has assigned it.
const ANSWER: &str = "answer";
/// The most of an answer that is put there, in bytes.
const LONGEST: usize = 200 << 10;
/// The most names that wait for a Python cell.
const MOST: usize = 20;

/// What the next Python cell finds.
#[derive(Debug, Default)]
pub(super) struct Variables {
    version: u64,
    answer: String,
    saved: Vec<NamedText>,
}

impl Variables {
    pub(super) fn answered(&mut self, text: &str) {
        text.get(..text.floor_char_boundary(LONGEST)).unwrap_or_default().clone_into(&mut self.answer);
        self.version += 1;
    }

    pub(super) fn save(&mut self, name: &str) -> Result<(), String> {
        let is_name = name.len() <= 100
            && name.starts_with(|c: char| c.is_ascii_alphabetic())
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        if !is_name {
            return Err(format!(
                "takes the name of a Python variable, which begins with a letter; not {name:?}"
            ));
        }
        if let Some(why) = names::taken(name) {
            return Err(format!("can't use {name:?}, which {why}; choose another name"));
        }
        if self.answer.is_empty() {
            return Err("has nothing to save: no model has answered yet".to_owned());
        }
        self.saved.retain(|one| one.name != name);
        if self.saved.len() >= MOST {
            return Err(format!("keeps at most {MOST} names until a Python cell runs"));
        }
        self.saved.push(NamedText { name: name.to_owned(), text: self.answer.clone(), replace: true });
        self.version += 1;
        Ok(())
    }

    pub(super) fn texts(&self) -> Texts {
        let mut values = self.saved.clone();
        if !self.answer.is_empty() {
            values.push(NamedText { name: ANSWER.to_owned(), text: self.answer.clone(), replace: false });
        }
        Texts { version: self.version, values }
    }

    pub(super) fn delivered(&mut self) {
        self.saved.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_waits_for_the_next_python_cell_and_a_saved_name_only_for_that_one() {
        let mut variables = Variables::default();
        assert_eq!(variables.texts(), Texts::default());
        assert!(variables.save("x").is_err_and(|why| why.contains("no model has answered")));
        variables.answered("first");
        assert_eq!(variables.save("x"), Ok(()));
        variables.answered("second");
        let texts = variables.texts();
        let seen: Vec<_> =
            texts.values.iter().map(|one| (one.name.as_str(), one.text.as_str(), one.replace)).collect();
        assert_eq!(seen, [("x", "first", true), ("answer", "second", false)]);
        variables.delivered();
        assert_eq!(variables.texts().values.len(), 1);
        assert_eq!(variables.texts().version, texts.version);
    }

    #[test]
    fn only_names_of_variables_are_taken() {
        let mut variables = Variables::default();
        variables.answered("x");
        for bad in [
            "",
            "1a",
            "a b",
            "a;b",
            "a=1",
            "class",
            "None",
            "__builtins__",
            "_x",
            "é",
            "a.b",
            "In",
            &"x".repeat(101),
        ] {
            assert!(variables.save(bad).is_err(), "{bad}");
        }
        for (taken, why) in [
            ("print", "one of Python's builtins"),
            ("ValueError", "one of Python's builtins"),
            ("lambda", "a keyword of Python"),
            ("display", "the session's own"),
        ] {
            let refused = variables.save(taken);
            assert!(
                refused.is_err_and(|said| said.contains(why) && said.contains("another name")),
                "{taken}"
            );
        }
        assert_eq!(variables.save("reply_2"), Ok(()));
        variables.answered(&"é".repeat(LONGEST));
        assert!(variables.answer.len() <= LONGEST);
    }
}
