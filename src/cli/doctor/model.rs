//! Who answers prose, and can it be reached?

use super::Surroundings;
use super::report::Report;
use crate::chat::{Chat, Listing};
use crate::cli::compose;

const CODE_WORKS: &str = "cells of code work without a model";

pub(super) async fn check(around: &Surroundings) -> Report {
    let settings = &around.loaded.settings;
    let chat = Chat::new(&settings.model, compose::providers(settings, &around.environment));
    let listing = chat.models().await;
    chat.shutdown().await;
    judge(&listing)
}

fn judge(listing: &Listing) -> Report {
    let mut report = Report::default();
    // A model whose server listed it has that server's address; one that is only configured has none.
    let current = listing.models.iter().find(|model| model.current);
    match (current, &listing.current) {
        (Some(model), _) if model.listed => {
            report.add_good(format!("{} at {}", model.name, model.source));
        }
        (_, Some(name)) if listing.problems.is_empty() => report.add_warning(
            format!("{name} is configured, but its server does not list it"),
            "`%model` in a notebook lists what there is; correct model.name if it is misspelt",
        ),
        (_, Some(name)) => {
            report.add_problem(
                format!("{name} is configured and can't be reached:\n{}", listing.problems.join("\n")),
                format!("start the server, or correct model.name, model.base_url or the key; {CODE_WORKS}"),
            );
            return report;
        }
        (_, None) if listing.models.is_empty() => report.add_warning(
            "no model is configured, and none was found",
            format!(
                "set a provider's key (OPENAI_API_KEY, ANTHROPIC_API_KEY, ...), or start Ollama, or set model.name and \
                 model.base_url; {CODE_WORKS}"
            ),
        ),
        (_, None) => {
            let sources: std::collections::BTreeSet<&str> =
                listing.models.iter().map(|model| model.source.as_str()).collect();
            let sources = sources.into_iter().collect::<Vec<_>>().join(", ");
            report.add_good(format!(
                "none is configured; found {} to choose from at {sources}",
                listing.models.len()
            ));
        }
    }
    for problem in &listing.problems {
        report.add_warning(problem.clone(), "correct or unset that provider's key or address");
    }
    report
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chat::ListedModel;

    fn listing(current: Option<&str>, source: Option<&str>, problems: &[&str]) -> Listing {
        let model = |source: &str| ListedModel {
            name: current.unwrap_or("p/m").to_owned(),
            source: source.to_owned(),
            listed: source != "configured",
            current: current.is_some(),
        };
        Listing {
            current: current.map(str::to_owned),
            models: source.map(model).into_iter().collect(),
            problems: problems.iter().map(|p| (*p).to_owned()).collect(),
        }
    }

    #[test]
    fn only_a_configured_model_that_is_out_of_reach_is_a_problem() {
        for (listing, problems) in [
            (listing(None, None, &[]), 0),
            (listing(None, Some("http://x"), &[]), 0),
            (listing(None, None, &["http://x: no answer"]), 0),
            (listing(Some("p/m"), Some("http://x"), &[]), 0),
            (listing(Some("p/m"), Some("configured"), &[]), 0),
            (listing(Some("p/m"), Some("http://x"), &["http://y: wrong key"]), 0),
            (listing(Some("p/m"), Some("configured"), &["http://x: refused"]), 1),
        ] {
            assert_eq!(judge(&listing).problems(), problems, "{listing:?}");
        }
    }
}
