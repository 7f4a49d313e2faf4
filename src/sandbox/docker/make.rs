//! The image of a definition: found, pulled or built, with its packages on top.
//!
//! What is made is named after what it is made of, so that whoever wants the same finds it. Only one builds it:
//! kernels lock a file with its name and look again when they have the lock.

use std::fs::File;
use std::path::PathBuf;
use std::time::Duration;

use rustix::fs::FlockOperation;
use sha2::{Digest, Sha256};
use tokio::sync::watch;

use super::images::{Broken, Known, Order};
use super::{Inner, Ready};
use crate::event::{DisplayId, Event, EventSender, Notice, terminal};
use crate::sandbox::backend::BackendError;
use crate::sandbox::definition::{Build, Definition, Source};
use crate::sandbox::image::{
    self, BuildOptions, DEBIAN_BASE, ImageError, OnProgress, Progress, Recipe, base_argument, hexadecimal,
    layer,
};

/// How often a line of progress is updated.
const PACE: Duration = Duration::from_millis(250);
/// How often a kernel that waits for another's build looks.
const LOOK: Duration = Duration::from_millis(200);

impl Inner {
    /// The image to run: `chosen` (an id), or the definition's own, made when it is missing.
    pub(super) async fn image(
        &self,
        ready: &Ready,
        definition: &Definition,
        chosen: Option<&str>,
        progress: Option<EventSender>,
    ) -> Result<Known, BackendError> {
        let image = match chosen {
            Some(id) => known(ready, id).await?,
            None => self.make(ready, definition, false, progress).await?,
        };
        self.used(&image.id);
        Ok(image)
    }

    /// Ids of the images that a definition would run now, as far as they are there, and of what they are made on.
    pub(super) async fn needs(
        &self,
        ready: &Ready,
        definition: &Definition,
    ) -> Result<Vec<String>, BackendError> {
        let settings = &definition.limits;
        let mut names: Vec<String> = match &definition.source {
            Source::Builtin(name) => image::recipe(name).map(Recipe::tag).into_iter().collect(),
            Source::Image(reference) => vec![reference.clone()],
            Source::Build(build) => {
                let context = self.context(build, false).await?;
                let bases = Self::bases(definition, build, &context.text).into_iter();
                bases.map(|base| tag(definition, build, &context.hash, base.as_deref())).collect()
            }
        };
        let set = [&settings.image, &settings.built_image, &settings.base_image];
        names.extend(set.into_iter().flatten().cloned());
        let mut ids = Vec::new();
        for name in names {
            let Some(found) = ready.engine.image(&name).await? else { continue };
            if !definition.packages.is_empty() {
                let layer = format!("{}:{}", layer::NAME, layer::tag(&found.id, &definition.packages));
                ids.extend(ready.engine.image(&layer).await?.map(|layer| layer.id));
            }
            ids.push(found.id);
        }
        Ok(ids)
    }

    /// The definition's own image, made when it is missing, or anew.
    pub(super) async fn make(
        &self,
        ready: &Ready,
        definition: &Definition,
        fresh: bool,
        progress: Option<EventSender>,
    ) -> Result<Known, BackendError> {
        let told = |state: &Progress| format!("Getting the sandbox image ready: {state}");
        let (mut line, relayed) = line(progress.clone(), told);
        // The line goes with the work, and its end is the end of the line of progress.
        let work = async move {
            match &definition.source {
                Source::Builtin(name) => {
                    let recipe = image::recipe(name).ok_or_else(|| {
                        let why = format!(
                            "this program has no built-in image {name}; name an image or a Dockerfile"
                        );
                        BackendError::Image(why)
                    })?;
                    self.builtin(ready, definition, recipe, fresh, &mut line).await
                }
                Source::Image(reference) => self.named(ready, reference, fresh, &mut line).await,
                Source::Build(build) => self.own(ready, definition, build, fresh, &mut line).await,
            }
        };
        let (image, ()) = tokio::join!(work, relayed);
        let image = image?;
        if definition.packages.is_empty() {
            return Ok(image);
        }
        self.derive(ready, definition, &image.id, &definition.packages, fresh, progress).await
    }

    async fn builtin(
        &self,
        ready: &Ready,
        definition: &Definition,
        recipe: &'static Recipe,
        fresh: bool,
        on_progress: OnProgress<'_>,
    ) -> Result<Known, BackendError> {
        let settings = &definition.limits;
        // The settings speak of the usual image.
        let usual = recipe.tag() == image::default_tag();
        let set = settings.image.as_ref().filter(|_| usual);
        if let Some(reference) = set {
            return self.named(ready, reference, fresh, on_progress).await;
        }
        let own = recipe.tag();
        let recorded = settings.built_image.as_ref().filter(|_| usual);
        let look = async || {
            // The record only says what was built, and may be out of date.
            for reference in recorded.into_iter().chain([&own]) {
                if let Some(image) = ready.engine.image(reference).await? {
                    return Ok(Some(image));
                }
            }
            Ok::<_, BackendError>(None)
        };
        if let Some(found) = look().await?.filter(|_| !fresh) {
            return Ok(found);
        }
        let tag = recorded.filter(|_| fresh).unwrap_or(&own);
        let _lock = self.lock(tag, on_progress).await;
        if let Some(found) = look().await?.filter(|_| !fresh) {
            return Ok(found);
        }
        let options = BuildOptions {
            host: self.options.host.clone(),
            base: settings.base_image.clone(),
            tag: Some(tag.clone()),
            authorities: self.options.authorities.clone(),
            proxies: self.options.proxies.clone(),
            fresh,
        };
        let built = ready.engine.build(recipe, &options, on_progress).await.map_err(|e| unmade(&e))?;
        known(ready, &built.id).await
    }

    /// An image that the engine has or can pull; `fresh`: pulled again, when that is possible.
    async fn named(
        &self,
        ready: &Ready,
        reference: &str,
        fresh: bool,
        on_progress: OnProgress<'_>,
    ) -> Result<Known, BackendError> {
        let found = ready.engine.image(reference).await?;
        if let Some(found) = found.filter(|_| !fresh) {
            return Ok(found);
        }
        let _lock = self.lock(reference, on_progress).await;
        let pulled = ready.engine.pull(reference, on_progress).await;
        match (pulled, ready.engine.image(reference).await?) {
            (_, Some(found)) => Ok(found),
            (Err(error), None) => Err(unmade(&error)),
            (Ok(()), None) => known(ready, reference).await,
        }
    }

    /// An image from a Dockerfile of the user's.
    async fn own(
        &self,
        ready: &Ready,
        definition: &Definition,
        build: &Build,
        fresh: bool,
        on_progress: OnProgress<'_>,
    ) -> Result<Known, BackendError> {
        self.out_of_reach(definition, &build.context)?;
        let engine = &ready.engine;
        let context = self.context(build, false).await?;
        let asked = asked(build, &context.text);
        let wanted = definition.limits.base_image.as_deref();
        let usual = usual(asked);
        let will_do = will_do(&usual);
        if !fresh {
            for base in Self::bases(definition, build, &context.text) {
                let tag = tag(definition, build, &context.hash, base.as_deref());
                if let Some(found) = engine.image(&tag).await? {
                    return Ok(found);
                }
            }
        }
        let base = match asked {
            Some(_) => Some(engine.base(wanted, &usual, will_do, on_progress).await.map_err(|e| unmade(&e))?),
            None => None,
        };
        // Read again, into the archive this time: the name must be that of what is sent.
        let context = self.context(build, true).await?;
        let tag = tag(definition, build, &context.hash, base.as_deref());
        let _lock = self.lock(&tag, on_progress).await;
        if let Some(found) = engine.image(&tag).await?.filter(|_| !fresh) {
            return Ok(found);
        }
        let mut arguments = self.options.proxies.clone();
        arguments.extend(base.clone().map(|base| ("BASE".to_owned(), base)));
        arguments.extend(build.arguments.iter().cloned());
        let order = Order {
            tag: &tag,
            context: context.archive,
            dockerfile: &context.dockerfile,
            arguments,
            target: build.target.as_deref().unwrap_or_default(),
            labels: vec![("cellblock.image", "own"), ("cellblock.container", &definition.name)],
            fresh,
        };
        engine.make(order, on_progress).await.map_err(|Broken { why, tail }| {
            unmade(&ImageError::Own { container: definition.name.clone(), why, tail })
        })?;
        known(ready, &tag).await
    }

    /// The bases that an image from a Dockerfile may have been built on, the best first.
    fn bases(definition: &Definition, build: &Build, dockerfile: &str) -> Vec<Option<String>> {
        let asked = asked(build, dockerfile);
        let usual = usual(asked);
        match (asked, &definition.limits.base_image) {
            (None, _) => vec![None],
            (Some(_), Some(wanted)) => vec![Some(wanted.clone())],
            (Some(_), None) if will_do(&usual) => vec![Some(usual), Some(DEBIAN_BASE.to_owned())],
            (Some(_), None) => vec![Some(usual)],
        }
    }

    async fn context(&self, build: &Build, pack: bool) -> Result<image::Context, BackendError> {
        let (folder, authorities) = (build.clone(), self.options.authorities.clone());
        let read = move || image::folder(&folder, authorities.as_deref(), pack);
        let read = tokio::task::spawn_blocking(read).await;
        let context = read.map_err(|e| BackendError::Image(e.to_string()))?.map_err(|e| unmade(&e))?;
        if build.seal.is_some_and(|seal| seal != context.hash) {
            return Err(BackendError::Image(format!(
                "{} has changed since this kernel started, and is not what you trusted: look at what changed, run \
                 `cellblock trust`, and restart the kernel",
                build.context.display()
            )));
        }
        Ok(context)
    }

    /// Locks the name of an image while it is made; waits for whoever makes it now. `None` where there is no place for
    /// locks: then two may make the same, which costs time alone.
    pub(super) async fn lock(&self, name: &str, on_progress: OnProgress<'_>) -> Option<File> {
        let folder = self.options.state.as_ref()?.join("images");
        let path: PathBuf = folder.join(hexadecimal(&Sha256::digest(name)));
        let open = || {
            std::fs::create_dir_all(&folder)?;
            File::options().create(true).truncate(false).write(true).open(&path)
        };
        let file = open().inspect_err(|error| tracing::debug!(%error, "no lock for building")).ok()?;
        let mut told = false;
        loop {
            match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Some(file),
                Err(rustix::io::Errno::WOULDBLOCK) => {}
                Err(_) => return None,
            }
            if !std::mem::replace(&mut told, true) {
                on_progress(&Progress { step: None, line: format!("waiting: {name} is being made already") });
            }
            tokio::time::sleep(LOOK).await;
        }
    }
}

/// The base that a Dockerfile leaves open, unless the definition says it.
fn asked<'a>(build: &Build, dockerfile: &'a str) -> Option<&'a str> {
    base_argument(dockerfile).filter(|_| build.arguments.iter().all(|(name, _)| name != "BASE"))
}

/// The base that is meant, or that of our own images.
fn usual(asked: Option<&str>) -> String {
    let own = || image::recipe("python").map(|recipe| recipe.usual_base().to_owned());
    asked.filter(|base| !base.is_empty()).map(str::to_owned).or_else(own).unwrap_or_default()
}

/// In place of a plain Python or Debian the base made from Debian's packages will do; not of anything else.
fn will_do(usual: &str) -> bool {
    ["python:", "debian:"].iter().any(|name| usual.starts_with(name))
}

/// `cellblock-NAME:` and a hash of all that the image is made of.
fn tag(definition: &Definition, build: &Build, context: &[u8], base: Option<&str>) -> String {
    let mut hash = Sha256::new();
    hash.update(context);
    let dockerfile = build.dockerfile.strip_prefix(&build.context).unwrap_or(&build.dockerfile);
    let mut part = |text: &str| {
        hash.update((text.len() as u64).to_le_bytes());
        hash.update(text);
    };
    part(&dockerfile.to_string_lossy());
    part(build.target.as_deref().unwrap_or_default());
    part(base.unwrap_or_default());
    for (name, value) in &build.arguments {
        part(name);
        part(value);
    }
    format!("cellblock-{}:{}", slug(&definition.name), hexadecimal(&hash.finalize()))
}

/// A definition's name as a part of an image's: lower case, and no two separators in a row.
fn slug(name: &str) -> String {
    let mut slug = String::new();
    for c in name.chars() {
        if c.is_ascii_alphanumeric() {
            slug.push(c.to_ascii_lowercase());
        } else if !slug.is_empty() && !slug.ends_with('-') {
            slug.push('-');
        }
    }
    let slug = slug.trim_end_matches('-');
    if slug.is_empty() { "container".to_owned() } else { slug.to_owned() }
}

pub(super) async fn known(ready: &Ready, reference: &str) -> Result<Known, BackendError> {
    ready.engine.image(reference).await?.ok_or_else(|| {
        BackendError::Image(format!(
            "the image {reference} is gone from the engine: the `rebuild` magic makes the container's image again from its \
             definition; what was installed on top of it has to be installed again"
        ))
    })
}

pub(super) fn unmade(error: &ImageError) -> BackendError {
    BackendError::Image(error.to_string())
}

/// A line of progress for something that takes long: where its states go, and what shows the last one meanwhile.
pub(super) fn line(
    progress: Option<EventSender>,
    told: impl Fn(&Progress) -> String + Send,
) -> (impl FnMut(&Progress) + Send, impl Future<Output = ()> + Send) {
    let (say, said) = watch::channel(String::new());
    let say = move |state: &Progress| drop(say.send_replace(terminal::filtered(&told(state))));
    (say, relay(said, progress))
}

/// Shows the last state of a piece of work at a bounded pace until the work is done, then takes the line away.
async fn relay(mut said: watch::Receiver<String>, progress: Option<EventSender>) {
    let Some(progress) = progress else { return };
    let id = DisplayId::host();
    let mut shown = false;
    while said.changed().await.is_ok() {
        let text = said.borrow_and_update().clone();
        // Nobody looks any more: the work goes on, for the next cell.
        shown |= progress.send(Event::Notice(Notice::progress(&id, text))).await.is_ok();
        tokio::time::sleep(PACE).await;
    }
    if shown {
        let _ = progress.send(Event::Notice(Notice::progress(&id, ""))).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_name_of_a_container_becomes_one_of_an_image() {
        for (name, expected) in
            [("science", "science"), ("My_Lab..2", "my-lab-2"), ("-x-", "x"), ("...", "container")]
        {
            assert_eq!(slug(name), expected);
        }
    }
}
