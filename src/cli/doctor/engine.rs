//! Does a container engine answer, what can it do, and does it have the image?

use super::Surroundings;
use super::report::Report;
use super::runc;
use crate::sandbox::docker::{self, Facts};
use crate::sandbox::image::default_tag;

pub(super) async fn check(around: &Surroundings) -> Report {
    let host = around.loaded.settings.docker.host.as_deref();
    let facts = match docker::facts(host).await {
        Ok(facts) => facts,
        Err(why) => {
            let from = around.loaded.origin("docker.host");
            let address = match host {
                Some(host) => format!("the address {host} comes from {from}"),
                None => "no address is set, so the usual places were tried".to_owned(),
            };
            return Report::problem(why.to_string(), format!("{address}; cells without code work meanwhile"));
        }
    };
    let mut report = Report::default();
    let kind = if facts.rootless { "rootless" } else { "as root" };
    report.add_good(format!("{} runs {kind} at {}, API {}", facts.name, facts.address, facts.api));
    limits(&mut report, &facts);
    runtime(&mut report, &facts);
    image(&mut report, around, host).await;
    report
}

/// Limits and defences that the engine can't give.
fn limits(report: &mut Report, facts: &Facts) {
    let lacking: Vec<&str> = [
        ("memory", facts.memory),
        ("swap", facts.swap),
        ("CPU time", facts.cpu),
        ("the number of processes", facts.pids),
    ]
    .into_iter()
    .filter(|(_, there)| !there)
    .map(|(name, _)| name)
    .collect();
    if !lacking.is_empty() {
        report.add_warning(
            format!("the engine can't limit {}", lacking.join(", ")),
            "enable these control groups for the engine (rootless: `Delegate=` of the user's systemd slice; swap: \
             boot with `swapaccount=1`)",
        );
    }
    if !facts.seccomp {
        report.add_warning(
            "the engine filters no system calls: its seccomp profile is off",
            "remove `seccomp-profile: unconfined` from the engine's configuration",
        );
    }
}

/// Known holes of the runtime.
fn runtime(report: &mut Report, facts: &Facts) {
    let Some(version) = &facts.runc else { return };
    match runc::holes(version) {
        Some(holes) if holes.is_empty() => report.add_good(format!("runc {version}")),
        Some(holes) => report.add_warning(
            format!("runc {version} may let code out of the container: {}", holes.join(", ")),
            "update runc to 1.2.8, 1.3.3 or later, unless your distribution's package lists these as fixed (it keeps \
             the old number); or use another runtime, such as gVisor (sandbox.runtime = runsc)",
        ),
        None => {}
    }
}

/// Whether the image that kernels would use is there.
async fn image(report: &mut Report, around: &Surroundings, host: Option<&str>) {
    let settings = &around.loaded.settings.sandbox;
    let own = default_tag();
    let wanted: Vec<&str> = match &settings.image {
        Some(image) => vec![image],
        None => settings.built_image.as_deref().into_iter().chain([own.as_str()]).collect(),
    };
    for reference in &wanted {
        match docker::has_image(host, reference).await {
            Ok(true) => return report.add_good(format!("the image {reference} is there")),
            Ok(false) => {}
            Err(why) => return report.add_problem(why.to_string(), "see the engine's log"),
        }
    }
    let wanted = wanted.first().copied().unwrap_or_default();
    if settings.image.is_some() {
        report.add_warning(
            format!("the image {wanted} is not there: the first cell pulls it"),
            format!("`docker pull {wanted}`"),
        );
    } else {
        report.add_warning(
            format!(
                "the image {wanted} is not there: the first cell builds it, which takes a minute or more"
            ),
            "`cellblock build`",
        );
    }
}
