//! What runs inside the container, and the frames that the host speaks with it.
//!
//! Imports nothing of ours. The sources of the supervisor and the Python session are embedded here and sent
//! through the container's standard input by a small program on its command line, so any image with
//! Python 3.8 or newer works unmodified, and a listing of processes stays readable.

pub(crate) mod frame;

use serde_json::json;

/// The oldest and newest protocol that this host speaks is this one.
pub(crate) const PROTOCOL: u32 = 1;

/// The programs for the inside of a container.
#[derive(Debug, Clone)]
pub struct Script {
    supervisor: String,
    worker: &'static str,
    ipython_shell: &'static str,
    plain_shell: &'static str,
}

impl Default for Script {
    fn default() -> Self {
        Script {
            supervisor: include_str!("supervisor.py").to_owned(),
            worker: include_str!("worker.py"),
            ipython_shell: include_str!("ipython_shell.py"),
            plain_shell: include_str!("plain_shell.py"),
        }
    }
}

impl Script {
    /// The supervisor with a defence taken out, for tests that show the attack working without it.
    #[doc(hidden)]
    pub fn weakened(mut self, defence: &str, instead: &str) -> Self {
        self.supervisor = self.supervisor.replace(defence, instead);
        self
    }

    /// What is written to the container's standard input before any frame.
    pub(crate) fn sources(&self) -> Vec<u8> {
        let sources = json!({
            "supervisor": self.supervisor,
            "worker": self.worker,
            "ipython_shell": self.ipython_shell,
            "plain_shell": self.plain_shell,
        });
        sources.to_string().into_bytes()
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
