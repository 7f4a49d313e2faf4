//! The tools about containers: which there are, packages for them.

use std::fmt::Write;

use super::consent::Matter;
use super::mode::{Always, Mode};
use super::perform::Performed;
use super::{Agent, results};
use crate::config::{Install, Network};
use crate::engine::magics;
use crate::sandbox::packages::Packages;
use crate::sandbox::{Activity, size};

/// The most of a container's SYSTEM.md that the model is told, in bytes.
const GUIDE: usize = 2 << 10;

impl Agent<'_> {
    pub(super) async fn list_containers(&self) -> Performed {
        let mut text = String::new();
        for one in self.engine.sandbox.containers().await {
            let definition = &one.definition;
            let network = match definition.limits.network {
                Network::None => "no network",
                Network::Bridge => "a network",
            };
            let _ = write!(
                text,
                "{}: {}. Languages: {}. {} of memory, {network}.",
                definition.name,
                definition.description.trim_end_matches('.'),
                definition.languages.join(", "),
                size(definition.limits.memory)
            );
            if let Some(why) = &definition.refused {
                let _ = write!(text, " It can't be used now: {why}.");
            } else if let Activity::Stopped(why) = &one.activity {
                let _ = write!(text, " Stopped: {why}");
            }
            if let Some(guide) = &definition.guide {
                let _ = write!(text, "\n{}", results::bounded(guide.trim(), GUIDE).0);
            }
            text.push_str("\n\n");
        }
        self.remark("The model listed the containers".to_owned()).await;
        Performed::done(results::bounded(text.trim_end(), self.limit()).0)
    }

    pub(super) async fn install(&self, packages: &Packages, container: Option<String>) -> Performed {
        // In this mode the user is asked whatever the settings allow; what they forbid stays forbidden.
        if self.mode == Mode::Confirm && self.engine.habits.install != Install::Never {
            let what = format!("Let the model install {packages}");
            let matter = Matter { what: &what, text: "", language: "", text_and_always: false, alone: true };
            if let Err(performed) = self.consent(&matter, Always::Write).await {
                return performed;
            }
        } else if let Err(failure) =
            magics::packages::allowed(self.engine, packages, "The model", self.around).await
        {
            if failure.ename == "KeyboardInterrupt" {
                return Performed::interrupted();
            }
            self.remark(format!("The model may not install {packages}: {}", failure.evalue)).await;
            return Performed::fault(format!("Refused: {}", failure.evalue));
        }
        let (events, cancel) = (self.around.events, self.around.cancel.clone());
        match self.engine.sandbox.install(container.as_deref(), packages, events, cancel).await {
            Ok(installed) => {
                self.remark(format!("Installed {packages} for the model. {}", installed.kept)).await;
                Performed::done(format!("Installed {packages}. {}", installed.kept))
            }
            Err(failure) => {
                self.remark(format!("{packages} can't be installed: {}", failure.evalue)).await;
                let mut performed = Performed::of(&failure);
                performed.text = results::bounded(&performed.text, self.limit()).0;
                performed
            }
        }
    }
}
