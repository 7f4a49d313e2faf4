//! Blocks that last: the dialogue on disk has their code and output while they run, not only after their end.

use std::time::Duration;

use super::agent;
use super::execute::Engine;
use crate::chat::{Place, Ran, Running, ToolResult};
use crate::event::plain;
use crate::sandbox::Watch;

/// How often it is looked whether a block's code has begun, and how long it is left alone then: most blocks are over
/// sooner, and written once.
const SECOND: Duration = Duration::from_secs(1);

impl Engine {
    /// Waits for a run of the user's, which `watch` looks at; one that lasts is written down while it does.
    pub(super) async fn kept<T>(
        &self,
        place: &Place,
        (language, source): (&str, &str),
        watch: &Watch,
        run: impl Future<Output = T>,
    ) -> T {
        let ran = || Ran { language: language.to_owned(), source: source.to_owned(), ..Ran::default() };
        lasting(watch, run, |watch| self.chat.running(place, ran(), move || watch.so_far())).await
    }

    /// The same for a call of the model, which is to have this result, after those of the calls `before`.
    pub(super) async fn kept_call<T>(
        &self,
        place: &Place,
        (before, call): (&[ToolResult], &ToolResult),
        watch: &Watch,
        run: impl Future<Output = T>,
    ) -> T {
        lasting(watch, run, |watch| {
            let shown = move || watch.so_far().map(|shown| plain(&shown));
            self.chat.running_call(place, before.to_vec(), call.clone(), agent::DATA, shown)
        })
        .await
    }
}

async fn lasting<T>(
    watch: &Watch,
    run: impl Future<Output = T>,
    write: impl FnOnce(Watch) -> Option<Running>,
) -> T {
    tokio::pin!(run);
    loop {
        let begun = watch.has_begun();
        tokio::select! {
            biased;
            done = &mut run => return done,
            () = tokio::time::sleep(SECOND) => {}
        }
        if begun {
            break;
        }
    }
    let _running = write(watch.clone());
    run.await
}
