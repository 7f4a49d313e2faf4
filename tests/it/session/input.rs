//! What a block reads, and what its run is said to have used.

use cellblock::sandbox::Run;

use super::{Answers, Around, Bed, Ran};

async fn fed(bed: &Bed, language: &str, code: &str, stdin: Option<&str>) -> Ran {
    let run = Run { stdin: stdin.map(str::to_owned), ..Run::new(language, code) };
    bed.run(run, Around::default()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_reads_what_it_is_given_and_nothing_otherwise() {
    let bed = Bed::new();
    assert_eq!(fed(&bed, "sh", "cat; echo end", None).await.ok().out(), "end\n");
    assert_eq!(fed(&bed, "sh", "cat; echo end", Some("")).await.ok().out(), "end\n");
    assert_eq!(fed(&bed, "sh", "read a; read b; echo $b-$a", Some("é\nx\nrest")).await.ok().out(), "x-é\n");
    // The end of the input is seen though the window was full before.
    let long = "0123456789abcdef".repeat(500_000);
    assert_eq!(fed(&bed, "sh", "sleep .3; wc -c", Some(&long)).await.ok().out(), "8000000\n");
    // One that reads no more, or a part, ends all the same.
    assert_eq!(fed(&bed, "sh", "exec 0<&-; sleep .2; echo done", Some(&long)).await.ok().out(), "done\n");
    assert_eq!(fed(&bed, "sh", "head -c 3; exit 0", Some(&long)).await.ok().out(), "012");
    assert_eq!(fed(&bed, "sh", "echo next; cat", None).await.ok().out(), "next\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn input_that_nobody_reads_does_not_pile_up_inside_and_an_interrupt_gets_through() {
    let bed = Bed::new();
    let long = "x".repeat(64 << 20);
    let code = "sleep .5; cut -d' ' -f2 /proc/1/statm; echo go; sleep 1000";
    let run = Run { stdin: Some(long), ..Run::new("sh", code) };
    let ran = bed.run(run, Around { cancel_at: Some("go"), ..Around::default() }).await;
    assert_eq!(ran.failure().ename, "KeyboardInterrupt");
    let pages: u64 = ran.out().lines().next().expect("a line").parse().expect("pages of the supervisor");
    assert!(pages < 10_000, "the supervisor holds {pages} pages");
    assert_eq!(bed.sh("echo next").await.ok().out(), "next\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn python_reads_given_input_line_by_line_instead_of_asking() {
    let bed = Bed::new();
    let code = "import sys\na = input('? ')\nb = sys.stdin.readline()\nc = sys.stdin.read()\nprint([a, b, c])\n\
                try:\n    input()\nexcept EOFError:\n    print('end')";
    let run = Run { stdin: Some("één\ntwo\nthree\nfour".into()), ..Run::new("python", code) };
    let ran = bed.run(run, Around { ask: Answers::new([Ok("asked")]), ..Around::default() }).await;
    assert_eq!(ran.ok().out(), "? ['één', 'two\\n', 'three\\nfour']\nend\n");
    // The next block has its own, or the user again.
    let ran = bed
        .run(
            Run::new("python", "input(), sys.stdin.read()"),
            Around { ask: Answers::new([Ok("asked")]), ..Around::default() },
        )
        .await;
    assert_eq!(ran.ok().result(), "('asked', '')");
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_written_and_the_peak_of_memory_are_counted_for_each_run() {
    const MB: u64 = 1 << 20;
    let bed = Bed::new();
    let ran = bed.python("import os\nprint('12345')\nos.write(2, b'123')").await;
    assert_eq!(ran.ok().end.written, 9);
    let small = ran.end.peak_memory.expect("known");
    let large = bed.python("x = bytearray(200 << 20); del x").await.ok().end.peak_memory.expect("known");
    assert!(large > 200 * MB && large < 500 * MB, "{large}");
    let after = bed.python("1").await.ok().end.peak_memory.expect("known");
    assert!(small < 200 * MB && after < 200 * MB, "the record begins anew: {small} {after}");
    let ran = bed.sh("python3 -c 'x = bytearray(150 << 20)'; printf 1234").await;
    let peak = ran.ok().end.peak_memory.expect("known");
    assert!(peak > 150 * MB && peak < 500 * MB, "{peak}");
    assert_eq!(ran.end.written, 4);
    let peak = bed.sh("true").await.ok().end.peak_memory.expect("known");
    assert!(peak < 100 * MB, "{peak}");
}
