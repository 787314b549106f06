//! The clients with visits of each host, and how many reports they owe about it.
//!
//! Invariants: a client that owes a report gets no further request for the host while another
//! client has visits there. A client alone at a host is never held up.
//!
//! Must not know: visits and their steps.

use std::collections::HashMap;

use dashmap::DashMap;

use crate::auth::Client;

/// The clients of all hosts with visits.
#[derive(Debug, Default)]
pub(super) struct HostClients {
    hosts: DashMap<Box<str>, HashMap<Client, ClientCounts>>,
}

#[derive(Debug, Default)]
struct ClientCounts {
    visits: usize,
    overdue: usize,
}

impl HostClients {
    /// Counts a visit of a client.
    pub(super) fn enter(&self, host: &str, client: Client) {
        self.hosts.entry(host.into()).or_default().entry(client).or_default().visits += 1;
    }

    /// Uncounts a visit of a client, whose report is `owed` or not.
    pub(super) fn leave(&self, host: &str, client: Client, owed: bool) {
        if owed {
            self.reported(host, client);
        }
        self.hosts.remove_if_mut(host, |_, clients| {
            if let Some(counts) = clients.get_mut(&client) {
                counts.visits = counts.visits.saturating_sub(1);
                if counts.visits == 0 {
                    clients.remove(&client);
                }
            }
            clients.is_empty()
        });
    }

    /// Records that a client owes a report.
    pub(super) fn overdue(&self, host: &str, client: Client) {
        self.change(host, client, |counts| counts.overdue += 1);
    }

    /// Records that a report that was owed has come.
    pub(super) fn reported(&self, host: &str, client: Client) {
        self.change(host, client, |counts| counts.overdue = counts.overdue.saturating_sub(1));
    }

    /// Returns whether a client gets no further request for a host.
    pub(super) fn is_held(&self, host: &str, client: Client) -> bool {
        let Some(clients) = self.hosts.get(host) else { return false };
        clients.len() > 1 && clients.get(&client).is_some_and(|counts| counts.overdue > 0)
    }

    /// Forgets all visits.
    pub(super) fn clear(&self) {
        self.hosts.clear();
    }

    fn change(&self, host: &str, client: Client, change: impl FnOnce(&mut ClientCounts)) {
        if let Some(mut clients) = self.hosts.get_mut(host)
            && let Some(counts) = clients.get_mut(&client)
        {
            change(counts);
        }
    }
}
