//! `cellblock prune` with real, small images of an age that no other image here has.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fmt::Write;
use std::path::Path;

use sha2::{Digest, Sha256};

use crate::cli::{cellblock, text};
use crate::containers::{docker, said};

/// Older than any image of anybody's, so that pruning by age leaves those alone; and more days than that.
const MADE: &str = "1990-01-01T00:00:00Z";
const DAYS: &str = "--days=10000";

fn hexadecimal(bytes: &[u8]) -> String {
    let mut text = String::new();
    for byte in Sha256::digest(bytes) {
        // Writing to a string can't fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

fn add(archive: &mut tar::Builder<Vec<u8>>, name: &str, bytes: &[u8]) {
    let mut header = tar::Header::new_gnu();
    header.set_size(bytes.len() as u64);
    header.set_mode(0o644);
    header.set_cksum();
    archive.append_data(&mut header, name, bytes).unwrap();
}

/// Makes an image of these layers, each a file with that text; its id.
fn image(folder: &Path, name: &str, layers: &[&str]) -> String {
    let packed = |text: &&str| {
        let mut layer = tar::Builder::new(Vec::new());
        add(&mut layer, &hexadecimal(text.as_bytes()), text.as_bytes());
        layer.into_inner().unwrap()
    };
    let layers: Vec<_> = layers.iter().map(packed).collect();
    let ids: Vec<_> = layers.iter().map(|layer| format!("sha256:{}", hexadecimal(layer))).collect();
    let config = serde_json::json!({
        "architecture": "amd64", "os": "linux", "created": MADE, "config": {"Labels": {"cellblock.image": "own"}, "Cmd": ["x"]},
        "rootfs": {"type": "layers", "diff_ids": ids}, "history": layers.iter().map(|_| serde_json::json!({"created": MADE})).collect::<Vec<_>>(),
    });
    let files: Vec<_> = (0..layers.len()).map(|number| format!("{number}/layer.tar")).collect();
    let manifest = serde_json::json!([{"Config": "config.json", "RepoTags": [name], "Layers": files}]);
    let mut archive = tar::Builder::new(Vec::new());
    add(&mut archive, "config.json", config.to_string().as_bytes());
    for (file, layer) in files.iter().zip(&layers) {
        add(&mut archive, file, layer);
    }
    add(&mut archive, "manifest.json", manifest.to_string().as_bytes());
    let path = folder.join("image.tar");
    std::fs::write(&path, archive.into_inner().unwrap()).unwrap();
    said(&["load", "-q", "-i", path.to_str().unwrap()]);
    said(&["image", "inspect", "--format", "{{.Id}}", name])
}

fn is_there(name: &str) -> bool {
    docker(&["image", "inspect", name]).status.success()
}

/// Takes away what a failed test would leave.
struct Left(Vec<String>);

impl Drop for Left {
    fn drop(&mut self) {
        docker(&["rm", "-f", &self.0[0]]);
        for name in &self.0[1..] {
            docker(&["rmi", "-f", name]);
        }
    }
}

#[test]
fn what_nothing_refers_to_goes_and_all_else_stays() {
    let home = tempfile::tempdir().unwrap();
    let mark = uuid::Uuid::new_v4().simple().to_string();
    let name = |number: u8| format!("cellblock-prune-test:{mark}{number}");
    let text_of = |number: u8| format!("{mark} {number}");
    let texts: Vec<String> = (0..8).map(text_of).collect();
    let foreign = format!("prune-test-{mark}:latest");
    let container = format!("prune-test-{mark}");
    let mut left = vec![container.clone(), foreign.clone()];
    left.extend((0..8).map(name));
    let _left = Left(left);

    let make = |name: &str, layers: &[&String]| {
        image(home.path(), name, &layers.iter().map(|text| text.as_str()).collect::<Vec<_>>())
    };
    // Two that nothing needs, one made on the other; one of a container; one of a checkpoint; one that somebody else built on.
    make(&name(0), &[&texts[0]]);
    make(&name(1), &[&texts[0], &texts[1]]);
    make(&name(2), &[&texts[2]]);
    let saved = make(&name(3), &[&texts[3]]);
    make(&name(4), &[&texts[4]]);
    make(&foreign, &[&texts[4], &texts[5]]);
    said(&["create", "--name", &container, &name(2)]);
    let checkpoint = home.path().join(".local/share/cellblock/checkpoints/directory/mine");
    std::fs::create_dir_all(&checkpoint).unwrap();
    let meta = |image: &str| {
        serde_json::json!({
            "version": 1, "cellblock": "0.1.0", "container": "python", "image": image, "root": null,
            "saved": "2026-01-01T00:00:00Z", "archive": "state.tar",
            "inventory": {"variables": null, "skipped": [], "files": 0, "bytes": 0},
        })
    };
    std::fs::write(checkpoint.join("meta.json"), "{").unwrap();

    let prune = |arguments: &[&str]| {
        let done = cellblock(home.path()).arg("prune").arg(DAYS).args(arguments).output().unwrap();
        (done.status.code(), text(&done.stdout) + &text(&done.stderr))
    };
    let (code, told) = prune(&[]);
    assert!(code == Some(1) && told.contains("a checkpoint can't be read, so nothing is removed"), "{told}");
    std::fs::write(checkpoint.join("meta.json"), meta(&saved).to_string()).unwrap();
    let (code, told) = prune(&["--dry-run"]);
    assert!(code == Some(0) && is_there(&name(0)) && is_there(&name(1)), "{told}");
    let lines: Vec<_> = told.lines().collect();
    assert_eq!(lines.len(), 3, "{told}");
    assert!(lines[0].starts_with(&format!("would remove {} (", name(1))), "{told}");
    assert!(lines[1].starts_with(&format!("would remove {} (", name(0))), "{told}");
    assert!(lines[2].starts_with("2 images, ") && lines[2].ends_with(" to be freed"), "{told}");

    let (code, told) = prune(&[]);
    assert!(code == Some(0) && told.contains(&format!("removed {} (", name(1))), "{told}");
    let there: Vec<_> = (0..5).filter(|number| is_there(&name(*number))).collect();
    assert_eq!((there, is_there(&foreign)), (vec![2, 3, 4], true), "{told}");
    let (code, told) = prune(&[]);
    assert!(code == Some(0) && told.starts_with("0 images, "), "{told}");
}
