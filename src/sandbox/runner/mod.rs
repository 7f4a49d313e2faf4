//! What runs inside the container, and the frames that the host speaks with it.
//!
//! Imports nothing of ours. The sources of the supervisor and the Python session are embedded here and sent
//! through the container's standard input by a small program on its command line, so any image with
//! Python 3.8 or newer works unmodified, and a listing of processes stays readable.

mod filter;
pub(crate) mod frame;

use serde_json::{Map, Value};

/// The program that packs and unpacks files inside; its argument is an order in JSON.
const TRANSFER: &str = include_str!("transfer.py");

/// The process that carries out `order` of `transfer.py`.
pub(crate) fn transfer(order: &Value) -> Vec<String> {
    ["python3", "-I", "-S", "-c", TRANSFER, &order.to_string()].map(str::to_owned).to_vec()
}

/// The program that reads, writes and lists single files for a model; its argument is an order in JSON.
const FILES: &str = include_str!("files.py");

/// The process that carries out `order` of `files.py`.
pub(crate) fn files(order: &Value) -> Vec<String> {
    ["python3", "-I", "-S", "-c", FILES, &order.to_string()].map(str::to_owned).to_vec()
}

/// The oldest and newest protocol that this host speaks is this one.
pub(crate) const PROTOCOL: u32 = 1;

/// The programs for the inside of a container.
#[derive(Debug, Clone)]
pub struct Script {
    /// Name and text; the supervisor is the first.
    texts: [(&'static str, String); 8],
}

impl Default for Script {
    fn default() -> Self {
        let filter = filter::texts();
        let texts = [
            ("supervisor", include_str!("supervisor.py")),
            ("system", include_str!("system.py")),
            ("worker", include_str!("worker.py")),
            ("channel", include_str!("channel.py")),
            ("ipython_shell", include_str!("ipython_shell.py")),
            ("plain_shell", include_str!("plain_shell.py")),
            ("state", include_str!("state.py")),
            ("filter", &filter),
        ];
        Script { texts: texts.map(|(name, text): (_, &str)| (name, text.to_owned())) }
    }
}

impl Script {
    /// The same with a defence taken out, for tests that show the attack working without it.
    #[doc(hidden)]
    pub fn weakened(mut self, defence: &str, instead: &str) -> Self {
        for (_, text) in &mut self.texts {
            *text = text.replace(defence, instead);
        }
        self
    }

    /// What is written to the container's standard input before any frame.
    pub(crate) fn sources(&self) -> Vec<u8> {
        let texts: Map<String, Value> =
            self.texts.iter().map(|(name, text)| ((*name).to_owned(), Value::from(text.as_str()))).collect();
        Value::Object(texts).to_string().into_bytes()
    }

    /// The container's main process, which reads `sources` and becomes the supervisor.
    pub(crate) fn argv(sources: &[u8]) -> Vec<String> {
        let boot = format!(
            "import os,json\n\
             n,b={},b''\n\
             while len(b)<n:\n \
             c=os.read(0,n-len(b))\n \
             if not c:os._exit(0)\n \
             b+=c\n\
             s=json.loads(b)\n\
             exec(compile(s.pop('supervisor'),'<cellblock>','exec'),{{'__name__':'__main__','SOURCES':s}})",
            sources.len()
        );
        ["python3", "-u", "-I", "-S", "-c", &boot].map(str::to_owned).to_vec()
    }
}
