//! Hostile archives on the host: each attack is shown to work with an unpacker that takes names as they are.

use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use cellblock::sandbox::archive::{Limits, Packing, Report, Rules, Spot, pack, unpack};
use tempfile::TempDir;

/// Whatever is in the archive.
const ANY: Rules = Rules { top: None, hidden: true, replace: true };

const LIMITS: Limits = Limits { entries: 1000, bytes: 1 << 20 };

/// One entry of a tar archive, with nothing checked.
fn entry(name: &str, kind: u8, target: &str, mode: u32, data: &[u8]) -> Vec<u8> {
    let mut header = [0_u8; 512];
    header[..name.len()].copy_from_slice(name.as_bytes());
    header[100..107].copy_from_slice(format!("{mode:07o}").as_bytes());
    header[124..135].copy_from_slice(format!("{:011o}", data.len()).as_bytes());
    header[136..147].copy_from_slice(b"07346545000");
    header[156] = kind;
    header[157..157 + target.len()].copy_from_slice(target.as_bytes());
    header[257..265].copy_from_slice(b"ustar\x0000");
    sum(&mut header);
    let mut bytes = header.to_vec();
    bytes.extend_from_slice(data);
    bytes.resize(bytes.len().next_multiple_of(512), 0);
    bytes
}

fn sum(header: &mut [u8; 512]) {
    header[148..156].fill(b' ');
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
}

fn file(name: &str, data: &str) -> Vec<u8> {
    entry(name, b'0', "", 0o644, data.as_bytes())
}

fn link(name: &str, target: &str) -> Vec<u8> {
    entry(name, b'2', target, 0o777, b"")
}

fn archive(entries: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = entries.concat();
    bytes.resize(bytes.len() + 1024, 0);
    bytes
}

/// Takes names, links and modes as they come, as simple scripts do.
fn naive(bytes: &[u8], folder: &Path) {
    let mut archive = tar::Archive::new(bytes);
    for entry in archive.entries().expect("entries") {
        let Ok(mut entry) = entry else { return };
        let path = folder.join(entry.path().expect("a name"));
        let target = entry.link_name().ok().flatten();
        let kind = entry.header().entry_type();
        if kind.is_symlink() {
            let _ = symlink(target.expect("a target"), &path);
        } else if kind.is_hard_link() {
            let _ = std::fs::hard_link(folder.join(target.expect("a target")), &path);
        } else if kind.is_dir() {
            let _ = std::fs::create_dir_all(&path);
        } else {
            let mut data = Vec::new();
            entry.read_to_end(&mut data).expect("data");
            let _ = std::fs::create_dir_all(path.parent().expect("a parent"));
            if std::fs::write(&path, data).is_ok() {
                let mode = entry.header().mode().expect("a mode");
                let _ = std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode));
            }
        }
    }
}

/// A folder to unpack into, and beside it what must stay as it is.
struct Ground {
    all: TempDir,
}

impl Ground {
    fn new() -> Self {
        let all = TempDir::new().expect("a directory");
        std::fs::create_dir(all.path().join("into")).expect("a folder");
        std::fs::create_dir(all.path().join("outside")).expect("a folder");
        std::fs::write(all.path().join("outside/secret"), "secret").expect("a file");
        Ground { all }
    }

    fn folder(&self) -> PathBuf {
        self.all.path().join("into")
    }

    fn outside(&self) -> PathBuf {
        self.all.path().join("outside")
    }

    /// Everything outside, with contents and the number of names.
    fn intact(&self) -> bool {
        let names: Vec<_> =
            std::fs::read_dir(self.outside()).expect("there").map(|e| e.expect("one").file_name()).collect();
        let secret = self.outside().join("secret");
        names == ["secret"]
            && std::fs::read_to_string(&secret).is_ok_and(|text| text == "secret")
            && secret.metadata().is_ok_and(|m| m.nlink() == 1)
            && std::fs::read_dir(self.all.path()).expect("there").count() == 2
    }

    fn unpack(&self, bytes: &[u8]) -> Result<Report, String> {
        let folder = OwnedFd::from(std::fs::File::open(self.folder()).expect("open"));
        unpack(bytes, &folder, None, &ANY, LIMITS, &mut |_| ()).map_err(|e| e.to_string())
    }
}

#[test]
fn nothing_leads_out_of_the_folder_that_an_archive_is_unpacked_into() {
    type Attack = (&'static str, fn(&Ground), fn(&Ground) -> Vec<Vec<u8>>);
    let attacks: &[Attack] = &[
        ("upwards", |_| (), |_| vec![file("../outside/new", "x")]),
        ("upwards in the middle", |_| (), |_| vec![file("a/../../outside/new", "x")]),
        ("absolute", |_| (), |g| vec![file(g.outside().join("new").to_str().unwrap(), "x")]),
        ("over a link to a file", |_| (), |_| vec![link("l", "../outside/secret"), file("l", "x")]),
        (
            "over an absolute link",
            |_| (),
            |g| vec![link("l", g.outside().join("secret").to_str().unwrap()), file("l", "x")],
        ),
        ("through a link to a folder", |_| (), |_| vec![link("l", "../outside"), file("l/new", "x")]),
        (
            "through links that only together lead out",
            |_| (),
            |_| {
                vec![
                    entry("a", b'5', "", 0o755, b""),
                    entry("a/b", b'5', "", 0o755, b""),
                    link("a/b/up", "../.."),
                    link("out", "a/b/up/.."),
                    file("out/outside/new", "x"),
                ]
            },
        ),
        (
            "by a hard link",
            |_| (),
            |_| vec![entry("h", b'1', "../outside/secret", 0o644, b""), file("h", "x")],
        ),
        (
            "through a planted link",
            |g| symlink(g.outside(), g.folder().join("planted")).unwrap(),
            |_| vec![file("planted/new", "x")],
        ),
        (
            "over a planted link",
            |g| symlink(g.outside().join("secret"), g.folder().join("planted")).unwrap(),
            |_| vec![file("planted", "x")],
        ),
        (
            "by a planted link to nowhere",
            |g| symlink(g.outside().join("new"), g.folder().join("planted")).unwrap(),
            |_| vec![file("planted", "x")],
        ),
        (
            "by a long name",
            |_| (),
            |_| vec![entry("././@LongLink", b'L', "", 0o644, b"../outside/new\0"), file("short", "x")],
        ),
        (
            "by an attribute",
            |_| (),
            |_| vec![entry("pax", b'x', "", 0o644, b"23 path=../outside/new\n"), file("short", "x")],
        ),
    ];
    for (name, plant, entries) in attacks {
        let ground = Ground::new();
        plant(&ground);
        let bytes = archive(&entries(&ground));
        naive(&bytes, &ground.folder());
        assert!(!ground.intact(), "{name} does no harm at all");

        let ground = Ground::new();
        plant(&ground);
        let report = ground.unpack(&archive(&entries(&ground))).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert!(ground.intact(), "{name}");
        assert!(!report.refused.is_empty(), "{name}: {report:?}");
    }
}

#[test]
fn links_that_stay_inside_are_kept_and_lead_nowhere_else() {
    let ground = Ground::new();
    let report = ground
        .unpack(&archive(&[
            entry("a", b'5', "", 0o755, b""),
            file("a/one", "1"),
            link("a/same", "one"),
            link("top", "a/one"),
            link("a/up", "../top"),
            link("a/out", "../../outside"),
            link("a/zigzag", "one/../one"),
            link("empty", ""),
        ]))
        .unwrap();
    for name in ["a/same", "top", "a/up"] {
        assert_eq!(std::fs::read_to_string(ground.folder().join(name)).unwrap(), "1", "{name}");
    }
    assert_eq!(report.refused.len(), 3, "{report:?}");
}

#[test]
fn setuid_bits_and_rights_of_others_to_write_do_not_come_along_but_times_and_the_rest_do() {
    let bytes = archive(&[
        entry("run", b'0', "", 0o6777, b"#!"),
        entry("d", b'5', "", 0o1777, b""),
        entry("closed", b'5', "", 0o500, b""),
        file("closed/in", "x"),
    ]);
    let mode = |path: PathBuf| path.metadata().unwrap().permissions().mode() & 0o7777;
    let ground = Ground::new();
    naive(&bytes, &ground.folder());
    assert_eq!(mode(ground.folder().join("run")), 0o6777);
    let ground = Ground::new();
    ground.unpack(&bytes).unwrap();
    assert_eq!(mode(ground.folder().join("run")), 0o755);
    assert_eq!(mode(ground.folder().join("d")), 0o755);
    assert_eq!(mode(ground.folder().join("closed")), 0o700);
    assert_eq!(ground.folder().join("run").metadata().unwrap().mtime(), 0o7_346_545_000);
    assert_eq!(ground.folder().join("d").metadata().unwrap().mtime(), 0o7_346_545_000);
}

#[test]
fn what_is_there_is_replaced_only_by_a_file_where_a_file_was() {
    let ground = Ground::new();
    std::fs::write(ground.folder().join("file"), "old").unwrap();
    std::fs::create_dir(ground.folder().join("folder")).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, ground.folder().join("fifo"), 0o600.into()).unwrap();
    let report = ground
        .unpack(&archive(&[
            file("file", "new"),
            file("folder", "x"),
            file("fifo", "x"),
            link("file", "elsewhere"),
            file("file/below", "x"),
            entry("file", b'5', "", 0o755, b""),
            file("twice", "1"),
            file("twice", "2"),
            file("Twice", "3"),
        ]))
        .unwrap();
    assert_eq!(std::fs::read_to_string(ground.folder().join("file")).unwrap(), "new");
    assert_eq!(std::fs::read_to_string(ground.folder().join("twice")).unwrap(), "2");
    assert_eq!((report.files, report.refused.len()), (4, 5), "{report:?}");
    assert_eq!(std::fs::read_dir(ground.folder()).unwrap().count(), 5, "nothing half-written stays");
}

#[test]
fn devices_pipes_sparse_files_and_odd_names_are_listed_and_not_made() {
    let ground = Ground::new();
    let report = ground
        .unpack(&archive(&[
            entry("null", b'3', "", 0o666, b""),
            entry("disk", b'4', "", 0o666, b""),
            entry("pipe", b'6', "", 0o666, b""),
            entry("sparse", b'S', "", 0o644, b"data"),
            entry("pax", b'x', "", 0o644, b"22 GNU.sparse.major=1\n"),
            file("holes", "x"),
            file("bell\u{7}", "x"),
            file("\u{1b}[2Jclear", "x"),
            file(&"d/".repeat(49), "x"),
            file("good", "x"),
        ]))
        .unwrap();
    assert!(report.refused.iter().all(|line| !line.contains(['\u{7}', '\u{1b}'])), "{report:?}");
    let names: Vec<_> = std::fs::read_dir(ground.folder()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert!(names.contains(&"good".into()) && !names.contains(&"null".into()), "{names:?}");
    assert_eq!(report.refused.len(), 7, "{report:?}");
}

#[test]
fn an_archive_that_is_too_much_or_damaged_ends_and_what_came_before_stays() {
    // Far more is announced than is there: nothing is kept for it.
    let mut huge = entry("huge", b'0', "", 0o644, b"");
    huge[124..135].copy_from_slice(b"77777777777");
    let mut header: [u8; 512] = huge[..512].try_into().unwrap();
    sum(&mut header);
    let mut negative = header;
    negative[124..136].fill(0xff);
    sum(&mut negative);
    let mut endless_name = entry("././@LongLink", b'L', "", 0o644, b"");
    endless_name[124..135].copy_from_slice(b"77777777777");
    let mut endless: [u8; 512] = endless_name[..512].try_into().unwrap();
    sum(&mut endless);
    let many: Vec<_> = (0..1001).map(|n| file(&format!("f{n}"), "")).collect();
    let cases: [(&str, Vec<u8>, &str); 8] = [
        ("too large", [file("first", "1"), header.to_vec()].concat(), "more than"),
        ("too many", archive(&many), "1000"),
        ("cut", [file("first", "1"), file("second", "22")[..513].to_vec()].concat(), "middle"),
        ("no end", file("first", "1"), "middle"),
        ("nonsense", [file("first", "1"), vec![b'x'; 2000]].concat(), "damaged"),
        ("a negative size", [file("first", "1"), negative.to_vec()].concat(), "number"),
        ("an endless name", [file("first", "1"), endless.to_vec()].concat(), "long"),
        (
            "headers without end",
            [vec![file("first", "1")], vec![entry("g", b'g', "", 0o644, b""); 20]].concat().concat(),
            "headers",
        ),
    ];
    for (name, bytes, why) in cases {
        let ground = Ground::new();
        let told = ground.unpack(&bytes).expect_err(name);
        assert!(told.contains(why), "{name}: {told}");
        let first = if name == "too many" { "f0" } else { "first" };
        assert!(ground.folder().join(first).exists(), "{name}");
        assert!(std::fs::read_dir(ground.folder()).unwrap().count() <= 1000, "{name}");
    }
    // The end of an archive is its end, whatever follows for ever.
    let ground = Ground::new();
    let folder = OwnedFd::from(std::fs::File::open(ground.folder()).unwrap());
    let endless = std::io::Cursor::new(archive(&[file("one", "1")])).chain(std::io::repeat(b'x'));
    assert_eq!(unpack(endless, &folder, None, &ANY, LIMITS, &mut |_| ()).unwrap().files, 1);
}

#[test]
fn links_put_in_place_while_an_archive_is_unpacked_are_not_followed() {
    // Swaps a folder for a link to the outside, again and again, as a guest can in its workspace.
    let ground = Ground::new();
    let (into, outside) = (ground.folder(), ground.outside());
    let over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(std::sync::atomic::Ordering::Relaxed) {
                let _ = std::fs::rename(into.join("d"), into.join("d2"));
                let _ = symlink(&outside, into.join("d"));
                let _ = std::fs::remove_file(into.join("d"));
                let _ = std::fs::remove_dir_all(into.join("d2"));
            }
        });
        for _ in 0..200 {
            let entries: Vec<_> = (0..5).map(|n| file(&format!("d/f{n}"), "x")).collect();
            let _ = ground.unpack(&archive(&entries));
        }
        over.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    assert!(ground.intact());
}

#[test]
fn packing_takes_links_as_links_and_only_what_lies_where_it_may() {
    let ground = Ground::new();
    let into = ground.folder();
    std::fs::create_dir(into.join("sub")).unwrap();
    std::fs::write(into.join("sub/file"), "data").unwrap();
    symlink("../../outside/secret", into.join("sub/link")).unwrap();
    symlink(ground.outside(), into.join("away")).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, into.join("sub/fifo"), 0o600.into()).unwrap();
    let find = |path: &str| Spot::find(Path::new(path), Some(&into));
    for path in ["../outside", "away/secret", "/etc/passwd", "sub/../../outside", "sub/file/x"] {
        assert!(find(path).is_err(), "{path}");
    }
    // What is a link itself is packed as one.
    let mut packing = Packing::default();
    for path in ["sub", "away", "."] {
        packing.add(find(path).unwrap(), 100).unwrap();
    }
    assert!(Packing::default().add(find("missing").unwrap(), 100).is_err());
    let mut bytes = Vec::new();
    let report = pack(&packing, &mut bytes, &mut |_| ()).unwrap();
    bytes.flush().unwrap();
    assert!(report.refused.iter().any(|line| line.contains("fifo")), "{report:?}");
    assert_eq!((report.files, packing.files, packing.tops()), (2, 2, 3));
    let mut seen = Vec::new();
    for entry in tar::Archive::new(bytes.as_slice()).entries().unwrap() {
        let mut entry = entry.unwrap();
        let mut text = String::new();
        entry.read_to_string(&mut text).unwrap();
        seen.push((entry.path().unwrap().to_string_lossy().into_owned(), entry.header().entry_type(), text));
    }
    assert!(seen.iter().any(|(name, kind, _)| name == "sub/link" && kind.is_symlink()), "{seen:?}");
    assert!(seen.iter().any(|(name, _, text)| name == "sub/file" && text == "data"), "{seen:?}");
    assert!(seen.iter().all(|(_, _, text)| text != "secret"), "{seen:?}");
}

#[test]
fn a_download_brings_what_was_asked_for_and_plants_nothing_beside_it() {
    let planted = || {
        archive(&[
            file("result.csv", "1"),
            file(".git/hooks/post-commit", "evil"),
            file("other.ipynb", "evil"),
            file(".ssh/authorized_keys", "evil"),
            file("cellblock.toml", "evil"),
        ])
    };
    let take = |rules: &Rules, bytes: &[u8]| {
        let ground = Ground::new();
        std::fs::write(ground.folder().join("run.py"), "mine").unwrap();
        std::fs::write(ground.folder().join("old.csv"), "old").unwrap();
        let folder = OwnedFd::from(std::fs::File::open(ground.folder()).unwrap());
        let report = unpack(bytes, &folder, None, rules, LIMITS, &mut |_| ()).unwrap();
        (ground, report)
    };
    let asked = |top: &str| Rules { top: Some(top.to_owned()), hidden: false, replace: false };
    let (ground, report) = take(&asked("result.csv"), &planted());
    let names: Vec<_> = std::fs::read_dir(ground.folder()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!((names.len(), report.refused.len()), (3, 4), "{names:?} {report:?}");
    // Without the rules everything is taken.
    let (ground, _) = take(&ANY, &planted());
    assert!(ground.folder().join(".git/hooks/post-commit").exists());

    // Below what was asked for nothing hidden arrives; what is there is replaced only when it is data.
    let (ground, report) = take(
        &asked("*"),
        &archive(&[file("repo/.git/config", "x"), file("run.py", "evil"), file("old.csv", "new")]),
    );
    assert!(!ground.folder().join("repo/.git").exists(), "{report:?}");
    assert_eq!(std::fs::read_to_string(ground.folder().join("run.py")).unwrap(), "mine");
    assert_eq!(std::fs::read_to_string(ground.folder().join("old.csv")).unwrap(), "new");
}
