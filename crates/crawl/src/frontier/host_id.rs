//! The number of a host in the frontier.
//!
//! Must not know: what is kept of a host.

/// A host with waiting or open links. It names another host once the last of these has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostId(u32);

impl HostId {
    /// Returns the id of the host at a place.
    pub(crate) fn at(index: usize) -> Self {
        Self(index as u32)
    }

    /// Returns the place.
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}
