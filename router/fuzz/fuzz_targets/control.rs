//! Bytes as what a command sends to the daemon's socket: read to the end or refused.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::io::Write;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use trieline_router::api::control::{Access, Client};
use trieline_router::api::route_query::Cursor;
use trieline_router::rib::mirror::Mirror;

/// The most bytes that a socket takes while its peer does not read.
const MOST: usize = 64 << 10;

fuzz_target!(|data: &[u8]| {
    if data.len() > MOST {
        return;
    }
    let (mut near, far) = UnixStream::pair().expect("two sockets");
    let mut client = Client::new(far, Access::Full).expect("a client");
    near.write_all(data).expect("room for all");
    near.shutdown(Shutdown::Write).expect("the end");
    let mirror = Mirror::default();
    let (mut requests, lines) = (0, data.iter().filter(|byte| **byte == b'\n').count());
    while let Ok(Some(request)) = client.request() {
        requests += 1;
        if let Ok(request) = request {
            let _ = Cursor::new(&request, &mirror);
        }
    }
    assert_eq!(requests, lines, "each line is a request");
});
