//! Pictures in a dialogue, for a model that sees them and for one that does not.
//!
//! Imports nothing of ours but `model` (for its messages).

use super::model::Message;

/// The messages as a model is sent them: one that does not see is told in words that there were pictures.
pub(super) fn for_model(mut messages: Vec<Message>, sees: bool) -> Vec<Message> {
    if sees {
        return messages;
    }
    for message in &mut messages {
        // What code showed is named in its result.
        if let Message::Results(results) = &mut *message {
            for result in results {
                result.images.clear();
            }
        }
        if let Message::User { text, images } = message
            && !images.is_empty()
        {
            let count = match images.len() {
                1 => "A picture is".to_owned(),
                count => format!("{count} pictures are"),
            };
            images.clear();
            text.push_str("\n\n[");
            text.push_str(&count);
            text.push_str(
                " not shown to you, for you are not known to see pictures. Never guess what they show.]",
            );
        }
    }
    messages
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chat::turn::{Image, ToolResult};

    #[test]
    fn a_model_that_does_not_see_is_told_so_and_sent_no_picture() {
        let image = Image { media_type: "image/png".into(), base64: "iVBORw0KGgo=".into() };
        let asked = vec![
            Message::User { text: "Look.".into(), images: vec![image.clone(), image.clone()] },
            Message::assistant("ok"),
            Message::user("And?"),
            Message::Results(vec![ToolResult {
                text: "[shown to the user: 1 image/png]".into(),
                images: vec![image.clone()],
                ..ToolResult::default()
            }]),
        ];
        assert_eq!(for_model(asked.clone(), true), asked);
        let told = for_model(asked.clone(), false);
        assert!(matches!(&told[0], Message::User { text, images }
            if images.is_empty() && text.starts_with("Look.\n\n[2 pictures are not shown to you")));
        assert_eq!(told[1..3], asked[1..3]);
        assert!(matches!(&told[3], Message::Results(results)
            if results[0].images.is_empty() && results[0].text.contains("image/png")));
    }
}
