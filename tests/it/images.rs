//! Building the sandbox image with the real engine.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use cellblock::sandbox::image::{self, BuildOptions, ImageError, Progress};

use crate::containers::{Bench, docker, said};

/// What the tests' own image was built on; building on it again finds every step done.
fn base() -> Option<String> {
    let label = "{{index .Config.Labels \"cellblock.base\"}}";
    let base = said(&["image", "inspect", "--format", label, &crate::containers::image()]);
    Some(base).filter(|base| !base.is_empty() && base != "<no value>")
}

#[tokio::test(flavor = "multi_thread")]
async fn the_image_is_built_with_visible_steps_and_has_what_notebooks_need() {
    let tag = "cellblock-test-docker:built";
    let options = BuildOptions { base: base(), tag: Some(tag.into()), ..BuildOptions::default() };
    let mut steps = Vec::new();
    let mut progress = |state: &Progress| steps.extend(state.step);
    let built = image::build(&options, &mut progress).await.unwrap();
    assert_eq!(built.reference, tag);
    assert!(steps.is_sorted() && steps.len() > 5, "{steps:?}");
    assert_eq!(built.id, said(&["image", "inspect", "--format", "{{.Id}}", tag]));
    let bench = Bench::of(|definition| definition.limits.image = Some(tag.to_owned()));
    let code = "
import sys, shutil, IPython, numpy, pandas, matplotlib, sqlite_utils
print(shutil.which('python3'), sys.prefix, shutil.which('sh') is not None)";
    let ran = bench.python(code, |_| ()).await;
    let plot = "
import os, shutil, subprocess, sys
shutil.copytree('/opt/cellblock/skel', os.environ['HOME'], dirs_exist_ok=True)
code = 'import logging; logging.basicConfig(level=20); import matplotlib.pyplot'
print('font' in subprocess.run([sys.executable, '-c', code], capture_output=True, text=True).stderr)";
    let fonts = bench.python(plot, |_| ()).await;
    docker(&["rmi", tag]);
    assert_eq!(ran.out, "/opt/cellblock/venv/bin/python3 /opt/cellblock/venv True", "{ran:?}");
    assert_eq!(fonts.out, "False", "the list of fonts is made anew: {fonts:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn authorities_of_the_host_are_trusted_inside_besides_the_bases_own() {
    let count = "print(open('/etc/ssl/certs/ca-certificates.crt').read().count('BEGIN CERTIFICATE') > 50)";
    assert_eq!(Bench::new().python(count, |_| ()).await.out, "True");
    let load = "import ssl; print(len(ssl.create_default_context().get_ca_certs()) > 50)";
    assert_eq!(Bench::new().python(load, |_| ()).await.out, "True");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_base_that_can_not_be_had_is_named() {
    let base = "localhost:1/cellblock-test/no-base:here".to_owned();
    let options = BuildOptions { base: Some(base.clone()), ..BuildOptions::default() };
    let error = image::build(&options, &mut |_| ()).await.unwrap_err();
    assert!(matches!(error, ImageError::Pull { .. }), "{error:?}");
    assert!(error.to_string().contains(&base), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_base_that_does_not_fit_fails_with_the_last_lines() {
    let base = "cellblock-test-docker:empty";
    let dir = tempfile::tempdir().unwrap();
    let archive = dir.path().join("empty.tar");
    tar::Builder::new(std::fs::File::create(&archive).unwrap()).finish().unwrap();
    said(&["import", archive.to_str().unwrap(), base]);
    let options = BuildOptions {
        base: Some(base.into()),
        tag: Some("cellblock-test-docker:never".into()),
        ..BuildOptions::default()
    };
    let error = image::build(&options, &mut |_| ()).await.unwrap_err();
    docker(&["rmi", "-f", base]);
    let ImageError::Build { tail, .. } = &error else { panic!("{error:?}") };
    assert!(tail.contains("RUN mkdir"), "{error}");
}
