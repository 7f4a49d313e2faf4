//! The tar format, read without trust: what is announced is bounded before anything is kept for it.

use std::io::{self, Read};

use super::ArchiveError;

const BLOCK: usize = 512;
/// The most of a long name or of extended attributes.
const EXTENSION: u64 = 64 << 10;
/// Headers that may come before the one that they extend.
const EXTENSIONS: usize = 8;

/// What an entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    File,
    Folder,
    Link,
    /// Something that is never made; says what.
    Other(&'static str),
}

/// One entry; its data follows.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) name: Vec<u8>,
    pub(super) kind: Kind,
    /// Where a link leads.
    pub(super) target: Vec<u8>,
    pub(super) mode: u32,
    /// Seconds since 1970.
    pub(super) modified: f64,
    pub(super) size: u64,
}

/// Reads entries one after the other.
pub(super) struct Reader<R> {
    source: R,
    /// Bytes of the present entry's data that were not read, and the padding after it.
    left: u64,
    padding: u64,
}

/// What extended headers say of the next entry.
#[derive(Default)]
struct Extended {
    name: Option<Vec<u8>>,
    target: Option<Vec<u8>>,
    size: Option<u64>,
    modified: Option<f64>,
    sparse: bool,
}

impl<R: Read> Reader<R> {
    pub(super) fn new(source: R) -> Self {
        Reader { source, left: 0, padding: 0 }
    }

    /// The next entry; `None` at the archive's end. What was not read of the last one's data is skipped.
    pub(super) fn next(&mut self) -> Result<Option<Entry>, ArchiveError> {
        let mut extended = Extended::default();
        for _ in 0..=EXTENSIONS {
            self.skip()?;
            let Some(header) = self.header()? else { return Ok(None) };
            let size = number(&header[124..136])?;
            match header[156] {
                b'x' => self.attributes(size, &mut extended)?,
                b'L' => extended.name = Some(until_zero(&self.extension(size)?).to_vec()),
                b'K' => extended.target = Some(until_zero(&self.extension(size)?).to_vec()),
                // Attributes for all that follows: nothing in them that we want.
                b'g' => drop(self.extension(size)?),
                kind => return Ok(Some(self.entry(&header, kind, size, extended)?)),
            }
        }
        Err(ArchiveError::Damaged("too many headers for one file"))
    }

    fn entry(
        &mut self,
        header: &[u8; BLOCK],
        kind: u8,
        size: u64,
        extended: Extended,
    ) -> Result<Entry, ArchiveError> {
        let kind = match kind {
            _ if extended.sparse => Kind::Other("a sparse file"),
            b'0' | 0 => Kind::File,
            b'1' => Kind::Other("a hard link"),
            b'2' => Kind::Link,
            b'3' | b'4' => Kind::Other("a device"),
            b'5' => Kind::Folder,
            b'6' => Kind::Other("a FIFO"),
            _ => Kind::Other("of a kind that is not known"),
        };
        let announced = extended.size.unwrap_or(size);
        // Links, devices and folders have no data, whatever their size field says.
        let size = if matches!(header[156], b'1'..=b'6') { 0 } else { announced };
        self.left = size;
        self.padding = size.wrapping_neg() % BLOCK as u64;
        let mut name = until_zero(&header[..100]).to_vec();
        let prefix = until_zero(&header[345..500]);
        if header[257..263] == *b"ustar\0" && !prefix.is_empty() {
            name = [prefix, b"/", &name].concat();
        }
        Ok(Entry {
            name: extended.name.unwrap_or(name),
            kind,
            target: extended.target.unwrap_or_else(|| until_zero(&header[157..257]).to_vec()),
            mode: u32::try_from(number(&header[100..108])? & 0o7777).unwrap_or(0),
            modified: match extended.modified {
                Some(modified) => modified,
                #[allow(clippy::cast_precision_loss, reason = "times fit")]
                None => number(&header[136..148])? as f64,
            },
            size,
        })
    }

    /// A header; `None` at the end, which is a block of zeros.
    fn header(&mut self) -> Result<Option<[u8; BLOCK]>, ArchiveError> {
        let mut header = [0; BLOCK];
        self.exactly(&mut header)?;
        if header.iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        let sum: u64 = header
            .iter()
            .enumerate()
            .map(|(at, byte)| u64::from(if (148..156).contains(&at) { b' ' } else { *byte }))
            .sum();
        if number(&header[148..156])? != sum {
            return Err(ArchiveError::Damaged("a header is not one"));
        }
        Ok(Some(header))
    }

    fn exactly(&mut self, into: &mut [u8]) -> Result<(), ArchiveError> {
        self.source.read_exact(into).map_err(|e| match e.kind() {
            io::ErrorKind::UnexpectedEof => ArchiveError::Damaged("it ends in the middle"),
            _ => e.into(),
        })
    }

    /// The data of an extended header.
    fn extension(&mut self, size: u64) -> Result<Vec<u8>, ArchiveError> {
        if size > EXTENSION {
            return Err(ArchiveError::Damaged("a header is too long"));
        }
        let mut data = vec![0; usize::try_from(size.next_multiple_of(BLOCK as u64)).unwrap_or(0)];
        self.exactly(&mut data)?;
        data.truncate(usize::try_from(size).unwrap_or(0));
        Ok(data)
    }

    /// `LENGTH KEY=VALUE\n`, again and again.
    fn attributes(&mut self, size: u64, extended: &mut Extended) -> Result<(), ArchiveError> {
        const BAD: ArchiveError = ArchiveError::Damaged("extended attributes that can't be read");
        let data = self.extension(size)?;
        let mut rest = data.as_slice();
        while !rest.is_empty() {
            let space = rest.iter().position(|byte| *byte == b' ').ok_or(BAD)?;
            let length: usize =
                std::str::from_utf8(&rest[..space]).ok().and_then(|n| n.parse().ok()).ok_or(BAD)?;
            let record = rest.get(space + 1..length.saturating_sub(1)).ok_or(BAD)?;
            rest = rest.get(length..).ok_or(BAD)?;
            let equals = record.iter().position(|byte| *byte == b'=').ok_or(BAD)?;
            let (key, value) = (&record[..equals], &record[equals + 1..]);
            let text = || std::str::from_utf8(value).map_err(|_| BAD);
            match key {
                b"path" => extended.name = Some(value.to_vec()),
                b"linkpath" => extended.target = Some(value.to_vec()),
                b"size" => extended.size = Some(text()?.parse().map_err(|_| BAD)?),
                b"mtime" => extended.modified = Some(text()?.parse().map_err(|_| BAD)?),
                key if key.starts_with(b"GNU.sparse") => extended.sparse = true,
                _ => {}
            }
        }
        Ok(())
    }

    fn skip(&mut self) -> Result<(), ArchiveError> {
        let rest = self.left.saturating_add(std::mem::take(&mut self.padding));
        self.left = 0;
        let skipped = io::copy(&mut (&mut self.source).take(rest), &mut io::sink())?;
        if skipped < rest { Err(ArchiveError::Damaged("it ends in the middle")) } else { Ok(()) }
    }

    /// Reads of the present entry's data; 0 at its end.
    pub(super) fn data(&mut self, into: &mut [u8]) -> Result<usize, ArchiveError> {
        let room = usize::try_from(self.left).unwrap_or(usize::MAX).min(into.len());
        if room == 0 {
            return Ok(0);
        }
        let count = self.source.read(&mut into[..room])?;
        if count == 0 {
            return Err(ArchiveError::Damaged("it ends in the middle"));
        }
        self.left -= count as u64;
        Ok(count)
    }
}

fn until_zero(field: &[u8]) -> &[u8] {
    field.split(|byte| *byte == 0).next().unwrap_or_default()
}

/// A number in octal digits, or in base 256 when the first bit is set.
fn number(field: &[u8]) -> Result<u64, ArchiveError> {
    const BAD: ArchiveError = ArchiveError::Damaged("a number that can't be read");
    if field[0] & 0x80 != 0 {
        let (high, low) = field.split_at(field.len().saturating_sub(8));
        // Anything above 2^63, negative numbers included, is nonsense here.
        let clean = high.iter().enumerate().all(|(at, byte)| *byte == if at == 0 { 0x80 } else { 0 });
        let value = u64::from_be_bytes(low.try_into().map_err(|_| BAD)?);
        let value = if high.is_empty() { value & !(1 << 63) } else { value };
        return if clean && value < 1 << 63 { Ok(value) } else { Err(BAD) };
    }
    let text = std::str::from_utf8(until_zero(field)).map_err(|_| BAD)?.trim();
    if text.is_empty() {
        return Ok(0);
    }
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(BAD);
    }
    u64::from_str_radix(text, 8).map_err(|_| BAD)
}
