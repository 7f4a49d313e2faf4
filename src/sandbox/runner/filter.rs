//! A filter of system calls: no file in a container gets the set-user-id or the set-group-id bit.
//!
//! Imports nothing of ours. Code inside runs as the user who owns the workspace on the host, where such a file would lend
//! that user's rights to whoever starts it. The engine's own filter lets it pass, so this one comes on top: the supervisor
//! puts it over itself before it starts anything (`system.py`), it is inherited, and nobody can take it away again.
//!
//! Linux itself takes the bits off a mode that `mkdir` is given, so directories are made as ever. The calls of 32-bit
//! programs are looked at by their own numbers: refusing them all would break such programs. Two calls say what they
//! want in memory, which no filter can read, `openat2` and those of `io_uring`: they are answered as by a Linux that
//! does not have them, and who uses them knows another way.

use std::collections::HashMap;
use std::fmt::Write;

/// `S_ISUID` and `S_ISGID`.
const BOTH: u32 = 0o6000;
/// `S_ISUID` alone: where directories have the other bit, whoever copies one copies it, and a filter can't tell
/// directories from files.
const USER: u32 = 0o4000;

/// Instructions: load a word; jump when it is equal, when it has one of the bits; answer.
const LOAD: u16 = 0x20;
const EQUAL: u16 = 0x15;
const ANY: u16 = 0x45;
const ANSWER: u16 = 0x06;

/// Where the number of the call and the architecture lie in what a filter sees.
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;

const ALLOW: u32 = 0x7fff_0000;
/// `SECCOMP_RET_ERRNO` with `EPERM` and `ENOSYS`.
const REFUSE: u32 = 0x0005_0001;
const ABSENT: u32 = 0x0005_0026;

/// `O_CREAT` and `O_TMPFILE`: without them opening takes no mode.
const CREATES: u32 = 0o100 | 0o20_000_000;
/// Marks a third set of numbers on x86-64, which hardly any Linux takes.
const X32: u32 = 0x4000_0000;
const X86_64: u32 = 0xc000_003e;

/// What is done with a call: a place in the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Place {
    /// The calls of the next architecture.
    Next(u32),
    /// It opens; the flags are this argument and the mode is the next.
    Open(u32),
    /// The mode is this argument.
    Mode(u32),
    Allow,
    Refuse,
    Absent,
}

/// Each call that matters, in the order of the numbers below.
const CALLS: [(&str, Place); 11] = [
    ("open", Place::Open(1)),
    ("openat", Place::Open(2)),
    ("chmod", Place::Mode(1)),
    ("fchmod", Place::Mode(1)),
    ("creat", Place::Mode(1)),
    ("mknod", Place::Mode(1)),
    ("fchmodat", Place::Mode(2)),
    ("fchmodat2", Place::Mode(2)),
    ("mknodat", Place::Mode(2)),
    ("openat2", Place::Absent),
    ("io_uring_setup", Place::Absent),
];

/// A number that no call has: the architecture lacks it.
const NONE: u32 = u32::MAX;

/// Their numbers on x86-64, arm64, i386 and arm.
const NUMBERS: [(u32, [u32; CALLS.len()]); 4] = [
    (X86_64, [2, 257, 90, 91, 85, 133, 268, 452, 259, 437, 425]),
    (0xc000_00b7, [NONE, 56, NONE, 52, NONE, NONE, 53, 452, 33, 437, 425]),
    (0x4000_0003, [5, 295, 15, 94, 8, 14, 306, 452, 297, 437, 425]),
    (0x4000_0028, [5, 322, 15, 94, 8, 14, 333, 452, 324, 437, 425]),
];

/// An instruction whose jumps still go to places; `None`: to the next instruction.
type Line = (u16, u32, Option<Place>, Option<Place>);

/// The filter for usual places and the one where directories have the set-group-id bit, as hexadecimal text.
pub(super) fn texts() -> String {
    let mut text = String::new();
    for bits in [BOTH, USER] {
        for byte in program(bits) {
            // Writing to a string can't fail.
            let _ = write!(text, "{byte:02x}");
        }
        text.push(' ');
    }
    text
}

/// The filter against these bits, as Linux takes it.
fn program(bits: u32) -> Vec<u8> {
    let mut lines: Vec<Line> = vec![(LOAD, ARCHITECTURE, None, None)];
    let mut places = HashMap::new();
    for (architecture, numbers) in NUMBERS {
        let next = Place::Next(architecture);
        lines.push((EQUAL, architecture, None, Some(next)));
        lines.push((LOAD, NUMBER, None, None));
        if architecture == X86_64 {
            lines.push((ANY, X32, Some(Place::Absent), None));
        }
        let known = numbers.into_iter().zip(CALLS).filter(|(number, _)| *number != NONE);
        lines.extend(known.map(|(number, (_, place))| (EQUAL, number, Some(place), None)));
        lines.push((ANSWER, ALLOW, None, None));
        places.insert(next, lines.len());
    }
    lines.push((ANSWER, ALLOW, None, None));
    for flags in [1, 2] {
        places.insert(Place::Open(flags), lines.len());
        lines.push((LOAD, argument(flags), None, None));
        lines.push((ANY, CREATES, Some(Place::Mode(flags + 1)), Some(Place::Allow)));
    }
    for mode in [1, 2, 3] {
        places.insert(Place::Mode(mode), lines.len());
        lines.push((LOAD, argument(mode), None, None));
        lines.push((ANY, bits, Some(Place::Refuse), Some(Place::Allow)));
    }
    for (place, answer) in [(Place::Refuse, REFUSE), (Place::Absent, ABSENT), (Place::Allow, ALLOW)] {
        places.insert(place, lines.len());
        lines.push((ANSWER, answer, None, None));
    }
    let mut bytes = Vec::with_capacity(lines.len() * 8);
    for (at, (code, value, yes, no)) in lines.into_iter().enumerate() {
        // Jumps are short and go forward alone: a test walks all of them.
        let jump = |place: Option<Place>| {
            place.map_or(0, |place| u8::try_from(places[&place] - at - 1).unwrap_or(u8::MAX))
        };
        // In the order of the machine's own bytes: all four architectures begin with the lowest.
        bytes.extend(code.to_le_bytes());
        bytes.extend([jump(yes), jump(no)]);
        bytes.extend(value.to_le_bytes());
    }
    bytes
}

/// Where the lower half of an argument lies.
const fn argument(index: u32) -> u32 {
    16 + 8 * index
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

    use super::*;

    /// What Linux makes of the program for one call.
    fn answer(program: &[u8], architecture: u32, number: u32, arguments: [u64; 6]) -> u32 {
        let mut seen = Vec::new();
        seen.extend(number.to_le_bytes());
        seen.extend(architecture.to_le_bytes());
        seen.extend(0u64.to_le_bytes());
        for argument in arguments {
            seen.extend(argument.to_le_bytes());
        }
        let (mut at, mut word) = (0, 0);
        loop {
            let line: [u8; 8] = program[at * 8..at * 8 + 8].try_into().unwrap();
            let value = u32::from_le_bytes(line[4..].try_into().unwrap());
            let jump = |yes: bool| usize::from(line[if yes { 2 } else { 3 }]);
            at += 1;
            match u16::from_le_bytes([line[0], line[1]]) {
                LOAD => {
                    let from = value as usize;
                    word = u32::from_le_bytes(seen[from..from + 4].try_into().unwrap());
                }
                EQUAL => at += jump(word == value),
                ANY => at += jump(word & value != 0),
                ANSWER => return value,
                code => panic!("no such instruction: {code:#x}"),
            }
        }
    }

    /// The arguments of a call that gives a file this mode.
    fn giving(place: Place, mode: u64) -> [u64; 6] {
        // What lies above the mode's word does not count, and neither does what other arguments hold.
        let mut arguments = [0o6777; 6];
        match place {
            Place::Open(flags) => {
                arguments[flags as usize] = 0o101;
                arguments[flags as usize + 1] = mode;
            }
            Place::Mode(index) => arguments[index as usize] = mode | 0xffff_ffff_0010_0000,
            _ => {}
        }
        arguments
    }

    #[test]
    fn every_call_that_gives_the_bits_is_refused_on_every_architecture() {
        let (whole, user) = (program(BOTH), program(USER));
        for (architecture, numbers) in NUMBERS {
            for (number, (name, place)) in
                numbers.into_iter().zip(CALLS).filter(|(number, _)| *number != NONE)
            {
                for (mode, both, one) in [
                    (0o755, ALLOW, ALLOW),
                    (0o1777, ALLOW, ALLOW),
                    (0o4755, REFUSE, REFUSE),
                    (0o2755, REFUSE, ALLOW),
                    (0o6000, REFUSE, REFUSE),
                ] {
                    let expected = if place == Place::Absent { (ABSENT, ABSENT) } else { (both, one) };
                    let arguments = giving(place, mode);
                    let got = (
                        answer(&whole, architecture, number, arguments),
                        answer(&user, architecture, number, arguments),
                    );
                    assert_eq!(got, expected, "{name} on {architecture:#x} with {mode:o}");
                }
            }
        }
    }

    #[test]
    fn all_else_passes() {
        let program = program(BOTH);
        for (architecture, numbers) in NUMBERS {
            for number in (0..600).filter(|number| !numbers.contains(number)) {
                assert_eq!(answer(&program, architecture, number, [0o6777; 6]), ALLOW, "{number}");
            }
        }
        // Opening what is there takes no mode: whatever lies in that argument.
        assert_eq!(answer(&program, X86_64, 2, [0, 0, 0o4755, 0, 0, 0]), ALLOW);
        assert_eq!(answer(&program, X86_64, 257, [0, 0, 0o2, 0o4755, 0, 0]), ALLOW);
        // O_TMPFILE makes a file without a name, which can be given one.
        assert_eq!(answer(&program, X86_64, 257, [0, 0, 0o20_200_001, 0o4755, 0, 0]), REFUSE);
        assert_eq!(
            answer(&program, 0x8000_0016, 15, [0o6777; 6]),
            ALLOW,
            "an architecture that it does not know"
        );
    }

    #[test]
    fn the_third_set_of_numbers_is_no_way_around() {
        for number in [X32 + 90, X32 + 2, X32 + 600, u32::MAX] {
            assert_eq!(answer(&program(BOTH), X86_64, number, [0o4755; 6]), ABSENT);
        }
    }
}
