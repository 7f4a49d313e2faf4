//! What a session holds, from one container into another: when packages are added, the session goes on in a
//! container of another image.

use std::time::Duration;

use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::event::{EventSender, Failure};

use crate::sandbox::pool::Slot;
use crate::sandbox::session::{Inventory, Job, PackJob, Packed, State, Way};

/// The most that is carried from one container to another, in bytes.
const CARRIED: u64 = 2 << 30;
/// How long saving the variables may take.
const SAVING: Duration = Duration::from_mins(2);

/// What a session held, on its way from one container into another.
pub(in crate::sandbox) struct Carried {
    file: std::fs::File,
    /// What is in it and what is not.
    pub(in crate::sandbox) inventory: Inventory,
}

/// Takes out what the slot's container holds: home, `/tmp`, Python's variables. `None`: it does not run. What lies
/// in `/session` stays where it is.
pub(in crate::sandbox) async fn carry_out(
    slot: &Slot,
    events: &EventSender,
    cancel: &CancellationToken,
) -> Result<Option<Carried>, Failure> {
    if slot.state() == State::Cold {
        return Ok(None);
    }
    let file = tempfile::tempfile().map_err(|e| {
        Failure::new("SandboxError", format!("there is no file to keep the session's state in: {e}"))
    })?;
    let way = Way::Pack { session: false, root: false, most: CARRIED, patience: SAVING };
    let inventory = pack(slot, twin(&file)?, way, events, cancel).await?.inventory;
    Ok(Some(Carried { file, inventory }))
}

/// Brings it into the slot's container, which is started when need be.
pub(in crate::sandbox) async fn carry_in(
    slot: &Slot,
    carried: &Carried,
    events: &EventSender,
    cancel: &CancellationToken,
) -> Result<Inventory, Failure> {
    use std::io::Seek;
    let mut file = twin(&carried.file)?;
    file.rewind().map_err(|e| lost(&e))?;
    Ok(pack(slot, file, Way::Unpack, events, cancel).await?.inventory)
}

fn twin(file: &std::fs::File) -> Result<std::fs::File, Failure> {
    file.try_clone().map_err(|e| lost(&e))
}

fn lost(e: &std::io::Error) -> Failure {
    Failure::new("SandboxError", format!("the file with the session's state can't be used: {e}"))
}

/// Has the slot's session do it.
pub(in crate::sandbox) async fn pack(
    slot: &Slot,
    file: std::fs::File,
    way: Way,
    events: &EventSender,
    cancel: &CancellationToken,
) -> Result<Packed, Failure> {
    let over = || Failure::new("SandboxError", "the sandbox was shut down; restart the kernel");
    let (done, result) = oneshot::channel();
    let file = tokio::fs::File::from_std(file);
    let job = PackJob { file, way, events: events.clone(), cancel: cancel.clone(), done };
    slot.jobs.send(Job::Pack(job)).await.map_err(|_| over())?;
    result.await.map_err(|_| over())?
}
