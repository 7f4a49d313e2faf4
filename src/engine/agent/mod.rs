//! One turn of the dialogue: the model answers, calls tools, sees what came of them, and goes on.
//!
//! The turn ends when the model has no more calls, is interrupted, has used its steps or its budget, or gets
//! nowhere. Whatever ends it, each call has a result by then: the dialogue stays one that a model can go on with.
//!
//! | module | what |
//! | --- | --- |
//! | `mode` | what the model may do by itself, and what the user has allowed for good |
//! | `tools` | what it is offered; reading its calls. To add a tool: a row there and an arm in `perform` |
//! | `perform` | one call, from its arguments to its result |
//! | `files`, `containers` | the tools that do not run code |
//! | `consent` | the question before a call |
//! | `glance` | the first lines of files that a question names |
//! | `marked` | code in the reply of a model that can't call tools |
//! | `witness` | what a run shows, passed on and remembered |
//! | `results` | what the model is told, bounded |
//! | `patience` | repeated and broken calls |

mod consent;
mod containers;
mod files;
mod glance;
mod marked;
mod mode;
mod patience;
mod perform;
mod results;
mod tools;
mod witness;

pub(super) use mode::{Memory, Mode};
pub(super) use results::DATA;

use serde_json::{Value, json};

use super::asking::Question;
use super::execute::{Engine, Surroundings, send};
use super::{Execute, Outcome};
use crate::chat::cost::TurnCost;
use crate::chat::{Place, Tool, ToolCall, ToolResult, Turn};
use crate::event::{Ask, Ending, Event, Failure, Notice};
use patience::{Patience, Verdict};
use perform::Performed;

/// Calls of one reply that are carried out; further ones are answered without.
const CALLS: usize = 16;

/// What a turn is carried out with.
struct Agent<'a> {
    engine: &'a Engine,
    request: &'a Execute,
    place: &'a Place,
    around: Surroundings<'a>,
    /// The model, as the dialogue knows it.
    whom: String,
    mode: Mode,
    /// What the model is offered; nothing: it can only talk.
    tools: Vec<Tool>,
    /// Bytes that the turn's runs have shown: the cap on output is for all of them together.
    shown: u64,
    /// What came of the reply's calls so far, and which is carried out now.
    results: Vec<ToolResult>,
    call: ToolResult,
    /// Whether the reply shows one call, and nothing else that could be taken for its code.
    alone: bool,
    patience: Patience,
    cost: TurnCost,
    replies: u64,
    calls: u64,
}

/// Why a turn ended.
enum End {
    Done,
    /// The kernel stopped it; says why.
    Stopped(String),
    Failed(Failure),
}

impl Engine {
    /// Asks the model, which sees the whole cell and what its code did. A failure of the code stays the cell's.
    pub(super) async fn converse(
        &self,
        question: &Question,
        request: &Execute,
        place: &Place,
        around: Surroundings<'_>,
        outcome: &mut Outcome,
    ) -> Option<Failure> {
        let mode = self.mode(around.ask.as_ref());
        let tools = if question.tools { offered(self, around.ask.as_ref()) } else { Vec::new() };
        let mut agent = Agent {
            engine: self,
            request,
            place,
            around,
            whom: self.chat.identity(&question.options),
            mode,
            tools,
            shown: 0,
            results: Vec::new(),
            call: ToolResult::default(),
            alone: false,
            patience: Patience::default(),
            cost: TurnCost::default(),
            replies: 0,
            calls: 0,
        };
        let mut question = question.clone();
        if !agent.tools.is_empty() {
            self.glance(&mut question.prompt).await;
        }
        let end = agent.turn(&question, outcome).await;
        self.settle(&agent.cost, around, outcome).await;
        let (word, failure) = match end {
            End::Done => ("done", None),
            End::Stopped(why) => {
                send(around.events, Event::Notice(Notice::warning(self.spelt(&why)))).await;
                ("stopped", None)
            }
            End::Failed(failure) if failure.ename == "KeyboardInterrupt" => ("interrupted", Some(failure)),
            End::Failed(failure) => ("failed", Some(failure)),
        };
        if !agent.tools.is_empty() {
            let figures = json!({
                "mode": agent.mode.name(), "replies": agent.replies, "recorded": agent.cost.recorded(),
                "calls": agent.calls, "end": word,
            });
            outcome.metadata.insert("cellblock_agent".into(), figures);
        }
        failure
    }
}

impl Agent<'_> {
    /// Replies and calls, until there are no more.
    async fn turn(&mut self, question: &Question, outcome: &mut Outcome) -> End {
        let context = self.engine.sandbox.describe();
        let most = self.engine.habits.agent.steps;
        loop {
            if let Err(used_up) = self.engine.affordable(&self.cost, &question.options) {
                return match self.replies {
                    0 => End::Failed(Failure::new("BudgetUsed", used_up)),
                    _ => End::Stopped(used_up),
                };
            }
            let turn = Turn {
                place: self.place,
                prompt: &question.prompt,
                context: &context,
                tools: &self.tools,
                options: &question.options,
            };
            self.replies += 1;
            let asked = self.engine.chat.ask(turn, self.around.events, self.around.cancel.clone());
            let reply = match asked.await {
                Ok(reply) => reply,
                Err(error) => return End::Failed(self.engine.spelt_failure(error.failure())),
            };
            self.engine.charge(&mut self.cost, &reply, self.around).await;
            if let Some(model) = reply.model {
                outcome.metadata.insert("cellblock_model".into(), Value::String(model));
            }
            match reply.ending {
                Ending::Complete => {}
                Ending::Interrupted => return End::Failed(interrupted(&reply.text)),
                Ending::Cut(why) => return End::Failed(Failure::new("ReplyCut", why)),
            }
            let calls = match reply.calls.len() {
                0 if self.tools.is_empty() => return End::Done,
                0 => match &reply.marked {
                    Some(told) => marked::calls(&reply.text, &self.engine.words, self.replies, told),
                    None => return End::Done,
                },
                _ => reply.calls,
            };
            if calls.is_empty() {
                return End::Done;
            }
            self.alone = calls.len() == 1 && !consent::looks_like_code(&reply.text);
            if let Some(end) = self.carry_out(&calls, most, outcome).await {
                return end;
            }
        }
    }

    /// Carries out the calls of one reply, in order, and records what came of them; `Some` when that ends the turn.
    async fn carry_out(&mut self, calls: &[ToolCall], most: u64, outcome: &mut Outcome) -> Option<End> {
        let last = self.replies >= most;
        let (mut end, mut faults, mut carried) = (None, 0, 0);
        for (index, call) in calls.iter().enumerate() {
            self.call = ToolResult { id: call.id.clone(), name: call.name.clone(), ..ToolResult::default() };
            let told = if let Some(why) = Self::not_now(index, last, end.is_some()) {
                Performed::failed(why)
            } else {
                carried += 1;
                self.calls += 1;
                let mut done = self.perform(call, outcome).await;
                faults += usize::from(done.fault);
                if done.interrupted || self.around.cancel.is_cancelled() {
                    end = Some(End::Failed(Failure::new(
                        "KeyboardInterrupt",
                        "interrupted while a call of the model was carried out",
                    )));
                } else if end.is_none() {
                    match self.patience.came(call, &done.text) {
                        Verdict::Go => {}
                        Verdict::Tell => done.text.push_str(patience::TOLD),
                        Verdict::Stop => end = Some(End::Stopped(patience::stuck(&call.name))),
                    }
                }
                done
            };
            let Performed { text, failed, agreed, images, .. } = told;
            let agreed = agreed.then(|| self.whom.clone());
            let of = std::mem::take(&mut self.call);
            self.results.push(ToolResult { text, failed, agreed, images, ..of });
        }
        self.patience.reply_over();
        self.engine.chat.record_results(self.place, std::mem::take(&mut self.results));
        if end.is_some() {
            return end;
        }
        if calls.len() > CALLS {
            let text = format!(
                "The model made {} calls in one reply; {CALLS} of them were carried out, and it was told so.",
                calls.len()
            );
            send(self.around.events, Event::Notice(Notice::warning(text))).await;
        }
        if last {
            return Some(End::Stopped(format!(
                "The model was stopped after {most} replies in this turn, and its last calls were not carried out \
                 (agent.steps). Ask again to let it go on."
            )));
        }
        if carried > 0 && self.patience.faulty(faults == carried) {
            return Some(End::Stopped(
                "The model was stopped: its calls could not be carried out, and being told why did not help. Ask \
                 again in other words, or try another model (%model)."
                    .to_owned(),
            ));
        }
        None
    }

    /// Why the call of that number in its reply is not carried out.
    fn not_now(index: usize, last: bool, over: bool) -> Option<&'static str> {
        if over {
            return Some("Not carried out: the turn was stopped before.");
        }
        if last {
            return Some("Not carried out: the limit of replies in one turn is reached.");
        }
        (index >= CALLS).then_some("Not carried out: too many calls in one reply.")
    }
}

/// The tools that a question is asked with, in a cell whose front end is this.
pub(super) fn offered(engine: &Engine, ask: &dyn Ask) -> Vec<Tool> {
    if engine.mode(ask) == Mode::Ask { Vec::new() } else { tools::offered(engine) }
}

fn interrupted(text: &str) -> Failure {
    let what = if text.is_empty() {
        "the model was interrupted before it said anything"
    } else {
        "the reply was interrupted; what the model had said stays"
    };
    Failure::new("KeyboardInterrupt", what)
}
