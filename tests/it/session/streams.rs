//! Text on its way: whole characters, in order, while it happens, from wherever it is written.

use cellblock::event::{Event, Stream};
use cellblock::sandbox::Run;

use super::{Around, Bed};

#[tokio::test(flavor = "multi_thread")]
async fn a_character_cut_in_two_arrives_whole_and_what_follows_is_not_lost() {
    let bed = Bed::new();
    let code = "import os, time\nfor byte in 'é𝒳'.encode():\n    os.write(1, bytes([byte])); time.sleep(.02)\n\
                os.write(1, b'\\xff!\\n')\nprint('after')";
    let ran = bed.python(code).await;
    assert_eq!(ran.ok().out(), "é𝒳\u{fffd}!\nafter\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn children_and_c_code_are_heard_and_before_what_follows_them() {
    let bed = Bed::new();
    let code = "import ctypes, os, subprocess, sys\nprint('a')\nsubprocess.run(['echo', 'b'])\nprint('c')\n\
                os.system('echo d >&2')\n_ = ctypes.CDLL(None).printf(b'no line end')";
    for _ in 0..5 {
        let ran = bed.python(code).await;
        assert_eq!(ran.ok().out(), "a\nb\nc\nno line end");
        assert_eq!(ran.err(), "d\n");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_two_streams_keep_their_order_and_colours_and_returns_stay() {
    let bed = Bed::new();
    let code = "import sys\nfor n in range(3):\n    print('out', n)\n    print('err', n, file=sys.stderr)\n\
                sys.stderr.write('\\r 50%\\r100%\\n')\nprint('\\x1b[31mred\\x1b[0m\\x1b]0;title\\x07\\x1b[2J')";
    let ran = bed.python(code).await;
    let lines: Vec<_> = ran
        .ok()
        .events
        .iter()
        .filter_map(|event| match event {
            Event::Stream { stream, text } => Some((*stream, text.as_str())),
            _ => None,
        })
        .fold(Vec::<(Stream, String)>::new(), |mut all, (stream, text)| {
            match all.last_mut() {
                Some((last, before)) if *last == stream => before.push_str(text),
                _ => all.push((stream, text.to_owned())),
            }
            all
        });
    let expected = [
        (Stream::Stdout, "out 0\n"),
        (Stream::Stderr, "err 0\n"),
        (Stream::Stdout, "out 1\n"),
        (Stream::Stderr, "err 1\n"),
        (Stream::Stdout, "out 2\n"),
        (Stream::Stderr, "err 2\n\r 50%\r100%\n"),
        (Stream::Stdout, "\u{1b}[31mred\u{1b}[0m\n"),
    ];
    assert_eq!(lines, expected.map(|(stream, text)| (stream, text.to_owned())));
}

#[tokio::test(flavor = "multi_thread")]
async fn output_is_seen_while_the_code_still_runs() {
    let bed = Bed::new();
    for code in [
        "print('now')\nimport time\ntime.sleep(1000)",
        "import subprocess\nsubprocess.run('echo now; sleep 1000', shell=True)",
    ] {
        let plan = Around { cancel_at: Some("now"), ..Around::default() };
        let ran = bed.run(Run::new("python", code), plan).await;
        assert_eq!(ran.out(), "now\n");
        ran.failure();
    }
    let plan = Around { cancel_at: Some("now"), ..Around::default() };
    assert_eq!(bed.run(Run::new("sh", "printf now; sleep 1000"), plan).await.out(), "now");
}

#[tokio::test(flavor = "multi_thread")]
async fn forked_processes_and_threads_write_without_harm_to_the_channel() {
    let bed = Bed::new();
    let code = "import os, threading\nfrom concurrent.futures import ProcessPoolExecutor\n\
                def work(n):\n    print('child', n)\n    return n\n\
                with ProcessPoolExecutor(2) as pool:\n    print(sum(pool.map(work, range(4))))\n\
                if os.fork() == 0:\n    print('forked')\n    import sys; sys.stdout.flush()\n    os._exit(0)\n_ = os.wait()\n\
                threads = [threading.Thread(target=lambda: [print('t' * 50) for _ in range(200)]) for _ in range(4)]\n\
                [t.start() for t in threads] and [t.join() for t in threads];";
    let ran = bed.python(code).await;
    let out = ran.ok().out();
    for n in 0..4 {
        assert!(out.contains(&format!("child {n}\n")), "{out}");
    }
    assert!(out.contains("forked\n") && out.contains("6\n"), "{out}");
    assert_eq!(out.matches('t').count(), 4 * 200 * 50);
    assert_eq!(bed.python("1 + 1").await.ok().result(), "2");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_thread_says_after_its_cell_belongs_to_the_next() {
    let bed = Bed::new();
    let code = "import threading, time\ndef late():\n    time.sleep(.3)\n    print('late')\n\
                threading.Thread(target=late).start()\nprint('early')";
    assert_eq!(bed.python(code).await.ok().out(), "early\n");
    tokio::time::sleep(std::time::Duration::from_secs(3)).await;
    let ran = bed.python("print('next')").await;
    assert_eq!(ran.ok().out(), "late\nnext\n");
    assert!(matches!(&ran.events[0], Event::Notice(n) if n.text.contains("background")), "{ran:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn surrogates_and_odd_uses_of_the_streams_do_not_break_them() {
    let bed = Bed::new();
    let code = "import sys\nprint('a\\udcff')\nsys.stdout.buffer.write(b'bytes\\n')\nsys.stdout.writelines(['x', 'y\\n'])\n\
                print(sys.stdout.isatty(), sys.stdout.encoding, sys.stdout.fileno(), sys.stdin.read())\n\
                class S(str): pass\nprint(S('sub'))";
    let ran = bed.python(code).await;
    assert_eq!(ran.ok().out(), "a\\udcff\nbytes\nxy\nFalse UTF-8 1 \nsub\n");
    assert_eq!(bed.python("sys.stdout.write(3)").await.failure().ename, "TypeError");
}
