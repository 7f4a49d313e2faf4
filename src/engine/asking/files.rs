//! What of a file goes to the model: texts with head and tail, tables with their shape, pictures; nothing unbounded.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::time::{Duration, Instant};

use base64::Engine as _;

use crate::chat::{Content, Image};
use crate::sandbox::artifacts::{Looks, looks, shape};
use crate::sandbox::size;

/// The most of one text, in bytes.
pub(super) const TEXT: u64 = 64 << 10;
/// The most of all texts of one question, in bytes.
pub(super) const TOGETHER: u64 = 256 << 10;
/// The largest picture, and the most of all pictures of one question, in bytes.
const IMAGE: u64 = 5 << 20;
pub(super) const IMAGES: u64 = 20 << 20;
/// A table up to this size goes as it is.
const SMALL: u64 = 8 << 10;
/// Lines of a larger one that go, and bytes of them.
const LINES: usize = 20;
const LINE: u64 = 8 << 10;
/// Below this, what is left of a text says nothing.
const LEAST: u64 = 1 << 10;
/// How long rows are counted.
const COUNTING: Duration = Duration::from_secs(2);

/// What is left for the files of one question.
#[derive(Debug, Clone, Copy)]
pub(super) struct Room {
    /// Bytes of text.
    pub(super) text: u64,
    /// Bytes of pictures.
    pub(super) images: u64,
}

impl Default for Room {
    fn default() -> Self {
        Room { text: TOGETHER, images: IMAGES }
    }
}

/// A file, read.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Taken {
    /// What the model is given.
    pub(super) content: Content,
    /// What it is, for the list of attachments: `text, 12 kB`.
    pub(super) what: String,
}

/// Reads a file of this name.
///
/// # Errors
/// Why it is not attached, to be put behind its name.
pub(super) fn read(name: &Path, mut file: File, room: &mut Room) -> Result<Taken, String> {
    let broken = |error: std::io::Error| format!("it can't be read: {error}");
    let bytes = file.metadata().map_err(broken)?.len();
    let mut head = Vec::with_capacity(4096);
    Read::by_ref(&mut file).take(4096).read_to_end(&mut head).map_err(broken)?;
    file.rewind().map_err(broken)?;
    match looks(name, &head) {
        Looks::Picture(media_type) => picture(file, bytes, media_type, room),
        Looks::Table(delimiter) => {
            table(file, bytes, delimiter, room).map_err(|why| why.unwrap_or_else(nothing_left))
        }
        Looks::Text => {
            let (text, cut) =
                text(file, bytes, TEXT.min(room.text)).map_err(|why| why.unwrap_or_else(nothing_left))?;
            room.text = room.text.saturating_sub(text.len() as u64);
            let short = if cut { ", head and tail" } else { "" };
            Ok(Taken { content: Content::Text(text), what: format!("text, {}{short}", size(bytes)) })
        }
        Looks::Parquet => Err(format!(
            "it is a Parquet file ({}), which a model can't read; show its head in Python and mention that cell (@cell)",
            size(bytes)
        )),
        Looks::Binary(media_type) => Err(format!(
            "it is no text and no picture that models see ({media_type}, {}); take what matters out of it in Python",
            size(bytes)
        )),
    }
}

fn nothing_left() -> String {
    format!("the attachments together are already {} of text, which is the most", size(TOGETHER))
}

fn picture(file: File, bytes: u64, media_type: &str, room: &mut Room) -> Result<Taken, String> {
    if bytes > IMAGE {
        return Err(format!("it is a picture of {}; {} is the most", size(bytes), size(IMAGE)));
    }
    if bytes > room.images {
        return Err(format!("the pictures together would be more than {}", size(IMAGES)));
    }
    let mut data = Vec::new();
    // It may have grown since.
    file.take(IMAGE).read_to_end(&mut data).map_err(|error| format!("it can't be read: {error}"))?;
    room.images = room.images.saturating_sub(data.len() as u64);
    let base64 = base64::engine::general_purpose::STANDARD.encode(&data);
    let image = Image { media_type: media_type.to_owned(), base64 };
    Ok(Taken { content: Content::Image(image), what: format!("picture, {}", size(bytes)) })
}

/// The whole of a small table; of a larger one its shape and its first lines. `Err(None)`: no room is left.
fn table(mut file: File, bytes: u64, delimiter: u8, room: &mut Room) -> Result<Taken, Option<String>> {
    let broken = |error: std::io::Error| Some(format!("it can't be read: {error}"));
    let shape = shape(&file, delimiter, Instant::now() + COUNTING);
    file.rewind().map_err(broken)?;
    let shape = shape.map_or_else(String::new, |shape| {
        let more = if shape.more { "more than " } else { "" };
        let count = |number, what| format!("{number} {what}{}", if number == 1 { "" } else { "s" });
        format!("{more}{}, {}", count(shape.rows, "row"), count(shape.columns as u64, "column"))
    });
    let whole = bytes <= SMALL;
    let most = if whole { SMALL } else { LINE };
    if room.text < most.min(bytes) {
        return Err(None);
    }
    let mut data = Vec::new();
    file.take(most).read_to_end(&mut data).map_err(broken)?;
    let text = String::from_utf8_lossy(&data).into_owned();
    let text = if whole {
        text
    } else {
        let lines: String =
            text.split_inclusive('\n').filter(|line| line.ends_with('\n')).take(LINES).collect();
        let head = if lines.is_empty() { text } else { lines };
        format!("{head}[... a table of {shape}; these are its first lines ...]")
    };
    room.text = room.text.saturating_sub(text.len() as u64);
    let short = if whole { "" } else { ", its head" };
    let comma = if shape.is_empty() { "" } else { ", " };
    Ok(Taken { content: Content::Text(text), what: format!("table{comma}{shape}, {}{short}", size(bytes)) })
}

/// A text of at most `most` bytes: the whole, or head and tail with a note between them, and whether that is so.
/// `Err(None)`: that is too little to say anything.
fn text(mut file: File, bytes: u64, most: u64) -> Result<(String, bool), Option<String>> {
    let broken = |error: std::io::Error| Some(format!("it can't be read: {error}"));
    let mut data = Vec::new();
    if bytes <= most {
        file.take(most).read_to_end(&mut data).map_err(broken)?;
        return Ok((String::from_utf8_lossy(&data).into_owned(), false));
    }
    if most < LEAST {
        return Err(None);
    }
    let tail = most / 4;
    Read::by_ref(&mut file).take(most - tail).read_to_end(&mut data).map_err(broken)?;
    let mut last = Vec::new();
    file.seek(SeekFrom::Start(bytes - tail)).map_err(broken)?;
    file.take(tail).read_to_end(&mut last).map_err(broken)?;
    // Half a character at the cut belongs to neither side.
    while data.last().is_some_and(|byte| *byte >= 0x80)
        && std::str::from_utf8(&data).is_err_and(|e| e.error_len().is_none())
    {
        data.pop();
    }
    let begin = last.iter().take(3).take_while(|byte| **byte & 0xc0 == 0x80).count();
    let head = String::from_utf8_lossy(&data);
    let foot = String::from_utf8_lossy(last.get(begin..).unwrap_or_default());
    let gone = bytes - data.len() as u64 - (last.len() - begin) as u64;
    Ok((format!("{head}\n[... {} left out ...]\n{foot}", size(gone)), true))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests {
    use super::*;

    fn file(data: &[u8]) -> File {
        let mut file = tempfile::tempfile().unwrap();
        std::io::Write::write_all(&mut file, data).unwrap();
        file.rewind().unwrap();
        file
    }

    fn read(name: &str, data: &[u8], room: &mut Room) -> Result<(String, String), String> {
        super::read(Path::new(name), file(data), room).map(|read| match read.content {
            Content::Text(text) => (read.what, text),
            Content::Image(image) => (read.what, image.media_type),
        })
    }

    #[test]
    fn texts_keep_head_and_tail_and_whole_characters() {
        let mut room = Room::default();
        assert_eq!(
            read("x.py", b"a\nb", &mut room).unwrap(),
            ("text, 3 bytes".to_owned(), "a\nb".to_owned())
        );
        assert_eq!(read("empty", b"", &mut room).unwrap().1, "");
        let long = format!("begin {} end", "é".repeat(100_000));
        let (what, text) = read("x.txt", long.as_bytes(), &mut room).unwrap();
        assert!(what.ends_with(", head and tail"), "{what}");
        assert!(text.starts_with("begin é") && text.ends_with("é end") && text.contains(" left out ...]"));
        assert!(text.len() as u64 <= TEXT + 100 && !text.contains('\u{fffd}'));
    }

    #[test]
    fn all_together_are_bounded() {
        let (mut room, long) = (Room::default(), "x".repeat(100_000));
        let outcomes: Vec<_> = (0..6).map(|_| read("x.txt", long.as_bytes(), &mut room)).collect();
        let sent: usize = outcomes.iter().flatten().map(|(_, text)| text.len()).sum();
        assert!(sent as u64 <= TOGETHER + 1000, "{sent}");
        assert!(outcomes.last().unwrap().as_ref().is_err_and(|why| why.contains("together")), "{outcomes:?}");
    }

    #[test]
    fn tables_say_their_shape() {
        let mut room = Room::default();
        let (what, text) = read("x.csv", b"a,b\n1,2\n3,4\n", &mut room).unwrap();
        assert_eq!((what.as_str(), text.as_str()), ("table, 2 rows, 2 columns, 12 bytes", "a,b\n1,2\n3,4\n"));
        let long = format!("a,b\n{}", "1,2\n".repeat(5000));
        let (what, text) = read("x.csv", long.as_bytes(), &mut room).unwrap();
        assert_eq!(what, "table, 5000 rows, 2 columns, 20 kB, its head");
        assert!(text.starts_with("a,b\n1,2\n") && text.len() < 300, "{text}");
        assert!(
            text.ends_with("[... a table of 5000 rows, 2 columns; these are its first lines ...]"),
            "{text}"
        );
        let wide = format!("{}\n1", "x".repeat(50_000));
        assert!(read("x.csv", wide.as_bytes(), &mut room).unwrap().1.len() < 9000);
    }

    #[test]
    fn pictures_are_pictures_by_their_bytes_and_have_a_limit() {
        let mut room = Room::default();
        let png = b"\x89PNG\r\n\x1a\nrest";
        assert_eq!(
            read("x.txt", png, &mut room).unwrap(),
            ("picture, 12 bytes".to_owned(), "image/png".to_owned())
        );
        let mut large = png.to_vec();
        large.resize(usize::try_from(IMAGE).unwrap() + 1, 0);
        assert!(read("x.png", &large, &mut room).unwrap_err().contains("5 MB is the most"));
        let mut little = Room { images: 3, ..Room::default() };
        assert!(read("x.png", png, &mut little).unwrap_err().contains("together"));
    }

    #[test]
    fn what_no_model_reads_is_refused_with_the_reason() {
        let mut room = Room::default();
        assert!(read("x.bin", b"\x00\x01\x02", &mut room).unwrap_err().contains("no text and no picture"));
        assert!(read("x.pdf", b"%PDF-1.7", &mut room).unwrap_err().contains("application/pdf"));
        assert!(read("x.parquet", b"PAR1\x00", &mut room).unwrap_err().contains("Parquet"));
        assert!(read("x.png", b"<script>", &mut room).is_ok(), "the bytes count");
    }
}
