//! What happens when: a pure state machine between the channels and the handlers.
//!
//! Imports nothing of ours. It knows neither sockets nor messages nor clocks: [`Dispatch::step`] takes
//! one thing that happened and returns what is to be done, in order, so every rule is a table test.
//!
//! - Requests of the shell channel run one at a time, in their order.
//! - A failed execution that stops on errors cancels every execution that is queued when it fails; what
//!   a client sends after it has the failure's reply runs.
//! - An interrupt reaches what runs at once; so does a shutdown, which cancels everything queued.
//! - A question whether code is complete does not wait for ever behind a long cell.
//!
//! To add a rule: one [`Input`] or [`Action`] variant, its arm in `step`, one row in the tests.

use std::collections::VecDeque;

/// Names one request of the shell channel; ever growing.
pub(crate) type Ticket = u64;

/// What matters here about a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// An `execute_request`: an abort cancels it while it is queued.
    Execute {
        /// Whether its failure cancels the executions behind it.
        stop_on_error: bool,
    },
    /// Gets an answer out of turn when it has waited too long.
    Impatient,
    /// Waits its turn.
    Patient,
}

/// What happened.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Input<T> {
    /// A request arrived on the shell channel.
    Arrived(T, Kind),
    /// The running execution has failed; its reply has not gone out yet.
    Failed,
    /// The running request is over; its reply has gone out.
    Finished,
    /// The patience of an impatient request is over.
    Overdue(Ticket),
    /// The user wants what runs to stop.
    Interrupt,
    /// The kernel is to end.
    Shutdown,
}

/// Why a request is answered without having run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reason {
    /// A cell before it failed.
    Failed,
    /// The kernel is ending.
    ShuttingDown,
}

/// What is to be done.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Action<T> {
    /// Start handling it; nothing else of the shell channel runs meanwhile.
    Run(T),
    /// Answer that it was cancelled.
    Abort(T, Reason),
    /// Report [`Input::Overdue`] with this ticket when patience ends.
    Wait(Ticket),
    /// Answer at once that nobody can tell yet.
    Expire(T),
    /// Cancel what runs.
    Cancel,
}

#[derive(Debug)]
struct Queued<T> {
    ticket: Ticket,
    kind: Kind,
    item: T,
    /// To be cancelled when what runs is over.
    doomed: bool,
}

/// The state of the shell channel.
#[derive(Debug)]
pub(crate) struct Dispatch<T> {
    queue: VecDeque<Queued<T>>,
    running: Option<Kind>,
    next: Ticket,
    ending: bool,
}

impl<T> Dispatch<T> {
    /// Nothing runs, nothing waits.
    pub(crate) fn new() -> Self {
        Dispatch { queue: VecDeque::new(), running: None, next: 0, ending: false }
    }

    /// Whether a request is being handled.
    pub(crate) fn busy(&self) -> bool {
        self.running.is_some()
    }

    /// How many requests wait for their turn.
    pub(crate) fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// Takes what happened, returns what is to be done.
    pub(crate) fn step(&mut self, input: Input<T>) -> Vec<Action<T>> {
        match input {
            Input::Arrived(item, _) if self.ending => vec![Action::Abort(item, Reason::ShuttingDown)],
            Input::Arrived(item, kind) => self.arrived(item, kind),
            Input::Failed => self.failed(),
            Input::Finished => self.finished(),
            Input::Overdue(ticket) => self.overdue(ticket),
            Input::Interrupt if self.busy() => vec![Action::Cancel],
            Input::Interrupt => Vec::new(),
            Input::Shutdown => self.shutdown(),
        }
    }

    fn arrived(&mut self, item: T, kind: Kind) -> Vec<Action<T>> {
        let ticket = self.next;
        self.next += 1;
        self.queue.push_back(Queued { ticket, kind, item, doomed: false });
        let mut actions: Vec<_> = self.start().into_iter().collect();
        if kind == Kind::Impatient && actions.is_empty() {
            actions.push(Action::Wait(ticket));
        }
        actions
    }

    fn failed(&mut self) -> Vec<Action<T>> {
        if self.running == Some(Kind::Execute { stop_on_error: true }) {
            for queued in &mut self.queue {
                queued.doomed = matches!(queued.kind, Kind::Execute { .. });
            }
        }
        Vec::new()
    }

    fn finished(&mut self) -> Vec<Action<T>> {
        let (doomed, kept): (VecDeque<_>, VecDeque<_>) =
            self.queue.drain(..).partition(|queued| queued.doomed);
        self.queue = kept;
        self.running = None;
        let aborted = doomed.into_iter().map(|queued| Action::Abort(queued.item, Reason::Failed));
        aborted.chain(self.start()).collect()
    }

    fn overdue(&mut self, ticket: Ticket) -> Vec<Action<T>> {
        let place = self.queue.iter().position(|queued| queued.ticket == ticket);
        place
            .and_then(|place| self.queue.remove(place))
            .map(|queued| Action::Expire(queued.item))
            .into_iter()
            .collect()
    }

    fn shutdown(&mut self) -> Vec<Action<T>> {
        let mut actions = Vec::new();
        if self.busy() && !self.ending {
            actions.push(Action::Cancel);
        }
        self.ending = true;
        actions.extend(self.queue.drain(..).map(|queued| Action::Abort(queued.item, Reason::ShuttingDown)));
        actions
    }

    fn start(&mut self) -> Option<Action<T>> {
        if self.busy() {
            return None;
        }
        let first = self.queue.pop_front()?;
        self.running = Some(first.kind);
        Some(Action::Run(first.item))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    type Row = (Input<&'static str>, Vec<Action<&'static str>>);

    const CELL: Kind = Kind::Execute { stop_on_error: true };
    const LENIENT: Kind = Kind::Execute { stop_on_error: false };

    fn arrives(name: &'static str, kind: Kind) -> Input<&'static str> {
        Input::Arrived(name, kind)
    }

    fn check(rows: Vec<Row>) {
        let mut dispatch = Dispatch::new();
        for (number, (input, expected)) in rows.into_iter().enumerate() {
            let shown = format!("row {number}: {input:?}");
            assert_eq!(dispatch.step(input), expected, "{shown}");
        }
    }

    #[test]
    fn requests_run_one_at_a_time_in_their_order() {
        check(vec![
            (arrives("a", CELL), vec![Action::Run("a")]),
            (arrives("b", Kind::Patient), vec![]),
            (arrives("c", CELL), vec![]),
            (Input::Finished, vec![Action::Run("b")]),
            (Input::Finished, vec![Action::Run("c")]),
            (Input::Finished, vec![]),
            (arrives("d", CELL), vec![Action::Run("d")]),
        ]);
    }

    #[test]
    fn a_failure_cancels_the_queued_executions_and_nothing_else() {
        check(vec![
            (arrives("a", CELL), vec![Action::Run("a")]),
            (arrives("b", CELL), vec![]),
            (arrives("complete", Kind::Patient), vec![]),
            (arrives("c", LENIENT), vec![]),
            (Input::Failed, vec![]),
            (arrives("after the reply", CELL), vec![]),
            (
                Input::Finished,
                vec![
                    Action::Abort("b", Reason::Failed),
                    Action::Abort("c", Reason::Failed),
                    Action::Run("complete"),
                ],
            ),
            (Input::Finished, vec![Action::Run("after the reply")]),
        ]);
    }

    #[test]
    fn a_failure_that_does_not_stop_on_error_cancels_nothing() {
        check(vec![
            (arrives("a", LENIENT), vec![Action::Run("a")]),
            (arrives("b", CELL), vec![]),
            (Input::Failed, vec![]),
            (Input::Finished, vec![Action::Run("b")]),
        ]);
    }

    #[test]
    fn an_interrupt_reaches_what_runs_and_only_that() {
        check(vec![
            (Input::Interrupt, vec![]),
            (arrives("a", CELL), vec![Action::Run("a")]),
            (arrives("b", CELL), vec![]),
            (Input::Interrupt, vec![Action::Cancel]),
            (Input::Interrupt, vec![Action::Cancel]),
            (Input::Failed, vec![]),
            (Input::Finished, vec![Action::Abort("b", Reason::Failed)]),
            (Input::Interrupt, vec![]),
        ]);
    }

    #[test]
    fn an_impatient_request_is_answered_out_of_turn_once() {
        check(vec![
            (arrives("a", CELL), vec![Action::Run("a")]),
            (arrives("is_complete", Kind::Impatient), vec![Action::Wait(1)]),
            (arrives("b", CELL), vec![]),
            (Input::Overdue(1), vec![Action::Expire("is_complete")]),
            (Input::Overdue(1), vec![]),
            (Input::Finished, vec![Action::Run("b")]),
        ]);
    }

    #[test]
    fn an_impatient_request_that_started_in_time_is_left_alone() {
        check(vec![
            (arrives("is_complete", Kind::Impatient), vec![Action::Run("is_complete")]),
            (Input::Overdue(0), vec![]),
        ]);
    }

    #[test]
    fn a_shutdown_cancels_everything_and_lets_nothing_start() {
        check(vec![
            (arrives("a", CELL), vec![Action::Run("a")]),
            (arrives("b", CELL), vec![]),
            (arrives("complete", Kind::Patient), vec![]),
            (
                Input::Shutdown,
                vec![
                    Action::Cancel,
                    Action::Abort("b", Reason::ShuttingDown),
                    Action::Abort("complete", Reason::ShuttingDown),
                ],
            ),
            (Input::Shutdown, vec![]),
            (arrives("c", CELL), vec![Action::Abort("c", Reason::ShuttingDown)]),
            (Input::Failed, vec![]),
            (Input::Finished, vec![]),
        ]);
    }

    #[derive(Debug, Clone)]
    enum Step {
        Arrive(Kind),
        Fail,
        Finish,
        Overdue(Ticket),
        Interrupt,
        Shutdown,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => prop_oneof![Just(CELL), Just(LENIENT), Just(Kind::Impatient), Just(Kind::Patient)].prop_map(Step::Arrive),
            1 => Just(Step::Fail),
            4 => Just(Step::Finish),
            1 => (0..20u64).prop_map(Step::Overdue),
            1 => Just(Step::Interrupt),
            1 => prop_oneof![9 => Just(Step::Interrupt), 1 => Just(Step::Shutdown)],
        ]
    }

    proptest! {
        #[test]
        fn whatever_happens_every_request_is_answered_once_and_one_runs_at_a_time(
            steps in proptest::collection::vec(step(), 0..60)
        ) {
            let mut dispatch = Dispatch::new();
            let (mut arrived, mut answered, mut running) = (0_u32, Vec::new(), false);
            let mut take = |actions: Vec<Action<u32>>, running: &mut bool| {
                for action in actions {
                    match action {
                        Action::Run(item) => {
                            assert!(!*running, "{item} runs beside another");
                            *running = true;
                            answered.push(item);
                        }
                        Action::Abort(item, _) | Action::Expire(item) => answered.push(item),
                        Action::Cancel => assert!(*running, "nothing to cancel"),
                        Action::Wait(_) => {}
                    }
                }
            };
            for step in steps {
                let input = match step {
                    Step::Arrive(kind) => {
                        arrived += 1;
                        Input::Arrived(arrived, kind)
                    }
                    // These two come from what runs.
                    Step::Fail | Step::Finish if !running => continue,
                    Step::Fail => Input::Failed,
                    Step::Finish => {
                        running = false;
                        Input::Finished
                    }
                    Step::Overdue(ticket) => Input::Overdue(ticket),
                    Step::Interrupt => Input::Interrupt,
                    Step::Shutdown => Input::Shutdown,
                };
                take(dispatch.step(input), &mut running);
            }
            while running {
                running = false;
                take(dispatch.step(Input::Finished), &mut running);
            }
            answered.sort_unstable();
            prop_assert_eq!(answered, (1..=arrived).collect::<Vec<_>>());
            prop_assert_eq!(dispatch.waiting(), 0);
        }
    }
}
