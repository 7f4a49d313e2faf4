//! Images of ours that nobody needs any more: `cellblock prune`.
//!
//! Imports `definition` and `image`. An image is ours when it has one of our labels and no name but those that we give;
//! whoever builds on one of ours inherits its labels, so a label alone says nothing.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bollard::models::ImageSummary;
use bollard::query_parameters::{
    ListContainersOptionsBuilder, ListImagesOptionsBuilder, RemoveImageOptionsBuilder,
};

use super::container::KEPT_LABEL;
use super::engine::Engine;
use super::{Docker, Inner};
use crate::sandbox::backend::BackendError;
use crate::sandbox::definition::Definition;
use crate::sandbox::owner::LABEL;

/// The label of an image's kind.
pub(super) const LABEL_IMAGE: &str = "cellblock.image";
/// The shortest hash in a name of ours.
const HASH: usize = 12;
const DAY: Duration = Duration::from_hours(24);

/// What is to go.
#[derive(Debug, Clone)]
pub struct Pruning {
    /// Images that were used later than so long ago stay.
    pub idle: Duration,
    /// Nothing is removed; what would be is told.
    pub dry_run: bool,
    /// Ids that something refers to which the engine does not know.
    pub kept: HashSet<String>,
}

/// An image that went, or would.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pruned {
    /// What it is called.
    pub name: String,
    /// What it has of its own, in bytes.
    pub bytes: u64,
    /// For how many days nobody used it.
    pub days: u64,
    /// Why it is still there.
    pub failed: Option<String>,
}

/// An image, and its layers from below.
struct Image {
    summary: ImageSummary,
    layers: Vec<String>,
}

impl Image {
    /// Whether it is made of this one and more.
    fn is_on(&self, below: &Image) -> bool {
        !below.layers.is_empty()
            && below.layers.len() < self.layers.len()
            && self.layers.starts_with(&below.layers)
    }

    fn size(&self) -> u64 {
        u64::try_from(self.summary.size).unwrap_or_default()
    }
}

impl Docker {
    /// Removes images that Cellblock made and that no container, no definition among these and nothing in
    /// [`Pruning::kept`] refers to.
    ///
    /// # Errors
    /// When the engine does not answer, or it can't be said which image a definition needs.
    pub async fn prune(
        &self,
        definitions: &[Arc<Definition>],
        order: &Pruning,
    ) -> Result<Vec<Pruned>, BackendError> {
        let ready = self.0.ready().await?;
        let engine = &ready.engine;
        let mut kept = order.kept.clone();
        for definition in definitions {
            kept.extend(self.0.needs(&ready, definition).await?);
        }
        // The containers last: one that was started meanwhile is seen.
        let images = engine.images().await?;
        kept.extend(engine.in_use().await?);
        let idle = |image: &Image| self.0.idle(&image.summary);
        let goes = |image: &&Image| {
            is_ours(&image.summary) && !kept.contains(&image.summary.id) && idle(image) >= order.idle
        };
        let mut going: Vec<&Image> = images.iter().filter(goes).collect();
        // What something that stays was built on stays as well.
        let names: HashSet<&str> = going.iter().map(|image| image.summary.id.as_str()).collect();
        let staying: Vec<&Image> =
            images.iter().filter(|image| !names.contains(image.summary.id.as_str())).collect();
        going.retain(|image| !staying.iter().any(|other| other.is_on(image)));
        // The engine removes nothing that another image was made from.
        going.sort_by_key(|image| std::cmp::Reverse(image.layers.len()));
        let mut pruned = Vec::new();
        for image in going {
            let below = images.iter().filter(|other| image.is_on(other)).map(Image::size).max();
            let mut one = Pruned {
                name: image.summary.repo_tags.join(", "),
                bytes: image.size().saturating_sub(below.unwrap_or_default()),
                days: idle(image).as_secs() / DAY.as_secs(),
                failed: None,
            };
            if !order.dry_run {
                one.failed = engine.discard_names(&image.summary).await.err().map(|error| error.to_string());
                if one.failed.is_none() {
                    self.0.forget(&image.summary.id);
                }
            }
            pruned.push(one);
        }
        Ok(pruned)
    }
}

impl Inner {
    /// Where it is written when an image was used last.
    fn record(&self, id: &str) -> Option<PathBuf> {
        let plain = id.strip_prefix("sha256:").filter(|hash| hash.chars().all(|c| c.is_ascii_hexdigit()))?;
        Some(self.options.state.as_ref()?.join("images").join(format!("used-{plain}")))
    }

    /// Writes down that an image is used now.
    pub(super) fn used(&self, id: &str) {
        let Some(path) = self.record(id) else { return };
        let write = |path: &Path| std::fs::write(path, "\n");
        let again = |_| path.parent().map_or(Ok(()), std::fs::create_dir_all).and_then(|()| write(&path));
        if let Err(error) = write(&path).or_else(again) {
            tracing::debug!(%error, "it can't be written down that an image was used");
        }
    }

    fn forget(&self, id: &str) {
        if let Some(path) = self.record(id) {
            let _ = std::fs::remove_file(path);
        }
    }

    /// For how long nobody has used an image: since a sandbox was started from it, else since it was made.
    fn idle(&self, image: &ImageSummary) -> Duration {
        let made =
            SystemTime::UNIX_EPOCH + Duration::from_secs(u64::try_from(image.created).unwrap_or_default());
        let used = self.record(&image.id).and_then(|path| path.metadata().ok()?.modified().ok());
        SystemTime::now().duration_since(used.map_or(made, |used| used.max(made))).unwrap_or_default()
    }
}

impl Engine {
    /// Every image that has a name, and those without that nothing was made from.
    async fn images(&self) -> Result<Vec<Image>, BackendError> {
        let listed = self.client.list_images(Some(ListImagesOptionsBuilder::new().build())).await;
        let mut images = Vec::new();
        for summary in listed.map_err(|e| self.explain(&e, "listing images"))? {
            // One that is gone by now is none.
            if let Ok(found) = self.client.inspect_image(&summary.id).await {
                let layers = found.root_fs.and_then(|root| root.layers).unwrap_or_default();
                images.push(Image { summary, layers });
            }
        }
        Ok(images)
    }

    /// Ids of the images that containers were made from, whosever they are and also where they don't run.
    async fn in_use(&self) -> Result<HashSet<String>, BackendError> {
        let options = ListContainersOptionsBuilder::new().all(true).build();
        let found = self.client.list_containers(Some(options)).await;
        let found = found.map_err(|e| self.explain(&e, "listing containers"))?;
        Ok(found.into_iter().filter_map(|container| container.image_id).collect())
    }

    /// Takes all its names away, and with the last one the image.
    async fn discard_names(&self, image: &ImageSummary) -> Result<(), BackendError> {
        for name in &image.repo_tags {
            let options = RemoveImageOptionsBuilder::new().force(false).build();
            let removed = self.client.remove_image(name, Some(options), None).await;
            removed.map_err(|e| self.explain(&e, "removing an image"))?;
        }
        Ok(())
    }
}

fn is_ours(image: &ImageSummary) -> bool {
    let labelled = |labels: &HashMap<String, String>| {
        [LABEL_IMAGE, KEPT_LABEL, LABEL].iter().any(|label| labels.contains_key(*label))
    };
    labelled(&image.labels)
        && !image.repo_tags.is_empty()
        && image.repo_tags.iter().all(|tag| is_our_name(tag))
}

/// `cellblock-NAME:HASH`, as `make`, `derive` and `commit` name what they make; a registry's before it on Podman.
fn is_our_name(name: &str) -> bool {
    let name = name.strip_prefix("localhost/").unwrap_or(name);
    let Some((name, hash)) = name.strip_prefix("cellblock-").and_then(|rest| rest.split_once(':')) else {
        return false;
    };
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    !name.is_empty()
        && name.chars().all(plain)
        && hash.len() >= HASH
        && hash.chars().all(|c| c.is_ascii_digit() || matches!(c, 'a'..='f'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(labels: &[&str], names: &[&str]) -> ImageSummary {
        ImageSummary {
            labels: labels.iter().map(|label| ((*label).to_owned(), "1".to_owned())).collect(),
            repo_tags: names.iter().map(|name| (*name).to_owned()).collect(),
            ..ImageSummary::default()
        }
    }

    #[test]
    fn ours_is_what_has_our_label_and_no_name_but_ours() {
        let name = "cellblock-python:0123456789ab";
        assert!(is_ours(&image(&[LABEL_IMAGE], &[name])));
        assert!(is_ours(&image(&[KEPT_LABEL, "x"], &[name, "localhost/cellblock-kept:0123456789abcdef"])));
        for (labels, names) in [
            (&[][..], &[name][..]),
            (&["x"], &[name]),
            (&[LABEL_IMAGE], &[]),
            (&[LABEL_IMAGE], &[name, "mine:latest"]),
            (&[LABEL_IMAGE], &["cellblock-base:debian"]),
            (&[LABEL_IMAGE], &["cellblock-python:dev"]),
            (&[LABEL_IMAGE], &["example.org/cellblock-python:0123456789ab"]),
        ] {
            assert!(!is_ours(&image(labels, names)), "{labels:?} {names:?}");
        }
    }

    #[test]
    fn an_image_is_on_another_when_it_has_all_its_layers_and_more() {
        let image = |layers: &[&str]| Image {
            summary: ImageSummary::default(),
            layers: layers.iter().map(|layer| (*layer).to_owned()).collect(),
        };
        assert!(image(&["a", "b"]).is_on(&image(&["a"])));
        assert!(!image(&["a", "b"]).is_on(&image(&["a", "b"])) && !image(&["b", "a"]).is_on(&image(&["a"])));
        assert!(!image(&["a"]).is_on(&image(&[])));
    }
}
