//! One block of a cell: what its fence asks for, whether it may run, and what is said of it.
//!
//! The model's calls pass here as well: [`Engine::approved`] and [`Engine::run_approved`] are for everybody who
//! runs code.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::confirm::{self, Consent};
use super::execute::{Engine, Surroundings, send};
use super::fence::{self, Wishes};
use super::magics::packages;
use super::status::{self, Subject};
use super::{Execute, Outcome};
use crate::cell::{Block, Cell, Part};
use crate::chat::Image;
use crate::config::{Flavor, Status};
use crate::event::{Event, Failure, Notice};
use crate::sandbox::policy::Approved;
use crate::sandbox::{By, Entry, Picture, Run, RunEnd, Texts, Watch};

/// A block with what its fence asks for.
pub(super) struct Task<'a> {
    pub(super) block: &'a Block,
    pub(super) wishes: Wishes,
    /// Containers that the cell's prose names by one of their triggers.
    pub(super) preferred: Vec<String>,
}

/// What a block is given by its cell.
pub(super) struct Given {
    /// Expressions to evaluate after the code.
    pub(super) expressions: Map<String, Value>,
    /// Bytes that the cell has shown so far.
    pub(super) shown: u64,
    /// Who looks at its output while it runs.
    pub(super) watch: Option<Watch>,
}

impl Task<'_> {
    fn run(&self) -> Run {
        let run = Run::new(&self.block.language, &self.block.source);
        self.wishes.clone().apply(Run { preferred: self.preferred.clone(), line: self.block.line, ..run })
    }
}

impl Engine {
    /// Reads what the fences of a cell that are to run ask for, and whether it can be had, before any of them runs.
    pub(super) fn tasks<'a>(
        &self,
        cell: &'a Cell,
        runs: impl Fn(&Block) -> bool,
    ) -> Result<Vec<Task<'a>>, Failure> {
        let preferred = self.triggered(cell);
        let mut tasks = Vec::new();
        for block in cell.blocks().filter(|block| runs(block)) {
            let wishes = fence::read(block).map_err(|why| Failure::new("CellError", why))?;
            let task = Task { block, wishes, preferred: preferred.clone() };
            let line = block.line;
            self.sandbox.approve(task.run()).map_err(|why| {
                Failure::new("Refused", format!("the block in line {line} can't run: {why}"))
            })?;
            tasks.push(task);
        }
        Ok(tasks)
    }

    /// The containers whose triggers are in a cell's prose, the one that is named first before the others.
    fn triggered(&self, cell: &Cell) -> Vec<String> {
        let prose: Vec<&str> = cell
            .parts
            .iter()
            .filter_map(|part| if let Part::Prose(text) = part { Some(text.as_str()) } else { None })
            .collect();
        let prose = prose.join("\n");
        let mut found: Vec<_> = self
            .sandbox
            .registry()
            .containers()
            .iter()
            .filter_map(|container| {
                let at = fence::mentions(&prose, container.triggers.iter().map(String::as_str))?;
                Some((at, container.name.clone()))
            })
            .collect();
        found.sort();
        found.into_iter().map(|(_, name)| name).collect()
    }

    /// Runs one block and takes its end into the cell's outcome; `None` when it was not allowed to start.
    pub(super) async fn run_block(
        &self,
        request: &Execute,
        task: &Task<'_>,
        given: Given,
        around: Surroundings<'_>,
        outcome: &mut Outcome,
    ) -> Option<RunEnd> {
        let run = Run {
            count: request.count,
            silent: request.silent,
            store_history: request.store_history,
            user_expressions: given.expressions,
            shown: given.shown,
            watch: given.watch,
            texts: if task.block.language == "python" { self.asking.texts() } else { Texts::default() },
            ..task.run()
        };
        let approved = match self.allowed(run, task.wishes.confirm, around).await {
            Ok(approved) => approved,
            Err(failure) => {
                *outcome = self.fail(around.events, failure).await;
                return None;
            }
        };
        if !request.silent {
            for warning in fence::near_misses(&task.wishes.unknown) {
                send(around.events, Event::Notice(Notice::warning(warning))).await;
            }
        }
        let end = self.run_approved("cell", approved, around, outcome).await;
        if task.block.language == "python" && !end.image.is_empty() {
            self.asking.delivered();
        }
        outcome.failure.clone_from(&end.failure);
        outcome.payload.extend(end.payload.iter().cloned());
        outcome.user_expressions.extend(end.user_expressions.clone());
        if let Some(hint) = end.failure.as_ref().and_then(|failure| self.magic_of_ours(failure)) {
            send(around.events, Event::Notice(Notice::warning(hint))).await;
        }
        Some(end)
    }

    /// Runs what may run, on behalf of `who` (a `cell`, or the `model`): with its line of status, a line in the log of
    /// executions and its figures in the reply's metadata.
    pub(super) async fn run_approved(
        &self,
        who: &str,
        approved: Approved<Run>,
        around: Surroundings<'_>,
        outcome: &mut Outcome,
    ) -> RunEnd {
        let definition = Arc::clone(approved.container());
        let entry = self.habits.log.as_ref().map(|log| (log, Entry::new(who, &approved, &definition)));
        let language = approved.language.clone();
        let subject = Subject {
            language: &language,
            container: &definition.name,
            limits: &definition.limits,
            timeout: approved.tighter.timeout,
            processes: By::of(&definition, approved.tighter.pids.is_some()).sets("pids"),
        };
        let silent = approved.silent;
        let quiet = silent || self.flavor == Flavor::Python;
        let wanted = if quiet { Status::Quiet } else { self.habits.status };
        let run = self.sandbox.run(approved, around.events, Arc::clone(around.ask), around.cancel.clone());
        let end = status::watched(self, &subject, Box::pin(run), wanted, around).await;
        if let Some((log, entry)) = entry
            && let Some(warning) = log.record(entry, &end).await
        {
            send(around.events, Event::Notice(Notice::warning(warning))).await;
        }
        if !silent {
            self.asking.showed(&end.transcript, &pictures(&end));
        }
        if let Value::Array(runs) = outcome.metadata.entry("cellblock_runs").or_insert_with(|| json!([])) {
            runs.push(figures(who, &language, &end));
        }
        end
    }

    /// What stands between a block and the sandbox: policy, and where it is asked for, the user.
    async fn allowed(
        &self,
        run: Run,
        confirm: bool,
        around: Surroundings<'_>,
    ) -> Result<Approved<Run>, Failure> {
        let approved = self.approved(run, around).await?;
        let container = approved.container();
        if (confirm || container.confirm) && !self.always(&container.name) {
            match confirm::code(around.ask.as_ref(), &approved).await? {
                Consent::Once => {}
                Consent::Always => self.remember_always(&container.name),
            }
        }
        Ok(approved)
    }

    /// Policy, and the user's consent to packages that the run asks for; not to the run itself.
    pub(super) async fn approved(
        &self,
        run: Run,
        around: Surroundings<'_>,
    ) -> Result<Approved<Run>, Failure> {
        let approved = self.sandbox.approve(run).map_err(|e| Failure::new("Refused", e.to_string()))?;
        let container = approved.container();
        if !container.withheld.is_empty() && self.first_use(&container.name) {
            let text = format!(
                "The container {} was not given all that its definition asks for:\n{}",
                container.name,
                container.withheld.iter().map(|what| format!("- {what}")).collect::<Vec<_>>().join("\n")
            );
            send(around.events, Event::Notice(Notice::warning(text))).await;
        }
        if !self.sandbox.has(&container.name, &approved.packages) {
            let named: Vec<_> =
                approved.packages.iter().map(|(by, what)| format!("{} {what}", by.name())).collect();
            let agreed = format!("{}: {}", container.name, named.join(", "));
            if !self.agreed(&agreed) {
                packages::allowed(self, &approved.packages, "This notebook", around).await?;
                self.remember_agreed(agreed);
            }
        }
        Ok(approved)
    }

    /// What to write instead of a magic of ours that `IPython` does not know.
    fn magic_of_ours(&self, failure: &Failure) -> Option<String> {
        if self.dialect() != crate::cell::Dialect::Python || failure.ename != "UsageError" {
            return None;
        }
        let (_, rest) = failure.evalue.split_once("magic function `%")?;
        let (name, _) = rest.split_once('`')?;
        let name = name.trim_start_matches('%');
        super::magics::find(name)
            .map(|_| format!("In this kernel that is `{}{name}`.", self.dialect().sigil()))
    }
}

/// What stands in the line of a cell magic and means nothing there: it was not run, which nobody would notice.
pub(super) fn unknown_words(code: &str, tasks: &[Task<'_>]) -> Vec<String> {
    let of_cell_magic = |task: &&Task<'_>| {
        let line = task.block.line.checked_sub(2).and_then(|line| code.lines().nth(line));
        line.is_some_and(|line| line.trim_start().starts_with("%%"))
    };
    let said = |task: &Task<'_>| {
        let (words, language) = (task.wishes.unknown.join(" "), &task.block.language);
        let words = confirm::visible(&words);
        format!("`{words}` stands in the line of %%{language} and was not run: code goes below that line.")
    };
    tasks.iter().filter(of_cell_magic).filter(|task| !task.wishes.unknown.is_empty()).map(said).collect()
}

/// The pictures that a run showed, as a model is sent them.
pub(super) fn pictures(end: &RunEnd) -> Vec<Image> {
    let image = |picture: &Picture| Image {
        media_type: picture.media_type.to_owned(),
        base64: picture.base64.clone(),
    };
    end.pictures.iter().map(image).collect()
}

/// A run's figures for the reply's metadata.
fn figures(who: &str, language: &str, end: &RunEnd) -> Value {
    json!({
        "who": who,
        "language": language,
        "container": end.container,
        "image": end.image,
        "duration_ms": u64::try_from(end.duration.as_millis()).unwrap_or(u64::MAX),
        "exit_code": end.exit_code,
        "peak_memory": end.peak_memory,
        "written": end.written,
    })
}
