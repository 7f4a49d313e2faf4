//! Settings and environment in the terms of the parts that need them.

use std::path::Path;

use crate::chat::ProviderEnvironment;
use crate::config::{Environment, Settings};
use crate::sandbox::docker;
use crate::sandbox::reaper::Program;

/// Keys, addresses and folders for models.
pub(crate) fn providers(settings: &Settings, environment: &Environment) -> ProviderEnvironment {
    let mut providers = ProviderEnvironment::read(|name| environment.lookup(name));
    if let Some(dir) = &settings.model.local_dir {
        providers.local_model = Some(dir.clone());
    }
    providers
}

/// What the container backend needs.
pub(crate) fn docker(
    settings: &Settings,
    environment: &Environment,
    directory: &Path,
) -> std::io::Result<docker::Options> {
    Ok(docker::Options {
        settings: settings.sandbox.clone(),
        directory: directory.to_owned(),
        host: settings.docker.host.clone(),
        recorded_image: settings.sandbox.built_image.clone(),
        authorities: environment.certificates(),
        proxies: environment.proxies(),
        reaper: Program::this()?,
        temporary: Vec::new(),
    })
}
