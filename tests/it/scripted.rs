//! A kernel whose interpreter is scripted, on real sockets: what the protocol tests drive.
//!
//! A cell is a list of orders, one a line: a name and its argument ([`Scripted::order`]).

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cellblock::config::{Flavor, Updates};
use cellblock::engine::{Completeness, Completions, Execute, Interpreter, LanguageInfo, Outcome};
use cellblock::event::{
    Answer, Ask, Bundle, DisplayId, Ending, Event, EventSender, Failure, Notice, Question, Stream, Usage,
};
use cellblock::jupyter::wire::ConnectionInfo;
use cellblock::jupyter::{ExitReason, Options, serve};
use futures_util::future::BoxFuture;
use serde_json::{Map, json};
use tokio_util::sync::CancellationToken;

use crate::wire_client::{self, Channel, Client, Request};

/// One line of a flood: its number, filled up to 100 bytes.
pub(crate) fn line(number: usize) -> String {
    format!("{number:099}\n")
}

#[derive(Debug, Default)]
pub(crate) struct Scripted {
    shut_down: AtomicBool,
    /// Senders that a careless interpreter keeps after its cell.
    kept: std::sync::Mutex<Vec<EventSender>>,
}

impl Scripted {
    async fn order(
        &self,
        order: &str,
        cell: &Execute,
        events: &EventSender,
        ask: &dyn Ask,
        cancel: &CancellationToken,
    ) -> Result<(), Failure> {
        let (name, argument) = order.split_once(' ').unwrap_or((order, ""));
        let number: usize = argument.parse().unwrap_or_default();
        let failed = |name: &str, text: &str| Err(Failure::new(name, text));
        match name {
            "print" => print(events, Stream::Stdout, format!("{argument}\n")).await,
            "warn" => print(events, Stream::Stderr, format!("{argument}\n")).await,
            "result" => show(events, Event::Result { bundle: Bundle::text(argument) }).await,
            "display" => {
                let display_id = Some(DisplayId::guest("d"));
                show(events, Event::Display { bundle: Bundle::text(argument), display_id }).await;
            }
            "update" => {
                let display_id = DisplayId::guest("d");
                show(events, Event::UpdateDisplay { bundle: Bundle::text(argument), display_id }).await;
            }
            "clear" => show(events, Event::Clear { wait: true }).await,
            "notice" => show(events, Event::Notice(Notice::info(argument))).await,
            "warning" => show(events, Event::Notice(Notice::warning(argument))).await,
            "fail" => return failed("ScriptError", argument),
            "panic" => panic!("as the script says"),
            "keep" => self.kept.lock().expect("a lock").push(events.clone()),
            "sleep" => tokio::time::sleep(Duration::from_millis(number as u64)).await,
            "wait" => {
                cancel.cancelled().await;
                return failed("KeyboardInterrupt", "interrupted");
            }
            "deaf" => std::future::pending().await,
            "lines" => flood(number, events).await,
            "reply" => reply(number, events, cancel).await,
            "ask" | "password" => {
                let question = Question { prompt: argument.to_owned(), password: name == "password" };
                match ask.ask(question).await {
                    Ok(answer) => print(events, Stream::Stdout, format!("got {answer}\n")).await,
                    Err(error) => return failed("InputError", &error.to_string()),
                }
            }
            "cell" => {
                let text = format!("{:?} {:?}\n", cell.cell_id, cell.deleted_cells);
                print(events, Stream::Stdout, text).await;
            }
            other => return failed("NoSuchOrder", other),
        }
        Ok(())
    }
}

async fn show(events: &EventSender, event: Event) {
    // Nobody listening is a cell that was abandoned.
    let _ = events.send(event).await;
}

async fn print(events: &EventSender, stream: Stream, text: String) {
    show(events, Event::Stream { stream, text }).await;
}

/// So many lines, in pieces of about 8 KiB, as they come from a container.
async fn flood(lines: usize, events: &EventSender) {
    let mut piece = String::new();
    for number in 0..lines {
        piece.push_str(&line(number));
        if piece.len() > 8_000 {
            print(events, Stream::Stdout, std::mem::take(&mut piece)).await;
        }
    }
    print(events, Stream::Stdout, piece).await;
}

/// A reply of so many words, one a millisecond.
async fn reply(words: usize, events: &EventSender, cancel: &CancellationToken) {
    let id = DisplayId::host();
    show(events, Event::Answer(Answer::Start { id: id.clone(), model: "scripted/model".into() })).await;
    let mut ending = Ending::Complete;
    for word in 0..words {
        let delta = format!("w{word} ");
        show(events, Event::Answer(Answer::Text { id: id.clone(), delta })).await;
        tokio::time::sleep(Duration::from_millis(1)).await;
        if cancel.is_cancelled() {
            ending = Ending::Interrupted;
            break;
        }
    }
    let usage = Usage { output_tokens: Some(words as u64), ..Usage::default() };
    show(events, Event::Answer(Answer::End { id, ending, usage })).await;
}

impl Interpreter for Scripted {
    fn info(&self) -> LanguageInfo {
        LanguageInfo {
            banner: "scripted".into(),
            language_info: json!({
                "name": "script", "version": "1", "mimetype": "text/plain", "file_extension": ".txt",
            }),
        }
    }

    fn execute(
        &self,
        request: Execute,
        events: EventSender,
        ask: Arc<dyn Ask>,
        cancel: CancellationToken,
    ) -> BoxFuture<'_, Outcome> {
        Box::pin(async move {
            for order in request.code.lines() {
                if let Err(failure) = self.order(order, &request, &events, ask.as_ref(), &cancel).await {
                    show(&events, Event::Error(failure.clone())).await;
                    return Outcome { failure: Some(failure), ..Outcome::default() };
                }
            }
            let metadata = Map::from_iter([("scripted".to_owned(), true.into())]);
            Outcome { user_expressions: request.user_expressions, metadata, ..Outcome::default() }
        })
    }

    fn complete<'a>(&'a self, code: &'a str, cursor: usize) -> BoxFuture<'a, Completions> {
        Box::pin(async move {
            Completions { matches: vec![format!("{code}!")], start: 0, end: cursor, metadata: Map::new() }
        })
    }

    fn inspect<'a>(&'a self, code: &'a str, _: usize, _: u8) -> BoxFuture<'a, Option<Bundle>> {
        Box::pin(async move { (!code.is_empty()).then(|| Bundle::text(code)) })
    }

    fn is_complete<'a>(&'a self, code: &'a str) -> BoxFuture<'a, Completeness> {
        Box::pin(async move {
            match code {
                "never" => std::future::pending().await,
                "more" => Completeness::Incomplete { indent: "    ".into() },
                _ => Completeness::Complete,
            }
        })
    }

    fn shutdown(&self) -> BoxFuture<'_, ()> {
        self.shut_down.store(true, Ordering::SeqCst);
        Box::pin(async {})
    }
}

/// A running kernel.
pub(crate) struct Kernel {
    pub(crate) file: PathBuf,
    interpreter: Arc<Scripted>,
    thread: std::thread::JoinHandle<ExitReason>,
    _dir: tempfile::TempDir,
}

/// What a notebook's kernel is told.
pub(crate) fn options() -> Options {
    Options { flavor: Flavor::Markdown, paced: false, updates: Updates::Auto, parent: None, signals: false }
}

impl Kernel {
    pub(crate) fn start() -> Self {
        Self::start_with(options())
    }

    pub(crate) fn start_with(options: Options) -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let file = wire_client::connection_file(dir.path());
        let connection = ConnectionInfo::from_file(&file).expect("a valid connection file");
        let interpreter = Arc::new(Scripted::default());
        let scripted = Arc::clone(&interpreter);
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_multi_thread()
                .worker_threads(2)
                .enable_all()
                .build()
                .expect("a runtime");
            let reason = runtime.block_on(serve(&connection, scripted, options)).expect("a kernel");
            runtime.shutdown_background();
            reason
        });
        Kernel { file, interpreter, thread, _dir: dir }
    }

    pub(crate) fn client(&self) -> Client {
        Client::connect(&self.file)
    }

    /// Ends the kernel through this client, which must be told so.
    pub(crate) fn shut_down(self, mut client: Client) {
        let request = client.send(Channel::Control, "shutdown_request", &json!({"restart": false}));
        client.expect_busy(&request);
        client.expect_iopub(&request, "shutdown_reply");
        client.expect_idle(&request);
        let reply = client.expect_reply(&request, "shutdown_reply");
        assert_eq!(reply.content, json!({"status": "ok", "restart": false}));
        assert_eq!(self.ended(), ExitReason::Shutdown { restart: false });
    }

    /// Waits for the end; everything must have been shut down.
    pub(crate) fn ended(self) -> ExitReason {
        let reason = self.thread.join().expect("the kernel's thread");
        assert!(self.interpreter.shut_down.load(Ordering::SeqCst), "the interpreter was not shut down");
        reason
    }
}

/// Interrupts this cell, of which nothing but the error is outstanding.
pub(crate) fn interrupt(client: &mut Client, running: &Request) {
    let request = client.send(Channel::Control, "interrupt_request", &json!({}));
    client.expect_reply(&request, "interrupt_reply");
    client.expect_reply(running, "execute_reply");
    let mut idle = 0;
    while idle < 2 {
        idle += usize::from(client.next_iopub().content["execution_state"] == "idle");
    }
}
