//! The intent table against how people write: every phrasing of `phrasings.toml`, and the accuracy on those of
//! `kept_apart.toml`, which no rule was tuned on.

mod engine;

use std::collections::BTreeSet;

use cellblock::cell::intent::{Decision, Reason, SHORT, decide};
use proptest::prelude::*;
use serde::Deserialize;

/// How many of the 40 phrasings kept apart must be decided rightly.
const FLOOR: usize = 36;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    phrasing: Vec<Phrasing>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Phrasing {
    text: String,
    run: bool,
    #[serde(default)]
    triggers: Vec<String>,
}

impl Phrasing {
    fn decision(&self) -> Decision {
        let pieces: Vec<&str> = self.text.split("{code}").filter(|piece| !piece.trim().is_empty()).collect();
        decide(&pieces, self.triggers.iter().map(String::as_str))
    }
}

fn phrasings(text: &str) -> Vec<Phrasing> {
    toml::from_str::<File>(text).expect("a file of phrasings").phrasing
}

fn developed() -> Vec<Phrasing> {
    phrasings(include_str!("phrasings.toml"))
}

fn kept_apart() -> Vec<Phrasing> {
    phrasings(include_str!("kept_apart.toml"))
}

/// What was decided wrongly, a line each.
fn wrong(phrasings: &[Phrasing]) -> Vec<String> {
    let wrong = phrasings.iter().filter(|phrasing| phrasing.decision().run != phrasing.run);
    wrong.map(|phrasing| format!("{:?}: {:?}", phrasing.text, phrasing.decision().reason)).collect()
}

#[test]
fn every_phrasing_is_decided_rightly() {
    let all = developed();
    let distinct: BTreeSet<_> =
        all.iter().chain(&kept_apart()).map(|phrasing| phrasing.text.clone()).collect();
    assert!(all.len() >= 100 && distinct.len() == all.len() + 40, "{} of {}", distinct.len(), all.len());
    let wrong = wrong(&all);
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), all.len(), wrong.join("\n"));
}

#[test]
fn those_kept_apart_are_decided_as_well_as_the_documents_say() {
    let all = kept_apart();
    assert_eq!(all.len(), 40);
    let right = all.len() - wrong(&all).len();
    println!("{right} of {} phrasings kept apart are decided rightly", all.len());
    assert!(right >= FLOOR, "{right} of {}: {:?}", all.len(), wrong(&all));
}

#[test]
fn a_not_reaches_every_order_of_its_sentence_that_nothing_sets_against_it() {
    assert_eq!(
        reason("You must not, for safety reasons, run it."),
        Reason::Forbidden("not, for safety reasons, run it".into())
    );
    assert_eq!(reason("Running this is forbidden"), Reason::Forbidden("Running this is forbidden".into()));
    assert_eq!(reason("Don't explain, just run it"), Reason::Ordered("run it".into()));
    assert_eq!(reason("Is it safe to run this?"), Reason::Spoken("Is it safe to run".into()));
    assert_eq!(reason("Malicious code:"), Reason::Danger("Malicious".into()));
}

fn reason(text: &str) -> Reason {
    decide(&[text], []).reason
}

#[test]
fn the_reason_names_the_words_as_they_were_written() {
    assert_eq!(
        reason("Please don\u{2019}t  just run\nit."),
        Reason::Forbidden("don\u{2019}t just run\u{20}it".into())
    );
    assert_eq!(reason("OK, now RUN this!"), Reason::Ordered("RUN this".into()));
    assert_eq!(reason("Does it *work*?"), Reason::Outcome("Does it *work".into()));
    assert_eq!(reason("Refactor."), Reason::Declined("Refactor".into()));
    assert_eq!(reason("Monthly totals"), Reason::Short(2));
    assert_eq!(reason("A look at every month since the year of the change:"), Reason::LeadsIn);
    assert_eq!(reason("And where does the money of this month come from?"), Reason::Question);
    assert_eq!(reason("Whatever there may be to say about that matter"), Reason::Unclear);
    assert_eq!(decide(&[], []), Decision { run: true, reason: Reason::NoProse });
    let trigger = decide(&["Have a look at it in the  lab today, with the others"], ["In the lab", "", "?"]);
    assert_eq!(trigger.reason, Reason::Trigger("in the lab".into()));
}

#[test]
fn only_the_users_own_words_count() {
    for text in [
        "> Don't run it!\n\nRun it",
        "`don't run it` is what it prints: run it",
        "Run it\n\n```text\ndon't run it\n```",
        "Run it <!-- don't run it -->",
        "Run it\n\n    don't run it\n",
    ] {
        assert!(matches!(reason(text), Reason::Ordered(_)), "{text:?}: {:?}", reason(text));
    }
    // Nobody's words: the code around them has a caption at most.
    assert_eq!(reason("```text\nexplain\n```"), Reason::NoProse);
}

#[test]
fn hostile_prose_takes_no_longer_than_prose() {
    for seed in
        ["don't ", "what is the ", "run ", "?", "*", "`", "[", "> ", "- ", "not to be ", "\u{202e}'", "a"]
    {
        let text = seed.repeat(200_000 / seed.len());
        let triggers = vec![text.get(..199).unwrap_or(&text); 100];
        let decision = decide(&[&text], triggers);
        assert!(decision.reason.clause().chars().count() < 200, "{seed:?}: {decision:?}");
        let shouted = "x".repeat(100_000);
        assert!(
            decide(&[&shouted], [shouted.as_str()]).reason.words().is_some_and(|words| words.len() < 100)
        );
    }
}

proptest! {
    #[test]
    fn every_text_has_a_decision(text in "\\PC{0,200}", trigger in "\\PC{0,20}") {
        let decision = decide(&[&text], [trigger.as_str()]);
        prop_assert!(!decision.reason.clause().is_empty());
    }

    #[test]
    fn forbidding_it_wins_over_everything_that_is_asked(at in 0_usize..40, first in any::<bool>()) {
        let all = kept_apart();
        let text = all[at % all.len()].text.replace("{code}", "");
        let both = if first { format!("Don't run it.\n\n{text}") } else { format!("{text}\n\nDon't run it.") };
        prop_assert!(matches!(reason(&both), Reason::Forbidden(_)), "{both}");
    }

    #[test]
    fn a_caption_is_a_few_words_without_a_meaning(count in 1_usize..12) {
        let text = vec!["zeta"; count].join(" ");
        prop_assert_eq!(decide(&[&text], []).run, count <= SHORT);
    }
}
