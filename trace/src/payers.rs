//! The payers of each hook while it is attached: all that pass its place in the kernel, traced or not.

/// A hook that is attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Payer {
    /// Its place in the kernel, as the kernel calls it.
    pub hook: &'static str,
    /// The processes or packets that run through it.
    pub who: &'static str,
}

/// The hook at the device's queue.
pub(crate) const QUEUE: &str = "net_dev_queue";

const RECEIVES: &str = "every process, at each receive from a socket, also one that finds nothing (EAGAIN)";
const SENDS: &str = "every process, at each send to a socket";
const CALLS: &str =
    "processes that call the functions: with -p alone those that it names, else all that map the file";

/// Of a program of `bpf/trace.bpf.c`.
pub(crate) fn of(program: &str) -> Payer {
    let (hook, who) = match program {
        "socket_received" => ("sock_recv_length", RECEIVES),
        "socket_sent" => ("sock_send_length", SENDS),
        "inet_recvmsg_ended" => ("fexit inet_recvmsg", RECEIVES),
        "inet6_recvmsg_ended" => ("fexit inet6_recvmsg", RECEIVES),
        "unix_stream_recvmsg_ended" => ("fexit unix_stream_recvmsg", RECEIVES),
        "unix_dgram_recvmsg_ended" => ("fexit __unix_dgram_recvmsg", RECEIVES),
        "inet_sendmsg_ended" => ("fexit inet_sendmsg", SENDS),
        "inet6_sendmsg_ended" => ("fexit inet6_sendmsg", SENDS),
        "unix_stream_sendmsg_ended" => ("fexit unix_stream_sendmsg", SENDS),
        "unix_dgram_sendmsg_ended" => ("fexit unix_dgram_sendmsg", SENDS),
        "call_ended" => ("sys_exit", "every process, at every system call"),
        "device_queued" => (
            QUEUE,
            "every packet that the kernel sends or forwards, acknowledgements too (XDP's are not among them)",
        ),
        "device_received" => ("netif_receive_skb", "every packet that the kernel receives by any device"),
        "stamp_leaving" => ("tcx egress", "every packet that leaves by a device of this network namespace"),
        "thread_ended" => ("sched_process_exit", "every thread, as it ends"),
        "program_begins" => ("sched_process_exec", "every process, as it begins another program"),
        _ => ("uprobe", CALLS),
    };
    Payer { hook, who }
}
