//! The daemon's sockets: one for commands, for its owner alone, and one for questions, for a group.

use crate::api::control::{Access, Client};
use crate::api::instance::{Instance, READERS};
use rustix::fs::Mode;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

/// A socket that the daemon listens on.
pub(super) struct Listener {
    pub(super) socket: UnixListener,
    pub(super) access: Access,
}

impl Listener {
    /// Opens the socket for commands.
    pub(super) fn full(instance: &Instance) -> io::Result<Self> {
        Ok(Self { socket: listen(&instance.socket())?, access: Access::Full })
    }

    /// Opens the socket for questions. If the group is missing, only the owner may ask.
    pub(super) fn read(instance: &Instance) -> io::Result<Self> {
        let path = instance.read_socket();
        let socket = listen(&path)?;
        let groups = fs::read_to_string("/etc/group").unwrap_or_default();
        if let Some(group) = group_id(&groups, READERS) {
            let opened = chown(&path, None, Some(group))
                .and_then(|()| fs::set_permissions(&path, Permissions::from_mode(0o660)));
            if let Err(error) = opened {
                tracing::warn!(%error, path = %path.display(), "cannot open the socket for questions to group {READERS}; only root may ask");
            }
        }
        Ok(Self { socket, access: Access::Read })
    }

    /// The next connection, unless its process may not use it.
    pub(super) fn accept(&self) -> io::Result<Option<Client>> {
        let (stream, _) = self.socket.accept()?;
        let is_allowed = self.access == Access::Read || may_command(&stream);
        Ok(if is_allowed { Client::new(stream, self.access).ok() } else { None })
    }
}

/// Opens a socket, for its owner alone from the first moment on. The caller holds the lock, so the process that bound it before is gone.
fn listen(path: &Path) -> io::Result<UnixListener> {
    let _ = fs::remove_file(path);
    let mask = rustix::process::umask(Mode::from_raw_mode(0o177));
    let listener = UnixListener::bind(path);
    rustix::process::umask(mask);
    let listener = listener?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// The number of a group in the text of `/etc/group`.
fn group_id(groups: &str, name: &str) -> Option<u32> {
    let of = |line: &str| {
        let mut fields = line.split(':');
        (fields.next()? == name).then(|| fields.nth(1)?.parse().ok())?
    };
    groups.lines().find_map(of)
}

/// Whether the process at the other end may command: one of root's, or of this process' user.
fn may_command(stream: &UnixStream) -> bool {
    let user = rustix::net::sockopt::socket_peercred(stream).map(|peer| peer.uid);
    user.is_ok_and(|user| user.is_root() || user == rustix::process::geteuid())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_found_by_its_whole_name() {
        let groups = "root:x:0:\ntrielined:x:7:\ntrieline:x:998:prometheus\n";
        assert_eq!(group_id(groups, "trieline"), Some(998));
        assert_eq!(group_id(groups, "trie"), None);
        assert_eq!(group_id("trieline:x:many:\ntrieline\n", "trieline"), None);
    }
}
