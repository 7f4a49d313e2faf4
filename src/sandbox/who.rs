//! Who set a limit of a container, in words: what to change is there.
//!
//! Imports `definition`.

use super::definition::Definition;

/// Who set a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum By {
    /// An attribute of the block's fence.
    Fence,
    /// The container's definition, or a setting where that says nothing.
    Container,
    /// A setting.
    Setting,
}

impl By {
    /// Who set a limit of a container; `fence`: the block did.
    pub(crate) fn of(definition: &Definition, fence: bool) -> Self {
        match (fence, definition.origin.as_str()) {
            (true, _) => By::Fence,
            (false, "built in") => By::Setting,
            _ => By::Container,
        }
    }

    /// That in words, for a limit called so.
    pub(crate) fn sets(self, limit: &str) -> String {
        match self {
            By::Fence => format!("the fence ({limit}=) sets the limit"),
            By::Container => {
                format!("the container's resources set the limit, or sandbox.{limit} where they say nothing")
            }
            By::Setting => format!("sandbox.{limit} sets the limit"),
        }
    }
}
