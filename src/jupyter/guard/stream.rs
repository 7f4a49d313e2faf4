//! One connected byte stream, TCP or unix, so that a relay need not care.
//!
//! Imports nothing of ours.

use std::io;

use bytes::BytesMut;
use tokio::net::{TcpStream, UnixStream};

/// A connected, non-blocking stream.
#[derive(Debug)]
pub(super) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

macro_rules! either {
    ($self:ident, $stream:ident => $call:expr) => {
        match $self {
            Stream::Tcp($stream) => $call,
            Stream::Unix($stream) => $call,
        }
    };
}

impl Stream {
    /// Waits until there may be something to read, then reads into the buffer's free space.
    /// `Ok(0)`: the other side closed. Before it waits it gives an empty buffer's memory back.
    pub(super) async fn read(&self, buffer: &mut BytesMut, at_least: usize) -> io::Result<usize> {
        loop {
            buffer.reserve(at_least);
            match either!(self, s => s.try_read_buf(buffer)) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                done => return done,
            }
            if buffer.is_empty() {
                *buffer = BytesMut::new();
            }
            either!(self, s => s.readable().await)?;
        }
    }

    /// Waits until it may be written to.
    pub(super) async fn writable(&self) -> io::Result<()> {
        either!(self, s => s.writable().await)
    }

    /// One vectored write that does not wait.
    pub(super) fn try_write(&self, pieces: &[io::IoSlice<'_>]) -> io::Result<usize> {
        either!(self, s => s.try_write_vectored(pieces))
    }

    /// Writes all of it.
    pub(super) async fn write_all(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.try_write(&[io::IoSlice::new(bytes)]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => bytes = &bytes[n..],
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => self.writable().await?,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }
}
