//! What the black-box tests stand on: namespaces, the daemon as a process, packets sent and caught.
