//! The program as a server: every line of its contract, hostile clients, and what is left after a kill.


mod attempts;
mod clients;
mod contract;
mod description;
mod forget;
mod full_disk;
mod hostile;
mod unpause;
mod reload;
mod rollout;
mod server;
mod tokens;
mod maintenance;
mod visits;
