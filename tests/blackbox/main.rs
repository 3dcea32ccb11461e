//! trieline as its user sees it: real binaries, real kernel routes, real packets.

mod bed;
