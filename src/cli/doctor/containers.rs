//! Which containers are there, what is wrong with their registries, what waits for trust, whose image is missing.

use super::Surroundings;
use super::report::Report;
use crate::sandbox::definition::{Definition, Source};
use crate::sandbox::docker;

pub(super) async fn check(around: &Surroundings) -> Report {
    let registry = &around.registry;
    let mut report = Report::default();
    for error in &registry.errors {
        report.add_problem(error, "correct it; until then every cell fails with this message");
    }
    for warning in &registry.warnings {
        report.add_warning(warning, "nothing to do if you don't want it");
    }
    if !registry.errors.is_empty() {
        return report;
    }
    let names: Vec<_> = registry.containers().iter().map(|container| container.name.as_str()).collect();
    let files: Vec<_> = registry.files.iter().map(|file| file.display().to_string()).collect();
    let files = if files.is_empty() { "no registry".to_owned() } else { files.join(", ") };
    report.add_good(format!("{}; {files}", names.join(", ")));
    if around.trust.given() && !registry.asks.is_empty() {
        report.add_good(format!("the project is {}", around.trust));
    }
    for container in registry.containers() {
        let waits = container.withheld.len() + usize::from(container.refused.is_some());
        if waits > 0 {
            let what =
                container.refused.iter().chain(&container.withheld).cloned().collect::<Vec<_>>().join("\n");
            report
                .add_warning(format!("{} waits for your trust: {what}", container.name), "`cellblock trust`");
        } else {
            image(&mut report, around, container).await;
        }
    }
    report
}

/// Whether an image that is named is there. What is built is looked for when it is needed.
async fn image(report: &mut Report, around: &Surroundings, container: &Definition) {
    let Source::Image(reference) = &container.source else { return };
    let host = around.loaded.settings.docker.host.as_deref();
    // An engine that does not answer is told of by a check of its own.
    if let Ok(false) = docker::has_image(host, reference).await {
        report.add_warning(
            format!("the image {reference} of {} is not there: its first block pulls it", container.name),
            format!("`cellblock build {}`", container.name),
        );
    }
}
