//! Packages added to an image, with the real engine and the real indices.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use cellblock::event::{Event, channel};
use cellblock::sandbox::backend::{Backend, BackendError};
use cellblock::sandbox::packages::{Manager, Packages};
use tokio::io::AsyncReadExt;
use tokio_util::sync::CancellationToken;

use crate::containers::{Bench, PATIENCE, derive, docker, image, said};
use crate::session::Bed;

fn packages(names: &[(Manager, &str)]) -> Packages {
    let mut packages = Packages::default();
    for (manager, name) in names {
        packages.add(*manager, name).unwrap();
    }
    packages
}

fn pip(name: &str) -> Packages {
    packages(&[(Manager::Pip, name)])
}

async fn add(bench: &Bench, base: Option<&str>, packages: Packages) -> Result<String, BackendError> {
    let base = base.map(str::to_owned);
    bench.docker.derive(bench.definition.clone(), base, packages, None).await
}

/// What a program prints in a container of that image.
async fn python_on(bench: &Bench, image: &str, code: &str) -> String {
    let mut plan = bench.plan(&["python3", "-c", code]);
    plan.image = Some(image.to_owned());
    let mut started = bench.docker.start(plan, None, CancellationToken::new()).await.unwrap();
    assert_eq!(started.image, image);
    let mut out = String::new();
    tokio::time::timeout(PATIENCE, started.output.read_to_string(&mut out)).await.expect("an end").unwrap();
    out += &started.container.last_words();
    started.container.destroy().await;
    out.trim().to_owned()
}

const IMPORT: &str = "
import importlib.util
print(*[n for n in ('six', 'colorama', 'docopt') if importlib.util.find_spec(n)])";

#[tokio::test(flavor = "multi_thread")]
async fn packages_become_layers_that_are_made_once_and_add_up() {
    let bench = Bench::new();
    let own = bench.docker.make(bench.definition.clone(), false, None).await.unwrap();
    let (told, mut events) = channel(1000);
    let first =
        bench.docker.derive(bench.definition.clone(), None, pip("colorama"), Some(told)).await.unwrap();
    let mut lines = Vec::new();
    while let Some(event) = events.recv().await {
        if let Event::Notice(notice) = event {
            lines.push(notice.text);
        }
    }
    assert!(python_on(&bench, &first, IMPORT).await.contains("colorama"));
    // A name that is the same in other words, over another bench: found, not made.
    let (told, mut events) = channel(1000);
    let other = Bench::new();
    let again = other.docker.derive(other.definition.clone(), Some(own), pip("colorama"), Some(told)).await;
    assert_eq!(again.unwrap(), first);
    assert!(events.recv().await.is_none(), "it was made again");
    let second = add(&bench, Some(&first), pip("docopt-ng")).await.unwrap();
    let seen = python_on(&bench, &second, IMPORT).await;
    for image in [second, first] {
        docker(&["rmi", &image]);
    }
    assert!(seen.contains("colorama") && seen.contains("docopt"), "{seen}");
    assert!(lines.iter().any(|l| l.contains("Installing colorama: Collecting")), "{lines:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn only_wheels_are_taken_so_that_an_install_runs_no_code_of_the_package() {
    let error = add(&Bench::new(), None, pip("docopt==0.6.2")).await.unwrap_err().to_string();
    assert!(error.contains("docopt==0.6.2 can't be installed") && error.contains("Only wheels"), "{error}");
    assert!(error.contains("No matching distribution"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_does_not_choose_where_packages_come_from() {
    let name = "cellblock-test-docker:other-index";
    derive(
        name,
        "ENV PIP_INDEX_URL=http://127.0.0.1:9/env PIP_NO_BINARY=:all: PIP_TARGET=/elsewhere PYTHONPATH=/evil\n\
         RUN mkdir /evil && echo 'raise SystemExit(\"evil\")' > /evil/pip.py\n\
         RUN printf '[global]\\nindex-url = http://127.0.0.1:9/file\\nno-index = true\\n' > /etc/pip.conf",
    );
    let entry = ["run", "--rm", "--network", "none", "--entrypoint", "python3"];
    let ask = |arguments: &[&str]| said(&[&entry[..], &[name], arguments].concat());
    let configured = ask(&["-I", "-m", "pip", "config", "list"]);
    assert!(
        configured.contains("127.0.0.1:9/file") && configured.contains("127.0.0.1:9/env"),
        "{configured}"
    );
    let bench = Bench::of(|definition| definition.limits.image = Some(name.to_owned()));
    let made = add(&bench, None, pip("colorama")).await;
    let seen = match &made {
        Ok(image) => python_on(&bench, image, IMPORT).await,
        Err(error) => error.to_string(),
    };
    docker(&["rmi", made.as_deref().unwrap_or("none")]);
    docker(&["rmi", name]);
    assert!(seen.contains("colorama"), "{seen}");
}

#[tokio::test(flavor = "multi_thread")]
async fn debian_packages_come_without_privileges() {
    let bench = Bench::new();
    let image = add(&bench, None, packages(&[(Manager::Apt, "sudo")])).await.unwrap();
    let code = "
import os
print(oct(os.stat('/usr/bin/sudo').st_mode), os.listdir('/var/lib/apt/lists'))";
    let seen = python_on(&bench, &image, code).await;
    docker(&["rmi", &image]);
    assert_eq!(seen.split(' ').next(), Some("0o100755"), "{seen}");
    assert!(!seen.contains("debian"), "{seen}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_can_not_be_installed_says_why_and_what_to_do() {
    let bench = Bench::new();
    for (manager, name, words) in [
        (Manager::Pip, "cellblock-there-is-no-such-package", "name and the version"),
        (Manager::Apt, "cellblock-there-is-no-such-package", "Unable to locate package"),
        (Manager::Npm, "left-pad", "has no npm"),
    ] {
        let error = add(&bench, None, packages(&[(manager, name)])).await.unwrap_err();
        assert!(matches!(error, BackendError::Image(_)), "{error}");
        assert!(error.to_string().contains(words) && error.to_string().contains("What to do"), "{error}");
    }
    let gone = add(&bench, Some("sha256:0123456789abcdef"), pip("six")).await.unwrap_err().to_string();
    assert!(gone.contains("the `rebuild` magic"), "{gone}");
    assert!(!image().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_goes_on_with_its_variables_in_an_image_with_the_packages() {
    let bed = Bed::new();
    bed.python("x = 41").await;
    let (sender, mut events) = channel(1000);
    let drain = tokio::spawn(async move { while events.recv().await.is_some() {} });
    let cancel = CancellationToken::new();
    let first = bed.sandbox.install(None, &pip("colorama"), &sender, cancel.clone()).await.unwrap();
    let ran = bed.python("import colorama; print(x + 1)").await;
    let again = bed.sandbox.install(None, &pip("colorama"), &sender, cancel.clone()).await.unwrap();
    let refused =
        bed.sandbox.install(None, &pip("docopt==0.6.2"), &sender, cancel.clone()).await.unwrap_err();
    let after = bed.python("print(x + 2)").await;
    cancel.cancel();
    let stopped = bed.sandbox.install(None, &pip("docopt-ng"), &sender, cancel).await.unwrap_err();
    bed.sandbox.shutdown().await;
    let kept = docker(&["image", "inspect", &first.image]).status.success();
    docker(&["rmi", &first.image]);
    drop(sender);
    drain.await.unwrap();
    assert_eq!(ran.out().trim(), "42", "{:?} {}", ran.end.failure, first.kept);
    assert_eq!(ran.end.image, first.image);
    assert!(first.kept.contains("1 variable"), "{}", first.kept);
    assert_eq!(again.image, first.image, "{}", again.kept);
    assert!(refused.evalue.contains("wheels"), "{refused:?}");
    assert_eq!(after.out().trim(), "43", "a failed install changes nothing");
    assert_eq!(stopped.ename, "KeyboardInterrupt");
    assert!(kept, "an image with packages outlives its kernel");
}
