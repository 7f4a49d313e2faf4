//! Charges, footers and budgets.

use std::time::Duration;

use super::*;

fn usage(input: u64, cached: u64, output: u64) -> Usage {
    Usage {
        input_tokens: Some(input),
        cached_tokens: (cached > 0).then_some(cached),
        output_tokens: Some(output),
        reasoning_tokens: None,
        duration: Duration::from_millis(2400),
        first_token: Some(Duration::from_millis(400)),
    }
}

fn ledger(limits: &BudgetSettings) -> Ledger {
    Ledger::new(Arc::default(), limits)
}

#[test]
fn a_turn_is_summed_up_in_one_line() {
    let ledger = ledger(&BudgetSettings::default());
    let mut turn = TurnCost::default();
    assert_eq!(turn.footer(), None);
    assert_eq!(ledger.charge(&mut turn, "openai/gpt-5", &usage(1234, 1000, 56), 0), None);
    assert_eq!(
        turn.footer().as_deref(),
        Some("openai/gpt-5 · 1,234 in (1,000 cached) · 56 out · $0.0010 · first token 0.4 s · 28 tok/s")
    );
    let _ = ledger.charge(&mut turn, "openai/gpt-5", &usage(2_000_000, 0, 44), 0);
    let footer = turn.footer().unwrap_or_default();
    assert!(
        footer.starts_with("openai/gpt-5 · 2 replies · 2,001,234 in (1,000 cached) · 100 out · $2.50"),
        "{footer}"
    );
    assert!(footer.ends_with("first token 0.4 s · 25 tok/s"), "{footer}");
    assert_eq!(turn.figures()["input_tokens"], 2_001_234);
    assert_eq!(ledger.total().replies, 2);
}

#[test]
fn what_is_not_known_is_left_out() {
    let ledger = ledger(&BudgetSettings::default());
    let mut turn = TurnCost::default();
    let silent = Usage { duration: Duration::from_secs(1), ..Usage::default() };
    assert_eq!(ledger.charge(&mut turn, "openai/unheard-of", &silent, 0), None);
    assert_eq!(turn.footer().as_deref(), Some("openai/unheard-of"));
    assert!(turn.figures().get("cost_usd").is_none());
    let mut free = TurnCost::default();
    assert_eq!(ledger.charge(&mut free, "ollama/qwen3:14b", &usage(10, 0, 5), 0), None);
    assert_eq!(
        free.footer().as_deref(),
        Some("ollama/qwen3:14b · 10 in · 5 out · first token 0.4 s · 2.5 tok/s")
    );
}

#[test]
fn long_prompts_have_their_own_price() {
    let catalog = Catalog::default();
    let price = |tokens| catalog.price("gemini/gemini-2.5-pro").map(|price| price.of(tokens, 0, 0));
    assert_eq!(price(200_000), Some(0.25));
    assert_eq!(price(400_000), Some(1.0));
}

#[test]
fn a_similar_name_has_no_price_and_a_date_changes_nothing() {
    let catalog = Catalog::default();
    assert!(catalog.price("openai/gpt-5-2025-08-07").is_some());
    assert!(catalog.price("anthropic/claude-sonnet-4-5-20250929").is_some());
    assert_ne!(catalog.price("openai/gpt-5"), catalog.price("openai/gpt-5-mini"));
    for unknown in ["openai/gpt-5-enormous", "gpt-5", "groq/gpt-5", "openai/", ""] {
        assert_eq!(catalog.price(unknown), None, "{unknown}");
    }
}

#[test]
fn the_users_own_prices_count_more() {
    let text = "[openai]\n\"gpt-5*\" = { input = 1, output = 1 }\n[groq]\nnew = { input = 2, output = 4 }\n\
                [pictures]\nsees = [\"groq/new\"]\nblind = [\"gpt-4o\"]\n";
    let (catalog, mistakes) = Catalog::default().extended(text, "prices.toml");
    assert!(mistakes.is_empty(), "{mistakes:?}");
    assert_eq!(catalog.price("openai/gpt-5").map(|price| price.usual.output), Some(1.0));
    assert!(catalog.price("openai/gpt-4.1").is_some() && catalog.price("groq/new").is_some());
    assert!(catalog.sees("groq/new") && !catalog.sees("openai/gpt-4o") && catalog.sees("openai/gpt-4o-mini"));
    let (_, mistakes) = Catalog::default().extended("[openai]\nx = 1", "/home/u/prices.toml");
    assert!(mistakes[0].starts_with("/home/u/prices.toml:2: openai.\"x\" needs a table"), "{mistakes:?}");
}

#[test]
fn models_that_see_are_known_by_name_and_others_do_not() {
    let catalog = Catalog::default();
    for sees in [
        "openai/gpt-5-mini",
        "anthropic/claude-sonnet-4-6",
        "gemini/gemini-2.5-flash",
        "ollama/gemma3:4b",
        "ollama/qwen2.5vl:7b",
        "openrouter/anthropic/claude-sonnet-4.5",
        "openai/o3",
    ] {
        assert!(catalog.sees(sees), "{sees}");
    }
    for blind in [
        "openai/gpt-4",
        "openai/o3-mini",
        "deepseek/deepseek-v4-pro",
        "ollama/gemma3:1b",
        "local/local",
        "ollama/qwen3:14b",
        "openai/gpt-4o-audio-preview",
        "",
    ] {
        assert!(!catalog.sees(blind), "{blind}");
    }
}

#[test]
fn each_budget_stops_with_its_name_and_what_was_used() {
    let none = BudgetSettings::default;
    for (limits, name, used) in [
        (BudgetSettings { turn_tokens: Some(1000), ..none() }, "budget.turn_tokens", "1,056 tokens"),
        (BudgetSettings { tokens: Some(1056), ..none() }, "budget.tokens", "1,056 tokens"),
        (BudgetSettings { turn_cost: Some(0.001), ..none() }, "budget.turn_cost", "$0.0018"),
        (BudgetSettings { cost: Some(0.0018), ..none() }, "budget.cost", "$0.0018"),
        (BudgetSettings { steps: Some(1), ..none() }, "budget.steps", "1 replies"),
    ] {
        let ledger = ledger(&limits);
        let mut turn = TurnCost::default();
        assert_eq!(ledger.exhausted(&turn, Some("openai/gpt-5")), None, "{name}");
        assert_eq!(ledger.charge(&mut turn, "openai/gpt-5", &usage(1000, 0, 56), 0), None);
        let why = ledger.exhausted(&turn, Some("openai/gpt-5")).unwrap_or_default();
        assert!(why.contains(name) && why.contains(used), "{why}");
        // A turn's own budget begins again with the next turn.
        let next = ledger.exhausted(&TurnCost::default(), Some("openai/gpt-5"));
        assert_eq!(next.is_none(), name.contains("turn"), "{name}: {next:?}");
    }
}

#[test]
fn a_budget_of_nothing_allows_what_is_free() {
    let ledger = ledger(&BudgetSettings { cost: Some(0.0), ..BudgetSettings::default() });
    let turn = TurnCost::default();
    assert_eq!(ledger.exhausted(&turn, Some("ollama/qwen3:14b")), None);
    assert!(ledger.exhausted(&turn, Some("openai/gpt-5")).is_some_and(|why| why.contains("$0 is allowed")));
}

#[test]
fn a_budget_that_cannot_be_kept_is_said_once() {
    let both = BudgetSettings { cost: Some(1.0), tokens: Some(10), ..BudgetSettings::default() };
    let ledger = ledger(&both);
    let mut turn = TurnCost::default();
    let said = ledger.charge(&mut turn, "groq/unknown", &usage(1, 0, 1), 0);
    assert!(said.is_some_and(|said| said.contains("budget.cost") && said.contains("prices.toml")));
    assert_eq!(ledger.charge(&mut turn, "groq/unknown", &usage(1, 0, 1), 0), None);
    let said = ledger.charge(&mut turn, "ollama/x", &Usage::default(), 40);
    assert!(said.is_some_and(|said| said.contains("estimate")));
    assert!(ledger.exhausted(&turn, None).is_some(), "what was written is counted by its size");
}
