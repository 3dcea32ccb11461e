//! The daemon's answers: its socket, its requests, its status and routes as JSON, and the client's half of each.

pub mod client;
pub mod control;
pub mod hint;
pub mod instance;
pub mod route;
pub mod route_json;
pub mod route_query;
pub mod status;
pub mod verdict_hint;
