//! One call, from its arguments to its result.

use std::fmt::Write;
use std::sync::Arc;

use super::consent::{self, Again, Consent, Matter};
use super::mode::{Always, Mode};
use super::tools::{self, Wanted};
use super::witness::{self, Seen};
use super::{Agent, results};
use crate::chat::{Image, ToolCall, ToolResult};
use crate::engine::execute::{Surroundings, send};
use crate::engine::magics::show;
use crate::engine::{Outcome, block, confirm};
use crate::event::ask::Marked;
use crate::event::{Ask, Bundle, Event, Failure, Notice, words};
use crate::sandbox::files::Desk;
use crate::sandbox::{Run, RunEnd, Watch, policy};

/// What came of a call.
#[derive(Debug, Default, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "each says something by itself")]
pub(super) struct Performed {
    /// What the model is told.
    pub(super) text: String,
    /// Whether it failed.
    pub(super) failed: bool,
    /// Whether the call itself was at fault, so that the model can mend it.
    pub(super) fault: bool,
    /// Whether the user interrupted it.
    pub(super) interrupted: bool,
    /// Whether the user agreed that the model is told it: that one, and no other.
    pub(super) agreed: bool,
    /// Pictures that it showed, for models that see.
    pub(super) images: Vec<Image>,
}

impl Performed {
    pub(super) fn done(text: impl Into<String>) -> Self {
        Performed { text: text.into(), ..Performed::default() }
    }

    pub(super) fn failed(text: impl Into<String>) -> Self {
        Performed { text: text.into(), failed: true, ..Performed::default() }
    }

    pub(super) fn fault(text: impl Into<String>) -> Self {
        Performed { fault: true, ..Performed::failed(text) }
    }

    pub(super) fn interrupted() -> Self {
        Performed { interrupted: true, ..Performed::failed("The user interrupted this call.") }
    }

    /// A failure of ours; an interruption is one of its own.
    pub(super) fn of(failure: &Failure) -> Self {
        if failure.ename == "KeyboardInterrupt" {
            return Performed::interrupted();
        }
        Performed::failed(format!("Failed: {}", results::plain(&failure.evalue)))
    }
}

impl Agent<'_> {
    /// Carries a call out. Everything that goes wrong is told to the model.
    pub(super) async fn perform(&mut self, call: &ToolCall, outcome: &mut Outcome) -> Performed {
        let wanted = match tools::read(call, &self.tools) {
            Ok(wanted) => wanted,
            Err(why) => {
                self.remark(format!("A call of the model can't be carried out: {why}")).await;
                return Performed::fault(format!("Not carried out: {why}"));
            }
        };
        match wanted {
            Wanted::RunCode { code, language, container } => {
                self.run_code(code, language, container, outcome).await
            }
            Wanted::ReadFile { path, line } => self.read_file(&path, line).await,
            Wanted::WriteFile { path, content } => self.write_file(&path, content).await,
            Wanted::ListFiles { path } => self.list_files(&path).await,
            Wanted::ListContainers => self.list_containers().await,
            Wanted::InstallPackages { packages, container } => self.install(&packages, container).await,
        }
    }

    async fn run_code(
        &mut self,
        code: String,
        language: String,
        container: Option<String>,
        outcome: &mut Outcome,
    ) -> Performed {
        let run = |code: &str| Run {
            container: container.clone(),
            count: self.request.count,
            silent: self.request.silent,
            store_history: self.request.store_history,
            shown: self.shown,
            isolated: self.engine.habits.agent.isolated,
            of_model: true,
            watch: Some(Watch::default()),
            ..Run::new(&language, code)
        };
        let refused = |failure: &Failure| Performed::fault(format!("Refused: {}", failure.evalue));
        let mut approved = match self.engine.approved(run(&code), self.around).await {
            Ok(approved) => approved,
            Err(failure) => {
                self.remark(format!("Code of the model was refused: {}", failure.evalue)).await;
                return refused(&failure);
            }
        };
        let definition = Arc::clone(approved.container());
        let always = Always::Code(definition.name.clone());
        let mut changed = None;
        if (self.mode == Mode::Confirm || definition.confirm) && !self.engine.is_always(&always) {
            let what =
                format!("Run the model's {} code in the container {}", approved.language, definition.name);
            let (language, alone) = (approved.language.clone(), self.alone);
            let matter =
                Matter { what: &what, text: &code, language: &language, text_and_always: true, alone };
            match self.consent(&matter, always).await {
                Ok(None) => {}
                Ok(Some(instead)) => {
                    approved = match self.engine.approved(run(&instead), self.around).await {
                        Ok(approved) => approved,
                        Err(failure) => return refused(&failure),
                    };
                    changed = Some(instead);
                }
                Err(performed) => return performed,
            }
        }
        let (end, seen) = self.run(approved, changed.as_deref(), outcome).await;
        self.shown = end.shown;
        self.told(&end, seen, changed.as_deref()).await
    }

    /// Runs what may run, and remembers what it shows.
    async fn run(
        &self,
        approved: policy::Approved<Run>,
        changed: Option<&str>,
        outcome: &mut Outcome,
    ) -> (RunEnd, Seen) {
        // They say so, since they could look like one of ours.
        let ask: Arc<dyn Ask> =
            Arc::new(Marked { ask: Arc::clone(self.around.ask), mark: "[the model's code asks]" });
        let (engine, cancel) = (self.engine, self.around.cancel);
        let watch = approved.watch.clone().unwrap_or_default();
        let run = witness::watched(self.around, async |events| {
            let around = Surroundings { events: &events, ask: &ask, cancel, cell: None };
            engine.run_approved("model", approved, around, outcome).await
        });
        // A changed code is told with what came of it.
        let call = ToolResult { text: changed_to(changed), ..self.call.clone() };
        self.engine.kept_call(self.place, (&self.results, &call), &watch, Box::pin(run)).await
    }

    /// What the model is told of a run.
    async fn told(&self, end: &RunEnd, seen: Seen, changed: Option<&str>) -> Performed {
        let mut text = changed_to(changed);
        let interrupted = self.around.cancel.is_cancelled();
        text.push_str(match &end.failure {
            None => "It ran",
            Some(_) if interrupted => "The user interrupted it",
            Some(_) => "It failed",
        });
        let transcript = results::plain(&end.transcript);
        let (shown, cut) = results::bounded(transcript.trim_end(), self.limit());
        if shown.trim().is_empty() {
            match &end.failure {
                Some(failure) => {
                    let _ = write!(text, ": {}: {}", failure.ename, results::plain(&failure.evalue));
                }
                None if seen.pictures.is_empty() && seen.files.is_empty() => {
                    text.push_str(" and printed nothing. Use print() to see a value.");
                }
                None => text.push_str(" and printed nothing."),
            }
        } else {
            let _ = write!(text, ". Its output {}:\n{shown}", results::DATA);
        }
        if let Some(code) = end.exit_code.filter(|code| *code != 0) {
            let _ = write!(text, "\n[exit code {code}]");
        }
        if !interrupted && (cut || transcript.contains("bytes left out")) {
            text.push_str(&self.filed(&seen).await);
        }
        if !seen.pictures.is_empty() {
            let _ = write!(text, "\n[shown to the user: {}]", pictures(&seen.pictures));
        }
        if !seen.files.is_empty() {
            let _ = write!(text, "\n[files: {}]", seen.files.join(", "));
        }
        let images = block::pictures(end);
        Performed { text, failed: end.failure.is_some(), interrupted, images, ..Performed::default() }
    }

    /// Puts a long output into a file, for the model to look into; says where.
    async fn filed(&self, seen: &Seen) -> String {
        let path = format!("/session/outputs/model-{}.txt", self.engine.next_output());
        match self.engine.sandbox.write_file(&path, &seen.text, self.desk()).await {
            Ok(written) if seen.more => {
                format!("\n[the first {} kB of the output: {}]", seen.text.len() >> 10, written.path)
            }
            Ok(written) => format!("\n[the whole output: {}]", written.path),
            Err(failure) => {
                tracing::warn!(error = %failure.evalue, "a long output is not kept in a file");
                String::new()
            }
        }
    }

    /// Asks the user about a call. `Ok`: it may be carried out, perhaps with another text; `Err`: what the model is
    /// told instead.
    pub(super) async fn consent(
        &self,
        matter: &Matter<'_>,
        always: Always,
    ) -> Result<Option<String>, Performed> {
        let again = matter.again();
        if let (Again::Before(text), true) = (&again, self.around.ask.available()) {
            send(self.around.events, Event::Display { bundle: Bundle::text(text), display_id: None }).await;
        }
        let answer = tokio::select! {
            biased;
            () = self.around.cancel.cancelled() => Consent::Interrupted,
            answer = consent::ask(self.around.ask.as_ref(), matter, &again) => answer,
        };
        match answer {
            Consent::Once => Ok(None),
            Consent::Always => {
                self.engine.allow_always(always);
                Ok(None)
            }
            Consent::Instead(text) => {
                // What stands above it as the model's did not happen.
                let (fence, language) = (words::fence(&text), matter.language);
                let shown =
                    format!("*You changed it. This is used instead:*\n\n{fence}{language}\n{text}\n{fence}");
                show(self.around, &shown).await;
                Ok(Some(text))
            }
            Consent::Interrupted => Err(Performed::interrupted()),
            Consent::Nobody => {
                send(
                    self.around.events,
                    Event::Notice(Notice::warning(self.engine.spelt(&consent::nobody(self.mode)))),
                )
                .await;
                Err(Performed::fault(consent::refusal(&Consent::Nobody)))
            }
            refused @ Consent::Refused(_) => {
                show(self.around, "*Not carried out: you said no.*").await;
                Err(Performed::failed(consent::refusal(&refused)))
            }
        }
    }

    /// One line for the user, whatever names are in it.
    pub(super) async fn remark(&self, text: String) {
        let text = confirm::visible(&text.replace(['\n', '\t'], " "));
        send(self.around.events, Event::Notice(Notice::info(results::bounded(&text, 2000).0))).await;
    }

    pub(super) fn desk(&self) -> Desk<'_> {
        Desk {
            isolated: self.engine.habits.agent.isolated,
            events: self.around.events,
            cancel: self.around.cancel,
        }
    }

    /// How much of an output the model is told, in bytes.
    pub(super) fn limit(&self) -> usize {
        usize::try_from(self.engine.habits.agent.output).unwrap_or(usize::MAX)
    }
}

/// What the model is told when the user changed its code.
fn changed_to(changed: Option<&str>) -> String {
    changed.map_or_else(String::new, |code| {
        format!("The user changed the code before it ran. This ran instead:\n{code}\n\n")
    })
}

/// `1 image/png, 2 image/svg+xml`
fn pictures(types: &[String]) -> String {
    let mut counted: Vec<(&str, usize)> = Vec::new();
    for name in types {
        match counted.iter_mut().find(|(known, _)| known == name) {
            Some((_, count)) => *count += 1,
            None => counted.push((name, 1)),
        }
    }
    counted.iter().map(|(name, count)| format!("{count} {name}")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pictures_are_counted_by_their_type() {
        let types = ["image/png", "image/svg+xml", "image/png"].map(str::to_owned);
        assert_eq!(pictures(&types), "2 image/png, 1 image/svg+xml");
    }
}
