//! Servers whose threads take a message each, and one whose threads take turns.

use std::collections::{HashMap, HashSet, VecDeque};

use super::*;
use crate::runtime::Runtime;

/// Its threads send what others have received.
const SHARED: u32 = 3;

#[derive(Debug)]
enum Act {
    /// Closes it, if it is there, and opens one at its address.
    Open(u64, Transport),
    Read(u64, Transport),
    /// A send of the message that came last, or of the one so many before it.
    Send(u64, Transport, usize),
    /// Something else.
    Write(u64, Transport),
}

#[derive(Debug, Default)]
struct Worker {
    process: u32,
    thread: u32,
    plan: VecDeque<Act>,
    /// In hand.
    received: Vec<Record>,
    /// Ways that a message in hand has left by: what counts is the first send.
    left: HashSet<(usize, Transport, bool)>,
}

/// Where something comes by.
fn socket(process: u32, number: u32) -> u64 {
    u64::from(1000 * process + number)
}

pub(super) fn run(steps: &Steps) -> Result<(u64, usize), TestCaseError> {
    let mut run = Run::default();
    // A socket at the place of another one has its number, with a record before it, or another number.
    let is_said = steps[0] & 1 == 0;
    let mut opened_at: HashMap<u64, u64> = HashMap::new();
    let worker = |index: u32| Worker { process: 1 + index / 3, thread: 10 + index, ..Worker::default() };
    let mut workers: Vec<Worker> = (0..9).map(worker).collect();
    for process in 1..=3 {
        let runtime = (process == SHARED).then_some(Runtime::Go);
        run.events.push(Event::Process { process, runtime });
    }
    // Of the process that shares: what came and was not sent.
    let mut shared: HashMap<u64, Record> = HashMap::new();
    for step in steps {
        let worker = (step % workers.len() as u32) as usize;
        let step = step / 16;
        if step % 61 == 0 {
            run.lose(1 + step / 64 % 6);
        }
        if workers[worker].plan.is_empty() {
            begin(&mut run, &mut workers, worker, step);
        }
        let of = &mut workers[worker];
        let Some(act) = of.plan.pop_front() else { continue };
        let time = run.tick(step);
        let (point, socket, transport) = match act {
            Act::Open(address, transport) => {
                let number = number(&opened_at, address, is_said);
                opened_at.insert(address, time);
                if is_said {
                    run.note(opened(number, transport));
                }
                continue;
            }
            Act::Read(socket, transport) => (Point::Received, socket, transport),
            Act::Send(socket, transport, _) | Act::Write(socket, transport) => {
                let is_queued = matches!(transport, Transport::Udp | Transport::Tcp);
                (if is_queued { Point::Queued } else { Point::Sent }, socket, transport)
            }
        };
        let socket = number(&opened_at, socket, is_said);
        let mut record = event(time, of.process, of.thread, point, transport, socket);
        record.socket = socket;
        match act {
            Act::Read(..) => of.received.push(record),
            Act::Send(_, transport, back) if of.process != SHARED => {
                let message = of.received[of.received.len() - 1 - back];
                if of.left.insert((back, transport, socket == message.socket)) {
                    run.truth.insert(way(&message, &record));
                }
            }
            Act::Send(..) => {
                // Whatever has waited longest, on whichever thread.
                if let Some(message) = shared.remove(&socket) {
                    run.truth.insert(way(&message, &record));
                }
            }
            Act::Open(..) | Act::Write(..) => {}
        }
        if of.process == SHARED && point == Point::Received {
            shared.entry(socket).or_insert(record);
        }
        run.note(record.into());
    }
    let received = run.received;
    let found = run.check(By::Thread)?;
    Ok((received, found))
}

/// The hooks' number of a socket.
fn number(opened_at: &HashMap<u64, u64>, address: u64, is_said: bool) -> u64 {
    let opened = opened_at.get(&address).filter(|_| !is_said);
    address + (opened.copied().unwrap_or(0) << 20)
}

/// The next step of a free thread.
fn begin(run: &mut Run, workers: &mut [Worker], index: usize, step: u32) {
    use Transport::{Tcp, Udp, UnixDatagram, UnixStream};
    let (kind, a, b) = (step % 10, step / 10 % 64, step / 640);
    let Worker { process, thread, .. } = workers[index];
    let connection = socket(process, 1 + a % 5);
    let is_busy = |socket: u64| {
        let is_in = |act: &Act| matches!(act, Act::Read(at, _) if *at == socket);
        let last = |worker: &Worker| {
            !worker.plan.is_empty() && worker.received.iter().any(|record| record.socket == socket)
        };
        workers.iter().any(|worker| worker.plan.iter().any(is_in) || last(worker))
    };
    let (other, log, journal) = (socket(process, 50 + b % 4), socket(process, 90), socket(process, 91));
    let (collector, statsd) = (socket(process, 92), socket(process, 93));
    let datagrams = socket(process, 20);
    let mut plan = VecDeque::new();
    match kind {
        // A request: in pieces, with lines of logs anywhere, passed on to some, answered or not.
        0..=4 if !is_busy(connection) => {
            (0..=b % 3).for_each(|_| plan.push_back(Act::Read(connection, Tcp)));
            if b & 4 != 0 {
                plan.push_back(Act::Write(log, UnixDatagram));
            }
            if b & 8 != 0 {
                plan.push_back(Act::Write(journal, UnixStream));
            }
            let copies = b / 16 % 4;
            // Before or after the message, where there is one.
            if copies > 0 && b & 512 != 0 {
                plan.push_back(Act::Write(collector, Tcp));
            }
            (0..copies).for_each(|copy| plan.push_back(Act::Send(other + u64::from(copy), Tcp, 0)));
            if copies > 0 && b & 1024 != 0 {
                plan.push_back(Act::Write(collector, Tcp));
            }
            if b & 64 != 0 {
                plan.push_back(Act::Send(datagrams, Udp, 0));
            }
            if b & 128 != 0 {
                plan.push_back(Act::Send(connection, Tcp, 0));
            }
            if b & 256 != 0 {
                plan.push_back(Act::Write(log, UnixDatagram));
            }
        }
        5 => {
            plan.push_back(Act::Read(datagrams, Udp));
            if b & 33 == 32 {
                plan.push_back(Act::Write(statsd, Udp));
            }
            plan.push_back(Act::Send(if b & 1 != 0 { datagrams } else { other }, Udp, 0));
            (0..b / 2 % 3).for_each(|_| plan.push_back(Act::Send(other, Udp, 0)));
        }
        // Several, and then what they led to, of each or of some.
        6 => {
            let count = 2 + b as usize % 3;
            (0..count).for_each(|_| plan.push_back(Act::Read(datagrams, Udp)));
            for back in (0..count).rev().filter(|back| b >> (4 + back) & 1 == 0) {
                plan.push_back(Act::Send(datagrams, Udp, back));
            }
        }
        7 => {
            let connections = [socket(process, 30 + index as u32), socket(process, 40 + index as u32)];
            connections.iter().for_each(|socket| plan.push_back(Act::Read(*socket, Tcp)));
            connections.iter().rev().enumerate().for_each(|(back, socket)| {
                plan.push_back(Act::Send(*socket, Tcp, back));
            });
        }
        // A name is looked up; then a line of a log goes by a socket that lies where that one lay.
        9 if !is_busy(connection) => {
            let address = socket(process, 60 + index as u32);
            plan.push_back(Act::Open(address, UnixDatagram));
            plan.push_back(Act::Read(address, UnixDatagram));
            plan.push_back(Act::Send(address, UnixDatagram, 0));
            plan.push_back(Act::Read(connection, Tcp));
            plan.push_back(Act::Open(address, UnixDatagram));
            plan.push_back(Act::Write(address, UnixDatagram));
            plan.push_back(Act::Send(connection, Tcp, 0));
        }
        // It ends, and its number is another's, maybe of another process.
        8 => {
            let time_ns = run.tick(step);
            run.note(Event::Ended { time_ns, thread });
            let other = (a as usize) % workers.len();
            if workers[other].plan.is_empty() {
                let time_ns = run.tick(step);
                run.note(Event::Ended { time_ns, thread: workers[other].thread });
                workers[index].thread = workers[other].thread;
                workers[other].thread = thread;
            }
        }
        _ => {}
    }
    let worker = &mut workers[index];
    if process == SHARED {
        // The order is nobody's.
        plan.rotate_left(usize::min(a as usize % 3, plan.len()));
    }
    (worker.plan, worker.received, worker.left) = (plan, Vec::new(), HashSet::new());
}
