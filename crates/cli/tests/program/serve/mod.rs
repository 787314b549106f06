//! The program as a server: its contract, hostile clients, and the state after a kill.

mod attempts;
mod attention;
mod clients;
mod contract;
mod description;
mod evicted;
mod forget;
mod full_disk;
mod hostile;
mod identity;
mod loading;
mod maintenance;
mod read_only;
mod reload;
mod rollout;
pub(crate) mod server;
mod tokens;
mod unpause;
mod visits;
