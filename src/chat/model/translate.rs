//! The dialogue in the provider library's terms.
//!
//! Imports this folder and the library. Nothing here can fail: what a provider could not take (an image of an
//! unknown type, a message of nothing) becomes words or is left out.

use std::collections::HashMap;
use std::fmt::Write;

use rig_core::completion::ToolDefinition;
use rig_core::message::{
    AssistantContent, AssistantMessage, CallId, ImageMediaType, Message as Theirs, MimeType, ToolFunction,
    ToolName, ToolResult as TheirResult, ToolResultContent, UserContent,
};

use super::turns::Turns;
use super::{Message, Request, Understands};
use crate::chat::turn::{Image, ToolCall, ToolResult};

/// Reads a name that may be empty, which the library refuses.
fn tool_name(name: &str) -> Option<ToolName> {
    ToolName::new(name).or_else(|_| ToolName::new("unnamed")).ok()
}

/// The whole dialogue, the system prompt first.
///
/// `turns` knows what the provider attached to its own replies; it is sent back only within the turn that is
/// under way, where some providers demand it.
pub(super) fn history(request: &Request, understands: Understands, turns: &Turns) -> Vec<Theirs> {
    let mut history = vec![Theirs::system(request.system.as_str())];
    let mut ids = HashMap::new();
    let under_way = request.messages.iter().rposition(|message| matches!(message, Message::User { .. }));
    for (at, message) in request.messages.iter().enumerate() {
        match message {
            Message::User { text, images } => history.push(user(text, images, understands.images)),
            Message::Assistant { text, calls } => {
                let own = under_way.filter(|last| at > *last).and_then(|_| turns.find(calls));
                // An id that the library gave, for a server that gives none, is not the same when it is read back.
                let given = own.iter().flat_map(AssistantMessage::tool_calls).map(|call| &call.id);
                ids.extend(given.map(|id| (id.to_string(), id.clone())));
                let own = own.map(Theirs::Assistant);
                history.extend(own.or_else(|| assistant(text, calls)));
            }
            Message::Results(results) => {
                let results: Vec<TheirResult> =
                    results.iter().filter_map(|one| result(one, &ids, understands.images)).collect();
                if !results.is_empty() {
                    history.push(Theirs::tool_results(results));
                }
            }
        }
    }
    history
}

/// The tools as they are offered.
pub(super) fn tools(request: &Request) -> Vec<ToolDefinition> {
    let tools = request.tools.iter().filter_map(|tool| {
        let name = tool_name(tool.name)?;
        Some(ToolDefinition::new(name, tool.description.as_str(), tool.parameters.clone()))
    });
    tools.collect()
}

fn user(text: &str, images: &[Image], sees: bool) -> Theirs {
    let mut text = text.to_owned();
    let mut content = Vec::new();
    let mut unseen = 0;
    for image in images {
        match ImageMediaType::from_mime_type(&image.media_type) {
            Some(kind) if sees => {
                content.push(UserContent::image_base64(image.base64.as_str(), Some(kind), None));
            }
            _ => unseen += 1,
        }
    }
    if unseen > 0 {
        let what = if unseen == 1 { "An image that goes" } else { "Images that go" };
        // Writing to a string can't fail.
        let _ = write!(text, "\n\n[{what} with this can't be shown to you.]");
    }
    content.insert(0, UserContent::text(text));
    Theirs::User { content }
}

fn assistant(text: &str, calls: &[ToolCall]) -> Option<Theirs> {
    let mut content = Vec::new();
    if !text.trim().is_empty() {
        content.push(AssistantContent::text(text));
    }
    for call in calls {
        let function = ToolFunction::parse(tool_name(&call.name)?, &call.arguments);
        content.push(AssistantContent::ToolCall(rig_core::message::ToolCall::new(
            CallId::from_wire(call.id.as_str()),
            function,
        )));
    }
    (!content.is_empty()).then(|| Theirs::Assistant(AssistantMessage::new(content)))
}

/// The library puts a result's pictures where the provider takes them: into it, or into the user's message behind it.
fn result(result: &ToolResult, ids: &HashMap<String, CallId>, sees: bool) -> Option<TheirResult> {
    let mut content = vec![ToolResultContent::text(result.text.as_str())];
    for image in result.images.iter().filter(|_| sees) {
        let kind = ImageMediaType::from_mime_type(&image.media_type);
        content.extend(
            kind.map(|kind| ToolResultContent::image_base64(image.base64.as_str(), Some(kind), None)),
        );
    }
    Some(TheirResult {
        call: ids.get(&result.id).cloned().unwrap_or_else(|| CallId::from_wire(result.id.as_str())),
        name: tool_name(&result.name)?,
        content,
        is_error: result.failed,
    })
}

/// A call as the model wrote it: arguments that are no JSON object come through as their text.
pub(super) fn call(call: &rig_core::message::ToolCall) -> ToolCall {
    let function = &call.function;
    ToolCall {
        id: call.id.to_string(),
        name: function.name.to_string(),
        arguments: match &function.invalid_arguments {
            Some(text) => text.clone(),
            None => function.arguments_value().to_string(),
        },
    }
}
