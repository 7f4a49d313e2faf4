//! The Jupyter messaging protocol 5.5: frames and signing, sockets, dispatch, iopub.
//!
//! May import `event`, `config`, `engine` and `cell` (for completion).

pub mod sockets;
pub mod wire;
