//! Tests of the dialogue in memory.
#![allow(clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

use super::window::Dialogue;
use super::*;
use crate::chat::model::Message;
use crate::chat::turn::ToolCall;

fn say(talk: &mut Conversation, place: &Place, prompt: &Prompt, reply: &str, calls: &[ToolCall]) {
    let said = Said { text: reply.to_owned(), calls: calls.to_vec(), end: End::Whole, within: None };
    talk.answered(place, prompt, said);
}

fn ran(source: &str, outcome: &str) -> Ran {
    Ran { language: "python".into(), source: source.into(), outcome: outcome.into(), ..Ran::default() }
}

fn texts(dialogue: &Dialogue) -> Vec<&str> {
    dialogue
        .messages
        .iter()
        .map(|message| match message {
            Message::User { text, .. } | Message::Assistant { text, .. } => text.as_str(),
            Message::Results(_) => "",
        })
        .collect()
}

#[test]
fn a_cell_that_runs_again_replaces_its_turn_at_its_place() {
    let mut talk = Conversation::default();
    for (cell, prompt) in [("a", "one"), ("b", "two"), ("c", "three")] {
        let place = talk.begin(Some(cell), "");
        say(&mut talk, &place, &Prompt::text(prompt), &format!("re {prompt}"), &[]);
    }
    let again = talk.begin(Some("b"), "");
    assert_eq!(texts(&talk.dialogue(&again, &Prompt::text("zwei"), 1000)), ["one", "re one", "zwei"]);
    say(&mut talk, &again, &Prompt::text("zwei"), "re zwei", &[]);
    let next = talk.begin(None, "");
    assert_eq!(
        texts(&talk.dialogue(&next, &Prompt::text("four"), 1000)),
        ["one", "re one", "zwei", "re zwei", "three", "re three", "four"]
    );
}

#[test]
fn code_and_prompt_of_one_execution_make_one_turn_and_roles_alternate() {
    let mut talk = Conversation::default();
    let first = talk.begin(Some("a"), "");
    talk.ran(&first, ran("print(1)", "1"));
    let second = talk.begin(None, "");
    talk.ran(&second, ran("x = {'$a': \"{b}\"}", ""));
    let dialogue = talk.dialogue(&second, &Prompt::text("why?"), 10_000);
    assert_eq!(dialogue.messages.len(), 1);
    let text = texts(&dialogue)[0];
    for part in ["```python\nprint(1)\n```", "```\n1\n```", "x = {'$a': \"{b}\"}", "showed nothing"] {
        assert!(text.contains(part), "{part} not in {text}");
    }
    assert!(text.ends_with("why?"));
}

#[test]
fn an_execution_that_comes_to_nothing_leaves_the_old_turn() {
    let mut talk = Conversation::default();
    let place = talk.begin(Some("a"), "");
    say(&mut talk, &place, &Prompt::text("one"), "re one", &[]);
    let _ = talk.begin(Some("a"), "");
    let next = talk.begin(Some("b"), "");
    assert_eq!(texts(&talk.dialogue(&next, &Prompt::text("two"), 1000)), ["one", "re one", "two"]);
}

#[test]
fn old_turns_are_left_out_beyond_the_budget_and_it_is_said_once() {
    let mut talk = Conversation::default();
    for n in 0..10 {
        let place = talk.begin(None, "");
        say(&mut talk, &place, &Prompt::text(format!("{n:050}")), &format!("{n:050}"), &[]);
    }
    let place = talk.begin(None, "");
    let dialogue = talk.dialogue(&place, &Prompt::text("now"), 350);
    assert_eq!(dialogue.messages.len(), 2 * 3 + 1);
    assert_eq!(dialogue.newly_left_out, Some(7));
    assert_eq!(talk.dialogue(&place, &Prompt::text("now"), 350).newly_left_out, None);
    // However small the budget, the prompt itself is sent.
    assert_eq!(texts(&talk.dialogue(&place, &Prompt::text("now"), 0)), ["now"]);
}

#[test]
fn code_is_shortened_for_a_model_with_a_short_memory() {
    let mut talk = Conversation::default();
    let place = talk.begin(None, "");
    talk.ran(&place, ran(&"x = 1\n".repeat(2000), &"y\n".repeat(2000)));
    let dialogue = talk.dialogue(&place, &Prompt::text("why?"), 3000);
    let text = texts(&dialogue)[0];
    assert!(text.len() < 3000 && text.contains("left out") && text.ends_with("why?"), "{}", text.len());
}

#[test]
fn deleted_cells_and_a_reset_are_forgotten() {
    let mut talk = Conversation::default();
    for cell in ["a", "b"] {
        let place = talk.begin(Some(cell), "");
        say(&mut talk, &place, &Prompt::text(cell), "ok", &[]);
    }
    talk.forget(&["a".to_owned()]);
    let place = talk.begin(None, "");
    assert_eq!(texts(&talk.dialogue(&place, &Prompt::text("?"), 1000)), ["b", "ok", "?"]);
    talk.reset();
    assert_eq!(texts(&talk.dialogue(&place, &Prompt::text("?"), 1000)), ["?"]);
}

#[test]
fn the_memory_is_bounded() {
    let mut talk = Conversation::default();
    for _ in 0..200 {
        let place = talk.begin(None, "");
        say(&mut talk, &place, &Prompt::text("x".repeat(300_000)), "ok", &[]);
    }
    let weight = |entry: &Entry| entry.body.as_ref().map_or(0, |body| body.weight());
    assert!(talk.entries.iter().map(weight).sum::<usize>() <= KEPT);
    assert!(talk.entries.len() < 200);
}

#[test]
fn an_execution_goes_on_from_its_results_and_later_turns_see_all_of_it() {
    let mut talk = Conversation::default();
    let place = talk.begin(Some("a"), "plot it");
    let prompt = Prompt::text("plot it");
    let call = ToolCall { id: "1".into(), name: "run_code".into(), arguments: "{}".into() };
    let result =
        ToolResult { id: "1".into(), name: "run_code".into(), text: "3".into(), ..ToolResult::default() };
    talk.ran(&place, ran("x = 1", ""));
    say(&mut talk, &place, &prompt, "", std::slice::from_ref(&call));
    talk.results(&place, vec![result.clone()]);
    let sent = talk.dialogue(&place, &prompt, 10_000).messages;
    let [Message::User { text, .. }, Message::Assistant { calls, .. }, Message::Results(results)] =
        sent.as_slice()
    else {
        panic!("{sent:#?}")
    };
    assert!(text.contains("x = 1") && text.ends_with("plot it"));
    assert_eq!((calls, results), (&vec![call], &vec![result]));
    say(&mut talk, &place, &prompt, "Done.", &[]);
    let next = talk.begin(Some("b"), "thanks");
    let sent = talk.dialogue(&next, &Prompt::text("thanks"), 10_000).messages;
    assert_eq!(sent.len(), 5, "{sent:#?}");
    assert_eq!(sent[3..], [Message::assistant("Done."), Message::user("thanks")]);
    // Asked the same once more, it is asked once more.
    let sent = talk.dialogue(&place, &prompt, 10_000).messages;
    assert_eq!(sent.last(), Some(&Message::user("plot it")));
}

#[test]
fn long_results_are_shortened_for_a_model_with_a_short_memory() {
    let mut talk = Conversation::default();
    let place = talk.begin(None, "");
    let prompt = Prompt::text("go");
    for n in 0..5 {
        let id = n.to_string();
        let call = ToolCall { id: id.clone(), name: "run_code".into(), arguments: "{}".into() };
        say(&mut talk, &place, &prompt, "", &[call]);
        let text = "x".repeat(2_000);
        talk.results(&place, vec![ToolResult { id, name: "run_code".into(), text, ..ToolResult::default() }]);
    }
    let sent = talk.dialogue(&place, &prompt, 4_000).messages;
    assert_eq!(sent.len(), 11);
    let size: usize = sent
        .iter()
        .map(|message| match message {
            Message::Results(results) => results.iter().map(|result| result.text.len()).sum(),
            _ => 0,
        })
        .sum();
    assert!(size < 4_000, "{size}");
}

fn cell(talk: &mut Conversation, cell: &str, source: &str, reply: &str) {
    let place = talk.begin(Some(cell), source);
    say(talk, &place, &Prompt::text(source), reply, &[]);
}

fn stale(talk: &mut Conversation) -> Vec<usize> {
    let composed = talk.compose(&Place::looking(None), None, 100_000);
    let lines = talk.lines(&Place::looking(None), &composed);
    lines.iter().filter(|line| line.marks.contains(&"stale")).map(|line| line.number).collect()
}

#[test]
fn a_cell_that_runs_again_makes_those_below_stale_which_is_said_once() {
    let mut talk = Conversation::default();
    let place = talk.begin(Some("code"), "x = 1");
    talk.ran(&place, ran("x = 1", ""));
    for (id, text) in [("a", "one"), ("b", "two"), ("c", "three")] {
        cell(&mut talk, id, text, &format!("re {text}"));
    }
    // The same code with the same outcome changes nothing.
    let place = talk.begin(Some("code"), "x = 1");
    talk.ran(&place, ran("x = 1", ""));
    assert_eq!(stale(&mut talk), [0usize; 0]);
    cell(&mut talk, "b", "zwei", "re zwei");
    assert_eq!(stale(&mut talk), [4]);
    let place = talk.begin(Some("code"), "x = 1");
    talk.ran(&place, ran("x = 1", "a warning"));
    assert_eq!(stale(&mut talk), [2, 3, 4]);
    let next = talk.begin(None, "");
    assert_eq!(talk.dialogue(&next, &Prompt::text("?"), 100_000).newly_stale, [2, 3, 4]);
    assert!(talk.dialogue(&next, &Prompt::text("?"), 100_000).newly_stale.is_empty());
    // It stays listed until the cell runs again.
    cell(&mut talk, "a", "one", "re one");
    assert_eq!(stale(&mut talk), [3, 4]);
}

#[test]
fn the_order_is_that_of_the_notebooks_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("n.ipynb");
    let write = |cells: &[(&str, &str)]| {
        let cells: Vec<_> =
            cells.iter().map(|(id, source)| serde_json::json!({"id": id, "source": source})).collect();
        std::fs::write(&path, serde_json::json!({ "cells": cells }).to_string()).unwrap();
        let old = std::time::SystemTime::now() - std::time::Duration::from_mins(5);
        std::fs::File::options().append(true).open(&path).unwrap().set_modified(old).unwrap();
    };
    write(&[("a", "A"), ("b", "B"), ("c", "C"), ("d", "D")]);
    let mut talk = Conversation::new(Some(path.clone()), None);
    // Out of order: the last cell runs first.
    for id in ["c", "a"] {
        cell(&mut talk, id, &id.to_uppercase(), &format!("re {id}"));
    }
    let place = talk.begin(Some("b"), "B");
    assert_eq!(texts(&talk.dialogue(&place, &Prompt::text("B"), 10_000)), ["A", "re a", "B"]);
    // A cell that the file does not know is a new one below everything.
    let place = talk.begin(Some("new"), "N");
    let asked = Prompt::text("N");
    assert_eq!(texts(&talk.dialogue(&place, &asked, 10_000)), ["A", "re a", "C", "re c", "N"]);
    // Moved about.
    write(&[("c", "C"), ("d", "D"), ("a", "A"), ("b", "B")]);
    assert_eq!(texts(&talk.dialogue(&place, &asked, 10_000)), ["C", "re c", "A", "re a", "N"]);
    let place = talk.begin(Some("d"), "D");
    assert_eq!(texts(&talk.dialogue(&place, &Prompt::text("D"), 10_000)), ["C", "re c", "D"]);
    // Broken: the order of first run.
    std::fs::write(&path, "{").unwrap();
    let place = talk.begin(Some("new"), "N");
    assert_eq!(texts(&talk.dialogue(&place, &asked, 10_000)), ["C", "re c", "A", "re a", "N"]);
}

#[test]
fn a_cell_that_was_edited_in_the_file_makes_those_below_stale() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("n.ipynb");
    let mut talk = Conversation::new(Some(path.clone()), None);
    for id in ["a", "b", "c"] {
        cell(&mut talk, id, id, "ok");
    }
    let cells = serde_json::json!({"cells": [
        {"id": "a", "source": "a"}, {"id": "b", "source": "edited"}, {"id": "c", "source": "c"},
    ]});
    std::fs::write(&path, cells.to_string()).unwrap();
    let later = std::time::SystemTime::now() + std::time::Duration::from_mins(5);
    std::fs::File::options().append(true).open(&path).unwrap().set_modified(later).unwrap();
    assert_eq!(stale(&mut talk), [3]);
}

#[test]
fn hidden_turns_are_not_sent_and_pinned_ones_always() {
    let mut talk = Conversation::default();
    for n in 0..10 {
        cell(&mut talk, &n.to_string(), &format!("{n:050}"), &format!("{n:050}"));
    }
    assert!(talk.set(1, |entry| entry.pinned = true).is_some());
    assert!(talk.set(9, |entry| entry.hidden = true).is_some());
    assert!(talk.set(0, |entry| entry.hidden = true).is_none());
    assert!(talk.set(11, |entry| entry.hidden = true).is_none());
    let place = talk.begin(None, "");
    let dialogue = talk.dialogue(&place, &Prompt::text("now"), 350);
    let sent: Vec<usize> = texts(&dialogue).iter().step_by(2).filter_map(|text| text.parse().ok()).collect();
    assert_eq!((sent, dialogue.newly_left_out), (vec![0, 7, 9], Some(6)));
}

#[test]
fn a_hidden_turn_stays_hidden_when_its_cell_runs_again() {
    let mut talk = Conversation::default();
    cell(&mut talk, "a", "one", "re one");
    cell(&mut talk, "b", "two", "re two");
    assert!(talk.set(1, |entry| entry.hidden = true).is_some());
    cell(&mut talk, "a", "eins", "re eins");
    let place = talk.begin(None, "");
    assert_eq!(texts(&talk.dialogue(&place, &Prompt::text("?"), 1000)), ["two", "re two", "?"]);
}

#[test]
fn a_cell_in_which_nothing_is_said_any_more_has_no_turn_and_what_followed_is_old() {
    let mut talk = Conversation::default();
    for name in ["a", "b", "c"] {
        cell(&mut talk, name, name, &format!("re {name}"));
    }
    talk.vacate("b");
    talk.vacate("none");
    let place = talk.begin(None, "");
    assert_eq!(texts(&talk.dialogue(&place, &Prompt::text("?"), 1000)), ["a", "re a", "c", "re c", "?"]);
    assert_eq!(stale(&mut talk), [2]);
}

#[test]
fn turns_are_taken_back_one_by_one_and_what_they_replaced_returns() {
    let mut talk = Conversation::default();
    cell(&mut talk, "a", "one", "re one");
    cell(&mut talk, "b", "two", "re two");
    cell(&mut talk, "a", "eins", "re eins");
    let undone = talk.take_back().unwrap();
    assert_eq!((undone.label.as_str(), undone.restored), ("eins", true));
    let place = talk.begin(None, "");
    let sent = talk.dialogue(&place, &Prompt::text("?"), 1000);
    assert_eq!(texts(&sent), ["one", "re one", "two", "re two", "?"]);
    assert_eq!(talk.take_back().unwrap().label, "two");
    assert_eq!(talk.take_back().unwrap().label, "one");
    assert_eq!(talk.take_back(), None);
}

#[test]
fn branches_part_where_they_are_made() {
    let mut talk = Conversation::default();
    cell(&mut talk, "a", "one", "re one");
    assert!(talk.switch("other"));
    cell(&mut talk, "b", "two", "re two");
    cell(&mut talk, "a", "eins", "re eins");
    let of = |name: &str, turns, present| (name.to_owned(), turns, present);
    assert_eq!(talk.branches(), [of("main", 1, false), of("other", 2, true)]);
    assert!(!talk.switch("main"));
    let place = talk.begin(None, "");
    assert_eq!(texts(&talk.dialogue(&place, &Prompt::text("?"), 1000)), ["one", "re one", "?"]);
    assert!(!talk.switch("other"));
    let place = talk.begin(None, "");
    assert_eq!(texts(&talk.dialogue(&place, &Prompt::text("?"), 1000)).len(), 5);
    talk.reset();
    assert_eq!(talk.branches(), [of("main", 0, true)]);
}

#[test]
fn a_question_without_an_answer_is_kept_and_not_sent_again() {
    let mut talk = Conversation::default();
    let place = talk.begin(Some("a"), "one");
    let slot = talk.asked(&place, &Prompt::text("one"));
    assert_eq!(talk.asked(&place, &Prompt::text("one")), slot, "asked once");
    assert_eq!(texts(&talk.dialogue(&place, &Prompt::text("one"), 1000)), ["one"]);
    let next = talk.begin(Some("b"), "two");
    assert_eq!(texts(&talk.dialogue(&next, &Prompt::text("two"), 1000)), ["two"]);
    // What ran in its cell is; and a reply that was interrupted is an answer.
    talk.ran(&place, ran("x = 1", ""));
    let said = Said { text: "half".into(), calls: Vec::new(), end: End::Interrupted, within: None };
    talk.answered(&next, &Prompt::text("two"), said);
    let last = talk.begin(Some("c"), "three");
    let dialogue = talk.dialogue(&last, &Prompt::text("three"), 1000);
    let sent = texts(&dialogue);
    assert!(sent[0].contains("x = 1") && !sent[0].contains("one") && sent[0].ends_with("two"), "{sent:?}");
    assert!(sent[1].starts_with("half") && sent[2] == "three", "{sent:?}");
    // However long it was, it takes no room.
    let place = talk.begin(Some("a"), "long");
    talk.asked(&place, &Prompt::text("x".repeat(5000)));
    let dialogue = talk.dialogue(&last, &Prompt::text("three"), 1000);
    assert_eq!((texts(&dialogue).len(), dialogue.newly_left_out), (3, None));
    let composed = talk.compose(&last, None, 1000);
    let line = &talk.lines(&last, &composed)[0];
    assert_eq!((line.sent, line.marks.as_slice()), (false, &["not answered, not sent"][..]));
}

#[test]
fn ten_thousand_turns_are_opened_without_reading_their_texts() {
    use crate::chat::store::Keeping;
    const TURNS: usize = 10_000;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("d.sqlite");
    let keeping = Keeping { file: None, notebook: None, directory: folder.path().to_owned() };
    let store = Store::new(&file, &keeping);
    let mut identities = Identities::default();
    let mut entries = Vec::new();
    for (rank, n) in (0..).zip(0..TURNS) {
        let place = Place {
            execution: 1,
            cell: Some(format!("cell-{n}")),
            source: format!("question {n}"),
            passing: false,
        };
        let mut entry = Entry::new(&place, identities.next(), rank);
        let said = Said { text: "an answer ".repeat(50), calls: Vec::new(), end: End::Whole, within: None };
        let steps = vec![Step::Asked(Prompt::text(place.source.clone())), Step::Said(said)];
        entry.body = Some(Arc::new(Body { source: place.source.clone(), steps: steps.clone() }));
        entry.renew();
        let Entry { id, cell, print, made, .. } = entry.clone();
        store.write(Write::Turn { id, cell, source: place.source, print, made });
        for (number, step) in steps.into_iter().enumerate() {
            let (label, size) = (entry.label.clone(), entry.size);
            store.write(Write::Step { turn: id, number, step, label, size, replied: true });
        }
        entries.push(entry);
    }
    let members = entries.iter().map(Member::of).collect();
    store.write(Write::Branch { id: identities.next(), name: "main".to_owned(), members });
    while store.standing() == Standing::Behind {
        store.flush();
    }
    drop(store);

    let store = Arc::new(Store::new(&file, &keeping));
    let mut talk = Conversation::new(None, Some(Arc::clone(&store)));
    store.flush();
    let begun = std::time::Instant::now();
    let resumed = store.previous().unwrap();
    assert_eq!(talk.resume(resumed), TURNS);
    let opened = begun.elapsed();
    let place = talk.begin(Some("next"), "next");
    let dialogue = talk.dialogue(&place, &Prompt::text("next"), 200_000);
    let asked = begun.elapsed();
    // Figures for whoever looks; a loaded machine may take its time.
    eprintln!("opened in {opened:?}, the first request composed after {asked:?}");
    assert_eq!(texts(&dialogue)[texts(&dialogue).len() - 3], "question 9999");
    let read = talk.entries.iter().filter(|entry| entry.body.is_some()).count();
    assert!((100..1_000).contains(&read), "{read}");
}
