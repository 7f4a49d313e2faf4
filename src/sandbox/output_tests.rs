//! Caps, coalescing, files, order.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::io::Read;

use crate::event::Level;

use super::*;

fn shelf() -> (tempfile::TempDir, Shelf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("rest.txt");
    let shelf = Shelf::new(move || Ok((std::fs::File::create(&path)?, "/workspace/rest.txt".to_owned())));
    (directory, shelf)
}

fn spilled(directory: &tempfile::TempDir) -> String {
    let mut text = String::new();
    std::fs::File::open(directory.path().join("rest.txt")).unwrap().read_to_string(&mut text).unwrap();
    text
}

fn drain(outlet: &mut Outlet) -> (String, Vec<Event>) {
    let (mut text, mut rest) = (String::new(), Vec::new());
    while let Some(event) = outlet.next() {
        match event {
            Event::Stream { text: more, .. } => text.push_str(&more),
            other => rest.push(other),
        }
    }
    (text, rest)
}

#[tokio::test]
async fn text_of_one_stream_is_joined_and_of_two_kept_apart() {
    let mut outlet = Outlet::new(0, 1 << 20, 0, None);
    for text in ["a", "b"] {
        outlet.bytes(Stream::Stdout, text.as_bytes());
    }
    outlet.bytes(Stream::Stderr, b"c");
    outlet.bytes(Stream::Stdout, b"d");
    let event = |stream, text: &str| Event::Stream { stream, text: text.into() };
    let events: Vec<_> = std::iter::from_fn(|| outlet.next()).collect();
    assert_eq!(events, [event(Stream::Stdout, "ab"), event(Stream::Stderr, "c"), event(Stream::Stdout, "d")]);
}

#[tokio::test]
async fn above_the_cap_the_file_holds_the_whole_text_and_one_notice_names_it() {
    let (directory, shelf) = shelf();
    let mut outlet = Outlet::new(0, 200, 1 << 20, Some(shelf));
    for _ in 0..100 {
        outlet.bytes(Stream::Stdout, "é234567890".as_bytes());
    }
    outlet.finish(None).await;
    let (text, rest) = drain(&mut outlet);
    assert!(text.len() <= 200 && text.starts_with("é234567890é"), "{text}");
    assert_eq!(spilled(&directory), "é234567890".repeat(100));
    let [Event::Notice(notice)] = rest.as_slice() else { panic!("{rest:?}") };
    assert!(notice.level == Level::Warning && notice.text.contains("/workspace/rest.txt"), "{notice:?}");
}

#[tokio::test]
async fn the_file_has_a_limit_and_what_is_beyond_it_is_said() {
    let (directory, shelf) = shelf();
    let mut outlet = Outlet::new(0, 100, 1000, Some(shelf));
    outlet.bytes(Stream::Stdout, &[b'x'; 5000]);
    outlet.finish(None).await;
    assert_eq!(spilled(&directory).len(), 1000);
    let (_, rest) = drain(&mut outlet);
    assert!(matches!(rest.last(), Some(Event::Notice(n)) if n.text.contains("neither shown nor kept")));
}

#[tokio::test]
async fn the_failure_is_last_and_passes_above_any_cap() {
    let mut outlet = Outlet::new(1000, 1000, 0, None);
    outlet.error(Failure::new("E", "held"));
    let failure = outlet.take_held().unwrap();
    outlet.bytes(Stream::Stderr, b"after");
    let told = outlet.finish(Some(&failure)).await;
    assert!(told.contains("[stderr]\nafter\n[error]\nE: held"), "{told}");
    assert_eq!(drain(&mut outlet).1.last(), Some(&Event::Error(failure)));
}

#[tokio::test]
async fn an_error_followed_by_something_keeps_its_place() {
    let mut outlet = Outlet::new(0, 1 << 20, 0, None);
    outlet.error(Failure::new("First", "shown by the code itself"));
    outlet.bytes(Stream::Stdout, b"and on");
    assert_eq!(outlet.take_held(), None);
    assert!(matches!(outlet.next(), Some(Event::Error(e)) if e.ename == "First"));
}

#[tokio::test]
async fn once_stopped_little_text_still_waits_and_the_file_has_it_all() {
    let (directory, shelf) = shelf();
    let mut outlet = Outlet::new(0, 16 << 20, 64 << 20, Some(shelf));
    for _ in 0..100 {
        outlet.bytes(Stream::Stdout, &[b'y'; 10_000]);
    }
    outlet.stopping();
    outlet.bytes(Stream::Stdout, b"late");
    outlet.finish(Some(&Failure::new("KeyboardInterrupt", ""))).await;
    let (text, rest) = drain(&mut outlet);
    assert_eq!(text.len(), AFTER_STOP);
    assert!(matches!(rest.as_slice(), [Event::Notice(_), Event::Error(_)]), "{rest:?}");
    assert_eq!(spilled(&directory).len(), 1_000_004);
}

#[tokio::test]
async fn displays_above_the_cap_are_left_out_and_counted() {
    let mut outlet = Outlet::new(0, 500, 0, None);
    for _ in 0..20 {
        outlet.display(Bundle::text("x"), None, false, 100);
    }
    outlet.finish(None).await;
    let (_, rest) = drain(&mut outlet);
    assert_eq!(rest.iter().filter(|e| matches!(e, Event::Display { .. })).count(), 3);
    assert!(matches!(rest.last(), Some(Event::Notice(n)) if n.text.starts_with("17 displays")), "{rest:?}");
}

#[tokio::test]
async fn a_result_passes_above_the_cap_up_to_a_bound_of_its_own() {
    let mut outlet = Outlet::new(500, 500, 0, None);
    for size in [usize::try_from(RESULTS).unwrap() - 200, 100, 100] {
        outlet.rich(Event::Result { bundle: Bundle::text("7") }, size);
    }
    let told = outlet.finish(None).await;
    assert!(told.contains("[result]\n7"), "{told}");
    let (_, rest) = drain(&mut outlet);
    assert!(
        matches!(rest.as_slice(), [Event::Result { .. }, Event::Notice(n)] if n.text.starts_with("2 displays were")),
        "{rest:?}"
    );
}

#[test]
fn a_guests_error_is_bounded_and_filtered() {
    let failure =
        guest_failure("E\u{1b}]0;t\u{7}", &"é".repeat(ERROR_TEXT), &["\u{1b}[31mred".into(), "x".into()]);
    assert_eq!(failure.ename, "E");
    assert!(failure.evalue.len() <= ERROR_TEXT && failure.traceback.len() == 2);
    assert_eq!(guest_failure("E", "v", &["\u{1b}[31mred".into()]).traceback, ["\u{1b}[31mred"]);
}

#[test]
fn sizes_read_well() {
    assert_eq!(
        [12, 5 << 10, 16 << 20, 3 << 29].map(size),
        ["12 bytes", "5 kB", "16 MB", "1.5 GB"].map(str::to_owned)
    );
}

#[tokio::test]
async fn an_interrupt_after_the_end_spills_what_a_slow_surface_has_not_taken() {
    let (directory, shelf) = shelf();
    let mut outlet = Outlet::new(0, 16 << 20, 16 << 20, Some(shelf));
    let whole = "0123456789".repeat(100_000);
    outlet.bytes(Stream::Stdout, whole.as_bytes());
    outlet.finish(Some(&Failure::new("ExitCode", "3"))).await;
    let (events, mut taken) = crate::event::channel(1);
    let cancel = CancellationToken::new();
    cancel.cancel();
    let reader = tokio::spawn(async move {
        let mut all = Vec::new();
        while let Some(event) = taken.recv().await {
            all.push(event);
        }
        all
    });
    outlet.flush(&events, &cancel).await;
    drop(events);
    let all = reader.await.unwrap();
    let shown: usize =
        all.iter().map(|e| if let Event::Stream { text, .. } = e { text.len() } else { 0 }).sum();
    assert!(shown <= AFTER_STOP, "{shown}");
    assert!(matches!(all.last(), Some(Event::Error(_))), "{:?}", all.last());
    assert_eq!(spilled(&directory), whole);
}
