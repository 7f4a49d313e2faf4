//! The connection file: where to listen and with which key to sign.
//!
//! Imports `config` for the secret key.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::Value;

use crate::config::Secret;

/// The only signature scheme; it is also what every client asks for.
const SCHEME: &str = "hmac-sha256";

/// A connection file larger than this is not one.
const MAX_FILE: u64 = 1 << 20;

/// How clients reach the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// TCP on [`ConnectionInfo::ip`].
    Tcp,
    /// Unix sockets named `{ip}-{port}`.
    Ipc,
}

/// Which of the five sockets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Port {
    /// Requests that are served in order.
    Shell,
    /// Output to everybody.
    Iopub,
    /// The kernel's questions to the user.
    Stdin,
    /// Requests that wait for nothing.
    Control,
    /// The echo.
    Heartbeat,
}

impl Port {
    /// All of them, in the order of [`ConnectionInfo::ports`].
    pub const ALL: [Port; 5] = [Port::Shell, Port::Iopub, Port::Stdin, Port::Control, Port::Heartbeat];

    /// The name as it appears in logs and errors.
    pub fn name(self) -> &'static str {
        match self {
            Port::Shell => "shell",
            Port::Iopub => "iopub",
            Port::Stdin => "stdin",
            Port::Control => "control",
            Port::Heartbeat => "heartbeat",
        }
    }
}

/// What a connection file says, validated.
#[derive(Debug, Clone)]
pub struct ConnectionInfo {
    /// How clients reach the kernel.
    pub transport: Transport,
    /// The address to bind for TCP, the path prefix of the sockets for ipc.
    pub ip: String,
    /// Ports of shell, iopub, stdin, control and heartbeat, in this order.
    pub ports: [u16; 5],
    /// The key of all signatures; empty means unsigned.
    pub key: Secret,
    /// The kernelspec's name, when the launcher wrote it.
    pub kernel_name: Option<String>,
}

/// What is wrong with a connection file.
#[derive(Debug, thiserror::Error)]
pub enum ConnectionError {
    /// It cannot be read.
    #[error(
        "cannot read the connection file {path}: {cause}. Jupyter writes it before it starts a kernel; \
             start the kernel through Jupyter, or pass an existing file with -f"
    )]
    Read {
        /// Which file.
        path: PathBuf,
        /// Why not.
        cause: std::io::Error,
    },
    /// It is not a JSON object with the fields of a connection file.
    #[error("{path} is not a connection file: {cause}. It must be the JSON that Jupyter writes")]
    Json {
        /// Which file.
        path: PathBuf,
        /// Where and what.
        cause: serde_json::Error,
    },
    /// A field has a value that cannot be used.
    #[error("the connection file {path} cannot be used: {reason}")]
    Field {
        /// Which file.
        path: PathBuf,
        /// Which field, why, what to do.
        reason: String,
    },
}

/// The file as it is on disk.
#[derive(Deserialize)]
struct File {
    #[serde(default)]
    transport: Option<String>,
    ip: String,
    shell_port: Value,
    iopub_port: Value,
    stdin_port: Value,
    control_port: Value,
    hb_port: Value,
    #[serde(default)]
    key: String,
    #[serde(default)]
    signature_scheme: Option<String>,
    #[serde(default)]
    kernel_name: Option<String>,
}

impl ConnectionInfo {
    /// Reads and validates a connection file.
    ///
    /// # Errors
    /// [`ConnectionError`], which names the file, the field and the remedy.
    pub fn from_file(path: &Path) -> Result<Self, ConnectionError> {
        let read = |cause| ConnectionError::Read { path: path.to_owned(), cause };
        let size = std::fs::metadata(path).map_err(read)?.len();
        if size > MAX_FILE {
            return Err(ConnectionError::Field {
                path: path.to_owned(),
                reason: format!("it has {size} bytes, a connection file has a few hundred"),
            });
        }
        let text = std::fs::read(path).map_err(read)?;
        let file: File = serde_json::from_slice(&text)
            .map_err(|cause| ConnectionError::Json { path: path.to_owned(), cause })?;
        Self::validate(file).map_err(|reason| ConnectionError::Field { path: path.to_owned(), reason })
    }

    fn validate(file: File) -> Result<Self, String> {
        let transport = match file.transport.as_deref() {
            None | Some("" | "tcp") => Transport::Tcp,
            Some("ipc") => Transport::Ipc,
            Some(other) => {
                return Err(format!("transport is {other:?}; this kernel speaks \"tcp\" and \"ipc\""));
            }
        };
        match file.signature_scheme.as_deref() {
            None | Some("" | SCHEME) => {}
            Some(other) => {
                return Err(format!(
                    "signature_scheme is {other:?}; this kernel signs with \"{SCHEME}\" only, \
                     which is Jupyter's default: remove the setting Session.signature_scheme"
                ));
            }
        }
        if file.ip.is_empty() {
            return Err("ip is empty; it must be the address to listen on, usually 127.0.0.1".to_owned());
        }
        let port = |name: &str, value: &Value| {
            value.as_u64().and_then(|p| u16::try_from(p).ok()).filter(|p| *p > 0).ok_or_else(|| {
                format!("{name} is {value}; it must be a number from 1 to 65535 (the launcher chooses it)")
            })
        };
        let ports = [
            port("shell_port", &file.shell_port)?,
            port("iopub_port", &file.iopub_port)?,
            port("stdin_port", &file.stdin_port)?,
            port("control_port", &file.control_port)?,
            port("hb_port", &file.hb_port)?,
        ];
        for (i, port) in ports.iter().enumerate() {
            if ports[..i].contains(port) {
                return Err(format!("two of its five ports are {port}; each must be different"));
            }
        }
        Ok(ConnectionInfo {
            transport,
            ip: file.ip,
            ports,
            key: Secret::new(file.key),
            kernel_name: file.kernel_name.filter(|name| !name.is_empty()),
        })
    }

    /// The port of one socket.
    pub fn port(&self, port: Port) -> u16 {
        self.ports[port as usize]
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn read(content: &[u8]) -> Result<ConnectionInfo, String> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), content).unwrap();
        ConnectionInfo::from_file(file.path()).map_err(|e| e.to_string())
    }

    fn valid() -> Value {
        json!({
            "shell_port": 1001, "iopub_port": 1002, "stdin_port": 1003, "control_port": 1004, "hb_port": 1005,
            "ip": "127.0.0.1", "key": "secret", "transport": "tcp", "signature_scheme": "hmac-sha256",
            "kernel_name": "cellblock", "jupyter_session": "a notebook"
        })
    }

    fn with(field: &str, value: Value) -> Result<ConnectionInfo, String> {
        let mut file = valid();
        file[field] = value;
        read(file.to_string().as_bytes())
    }

    #[test]
    fn a_file_as_jupyter_writes_it_is_understood() {
        let info = read(valid().to_string().as_bytes()).unwrap();
        assert_eq!(info.transport, Transport::Tcp);
        let ports = Port::ALL.map(|port| info.port(port));
        assert_eq!(ports, [1001, 1002, 1003, 1004, 1005]);
        assert_eq!(info.key.reveal(), "secret");
        assert_eq!(info.kernel_name.as_deref(), Some("cellblock"));
        assert!(!format!("{info:?}").contains("secret"));
        assert_eq!(with("transport", json!("ipc")).unwrap().transport, Transport::Ipc);
    }

    #[test]
    fn errors_name_the_file_the_field_and_the_remedy() {
        let missing = ConnectionInfo::from_file(Path::new("/nowhere/kernel.json")).unwrap_err().to_string();
        assert!(missing.contains("/nowhere/kernel.json") && missing.contains("-f"), "{missing}");
        assert!(read(b"not json").unwrap_err().contains("not a connection file"));
        assert!(read(b"{}").unwrap_err().contains("missing field"));
        for (field, value, needles) in [
            ("transport", json!("udp"), ["udp", "tcp"]),
            ("signature_scheme", json!("hmac-md5"), ["hmac-md5", "hmac-sha256"]),
            ("shell_port", json!(0), ["shell_port", "1 to 65535"]),
            ("hb_port", json!(70000), ["hb_port", "70000"]),
            ("control_port", json!("1"), ["control_port", "number"]),
            ("iopub_port", json!(-1), ["iopub_port", "-1"]),
            ("stdin_port", json!(1001), ["1001", "different"]),
            ("ip", json!(""), ["ip", "address"]),
        ] {
            let error = with(field, value).unwrap_err();
            assert!(needles.iter().all(|needle| error.contains(needle)), "{error}");
        }
    }

    #[test]
    fn a_file_that_is_far_too_large_is_not_read() {
        assert!(read(&vec![b' '; 2 << 20]).unwrap_err().contains("bytes"));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn arbitrary_files_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(read(&bytes).is_err());
        }
    }
}
