//! Packages for a session, and images made anew: the session moves to a container of another image.
//!
//! May import `event`. Whoever calls has asked the user already: an install has a network and changes the image.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::event::{Event, EventSender, Failure, Notice};

use super::backend::BackendError;
use super::checkpoint::{carry_in, carry_out};
use super::definition::{Definition, Mode};
use super::facade::Sandbox;
use super::packages::Packages;
use super::session::State;

/// What an install did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Installed {
    /// The engine's id of the image that runs from now on.
    pub image: String,
    /// What was kept of the session and what was not, in a sentence.
    pub kept: String,
}

impl Sandbox {
    /// Adds packages to a container (`None`: the one chosen by [`Sandbox::choose`], else the default), on top of what
    /// it runs now. Its session goes on in a container of the new image.
    ///
    /// # Errors
    /// When there is no such container, the packages can't be installed (with what to do), or `cancel` fires; then
    /// everything is as before.
    pub async fn install(
        &self,
        container: Option<&str>,
        packages: &Packages,
        events: &EventSender,
        cancel: CancellationToken,
    ) -> Result<Installed, Failure> {
        let definition = self.named(container)?;
        self.add(&definition, packages, events, &cancel).await
    }

    /// The container that magics are about: the one chosen by [`Sandbox::choose`], else the default.
    pub fn current_name(&self) -> String {
        self.pool.chosen().unwrap_or_else(|| self.registry.settings.default.clone())
    }

    /// Whether a container has all of these packages already, by its definition or because they were added.
    pub fn has(&self, container: &str, packages: &Packages) -> bool {
        let mut known = self.pool.added(container);
        if let Some(definition) = self.registry.find(container) {
            known.join(&definition.packages);
        }
        packages.iter().all(|package| known.has(package))
    }

    /// Makes a container's image again from its definition, from the first step. What was installed on top is gone,
    /// and its next block starts a fresh container. Returns what to tell the user.
    ///
    /// # Errors
    /// When there is no such container, its image can't be made, or `cancel` fires.
    pub async fn rebuild(
        &self,
        name: Option<&str>,
        events: &EventSender,
        cancel: CancellationToken,
    ) -> Result<String, Failure> {
        let definition = self.named(name)?;
        let work = self.backend.make(Arc::clone(&definition), true, Some(events.clone()));
        let image = finished(work, &cancel, "the build").await?;
        let name = &definition.name;
        let added = self.pool.added(name);
        let lost = self.pool.existing(name).is_some_and(|slot| slot.state() != State::Cold);
        self.pool.set_image(name, None);
        self.pool.renew(name);
        let gone = if added.is_empty() {
            String::new()
        } else {
            format!(" {added} are gone from it: install them again, or name them in the registry.")
        };
        let lost = if lost {
            " Its variables and the files in /tmp are lost; /workspace and /session are kept."
        } else {
            ""
        };
        Ok(format!("The image of the container {name} was made again ({}).{gone}{lost}", short(&image)))
    }

    /// Sees to it that a container has the packages that a block asks for, and says what that changed.
    pub(super) async fn with_packages(
        &self,
        definition: &Arc<Definition>,
        packages: &Packages,
        events: &EventSender,
        cancel: &CancellationToken,
    ) -> Result<(), Failure> {
        if packages.is_empty() {
            return Ok(());
        }
        // Limits that a block tightens are its own; the image is that of the container as it was defined.
        let own = self.registry.find(&definition.name).unwrap_or(definition);
        let before = self.pool.image(&own.name);
        let installed = self.add(own, packages, events, cancel).await?;
        if before.as_ref() != Some(&installed.image) && own.mode == Mode::Session {
            let text = format!("Installed {packages} in the container {}. {}", own.name, installed.kept);
            let _ = events.send(Event::Notice(Notice::info(text))).await;
        }
        Ok(())
    }

    async fn add(
        &self,
        definition: &Arc<Definition>,
        packages: &Packages,
        events: &EventSender,
        cancel: &CancellationToken,
    ) -> Result<Installed, Failure> {
        let name = &definition.name;
        let base = self.pool.image(name);
        let mut added = self.pool.added(name);
        let mut known = added.clone();
        known.join(&definition.packages);
        if let Some(image) = base.as_ref().filter(|_| packages.iter().all(|package| known.has(package))) {
            let kept = "It was there already: nothing changed.".to_owned();
            return Ok(Installed { image: image.clone(), kept });
        }
        let work = self.backend.derive(Arc::clone(definition), base, packages.clone(), Some(events.clone()));
        let image = finished(work, cancel, "the install").await?;
        let kept = self.go_on(definition, &image, events, cancel).await?;
        added.join(packages);
        self.pool.note_added(name, &added);
        Ok(Installed { image, kept })
    }

    /// From now on the container runs that image; what its session holds goes along.
    async fn go_on(
        &self,
        definition: &Arc<Definition>,
        image: &str,
        events: &EventSender,
        cancel: &CancellationToken,
    ) -> Result<String, Failure> {
        let name = &definition.name;
        let carried = match self.pool.existing(name) {
            Some(slot) => {
                let _busy = slot.busy();
                carry_out(&slot, events, cancel).await
            }
            None => Ok(None),
        };
        if cancel.is_cancelled() {
            return Err(Failure::new("KeyboardInterrupt", "the install was interrupted; nothing changed"));
        }
        self.pool.set_image(name, Some(image.to_owned()));
        self.pool.renew(name);
        let brought = match carried {
            Ok(None) => return Ok("Nothing was lost.".to_owned()),
            Ok(Some(carried)) => {
                let slot = self.pool.slot(definition);
                let _busy = slot.busy();
                carry_in(&slot, &carried, events, cancel).await.map(|mut inventory| {
                    inventory.lost.splice(0..0, carried.inventory.lost.clone());
                    inventory
                })
            }
            Err(failure) => Err(failure),
        };
        Ok(match brought {
            Ok(inventory) => {
                format!("The session goes on in a container of the new image, with {}", inventory.words())
            }
            Err(failure) => format!(
                "The session goes on in a fresh container: Python's variables and imports and the files in /tmp are \
                 lost ({}); /workspace and /session are kept.",
                failure.evalue
            ),
        })
    }

    /// The container of that name, else the one chosen, else the default; one that may be used.
    fn named(&self, name: Option<&str>) -> Result<Arc<Definition>, Failure> {
        let chosen = self.pool.chosen();
        let name = name.or(chosen.as_deref()).unwrap_or(&self.registry.settings.default);
        let definition =
            self.definition(name).map_err(|error| Failure::new("SandboxError", error.to_string()))?;
        match &definition.refused {
            Some(why) => {
                Err(Failure::new("SandboxError", format!("the container {name} can't be used: {why}")))
            }
            None => Ok(Arc::clone(definition)),
        }
    }
}

/// Work to its end, or to its interruption.
async fn finished(
    work: impl Future<Output = Result<String, BackendError>>,
    cancel: &CancellationToken,
    what: &str,
) -> Result<String, Failure> {
    tokio::select! {
        done = work => done.map_err(|error| Failure::new("InstallError", error.to_string())),
        () = cancel.cancelled() => {
            Err(Failure::new("KeyboardInterrupt", format!("{what} was interrupted; nothing changed")))
        }
    }
}

/// An image's id as people read it.
fn short(id: &str) -> &str {
    let id = id.strip_prefix("sha256:").unwrap_or(id);
    id.get(..12).unwrap_or(id)
}
