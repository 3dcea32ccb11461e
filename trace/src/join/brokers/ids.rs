//! Servers that answer with the id that came, relays that pass it on to their subscribers, and servers and proxies with equal requests at
//! once.

use std::collections::{HashMap, VecDeque};

use super::*;
use crate::decode::ANSWER;

const SERVER: u32 = 1;
const DATAGRAMS: u32 = 2;
const RELAY: u32 = 3;
const NEXT_RELAY: u32 = 4;
const WEB: u32 = 5;
const PROXY: u32 = 6;
/// They send a message twice by one socket.
const RELAY_AGAIN: u32 = 7;
const SERVER_AGAIN: u32 = 8;

const SUBSCRIBERS: u64 = 4;

/// Messages that wait to be sent, in no order.
#[derive(Debug)]
struct Pending {
    received: Record,
    to: u64,
    id: u64,
}

/// A request that a proxy has passed on.
#[derive(Debug)]
struct Asked {
    client: u64,
    server: u64,
    id: u64,
    /// Its answer has come.
    answer: Option<Record>,
    /// It was under way as something was lost: the decoder does not know its answer.
    is_cut: bool,
}

#[derive(Debug, Default)]
struct Model {
    run: Run,
    pending: Vec<(u32, Pending)>,
    next_ids: [u64; 4],
    /// A subscriber's copies that have not left: the id and what was received.
    queues: [VecDeque<(u64, Record)>; SUBSCRIBERS as usize],
    /// Messages that have left, at least in part.
    has_left: HashSet<(u64, u64)>,
    /// Copies of the relay that sends twice, of each subscriber.
    again: [VecDeque<(u64, Record)>; 2],
    /// Answers of the server that answers twice: the second ones have their request no more.
    answers_again: Vec<(u64, u64, Option<Record>)>,
    web: Vec<Asked>,
    proxy: Vec<Asked>,
    /// Connections with a request.
    busy: HashMap<(u32, u64), ()>,
}

fn named(id: u64, kind: Kind, record: Record) -> Record {
    Record { id: Some(id), kind, flags: Flags(Flags::HAS_ID), ..record }
}

impl Model {
    fn record(&mut self, step: u32, process: u32, point: Point, socket: u64) -> Record {
        let time = self.run.tick(step);
        let transport = if process == DATAGRAMS { Transport::Udp } else { Transport::Tcp };
        event(time, process, process * 10 + step % 3, point, transport, socket + 1000 * u64::from(process))
    }

    /// Notes it; of some the id is not seen.
    fn note(&mut self, step: u32, record: Record) {
        let is_unseen = step.is_multiple_of(37) && matches!(record.kind, Kind::Message | Kind::Publish);
        let unseen = Record { id: None, flags: Flags(Flags::NO_BUFFER), ..record };
        self.run.note(if is_unseen { unseen } else { record }.into());
    }

    fn is_true(&mut self, received: &Record, sent: &Record) {
        self.run.truth.insert(way(received, sent));
    }

    /// The first copy of a message is its T2.
    fn leaves(&mut self, received: &Record, sent: &Record) {
        if self.has_left.insert((received.time_ns, received.socket)) {
            self.is_true(received, sent);
        }
    }

    /// Clients count from zero, each for itself, and soon again.
    fn server(&mut self, step: u32) {
        let client = u64::from(step / 2 % 4);
        let process = if step & 1 == 0 { SERVER } else { DATAGRAMS };
        let id = self.next_ids[client as usize] % 64;
        let is_again = (step / 8).is_multiple_of(16) && process == DATAGRAMS;
        // No client asks by an id that has no answer yet; of others it knows nothing.
        if process == SERVER
            && self.pending.iter().any(|(of, open)| (*of, open.to, open.id) == (process, client, id))
        {
            return;
        }
        self.next_ids[client as usize] += u64::from(!is_again);
        // Of datagrams all come by one socket.
        let socket = if process == SERVER { client } else { 0 };
        let record = self.record(step, process, Point::Received, socket);
        let received = named(id, Kind::Message, record);
        self.note(step / 128, received);
        self.pending.push((process, Pending { received, to: socket, id }));
    }

    fn serve(&mut self, step: u32) {
        if self.pending.is_empty() {
            return;
        }
        let at = step as usize / 64 % self.pending.len();
        let (process, Pending { received, to, id }) = self.pending.remove(at);
        let record = self.record(step, process, Point::Queued, to);
        let sent = named(id, Kind::Message, record);
        self.is_true(&received, &sent);
        self.note(step / 64, sent);
    }

    fn publish(&mut self, step: u32) {
        let publisher = 10 + u64::from(step % 3);
        let is_of_sensor = step & 8 != 0;
        let id = if is_of_sensor { u64::from(step / 16 % 2) } else { 1000 + self.run.now_ns };
        let record = self.record(step, RELAY, Point::Received, publisher);
        let received = named(id, Kind::Publish, record);
        self.note(step / 64, received);
        for (subscriber, queue) in self.queues.iter_mut().enumerate() {
            // One comes and goes, one loses some.
            let is_there = match subscriber {
                0 | 1 => true,
                2 => !(step / 1024).is_multiple_of(3),
                _ => !(step / 4096).is_multiple_of(16),
            };
            if is_there {
                queue.push_back((id, received));
            }
        }
    }

    /// A subscriber's copies leave in their order; of one subscriber the next relay takes them, and passes them on.
    fn deliver(&mut self, step: u32) {
        // Some are slow.
        let subscriber = [0, 0, 0, 1, 1, 2, 2, 3][step as usize % 8];
        let Some((id, received)) = self.queues[subscriber].pop_front() else { return };
        let record = self.record(step, RELAY, Point::Queued, 20 + subscriber as u64);
        let sent = named(id, Kind::Publish, record);
        self.leaves(&received, &sent);
        self.note(step / 64, sent);
        if subscriber == 1 {
            let record = self.record(step, NEXT_RELAY, Point::Received, 1);
            let received = named(id, Kind::Publish, record);
            self.note(step / 128, received);
            let record = self.record(step, NEXT_RELAY, Point::Queued, 2);
            let sent = named(id, Kind::Publish, record);
            self.leaves(&received, &sent);
            self.note(step / 256, sent);
        }
    }

    fn publish_again(&mut self, step: u32) {
        let id = u64::from(step % 4);
        let record = self.record(step, RELAY_AGAIN, Point::Received, 10);
        let received = named(id, Kind::Publish, record);
        self.note(step / 64, received);
        for (subscriber, queue) in self.again.iter_mut().enumerate() {
            let copies = 1 + usize::from(step >> (8 + subscriber) & 1 == 0);
            queue.extend(std::iter::repeat_n((id, received), copies));
        }
    }

    fn deliver_again(&mut self, step: u32) {
        let subscriber = step as usize % 2;
        let Some((id, received)) = self.again[subscriber].pop_front() else { return };
        let record = self.record(step, RELAY_AGAIN, Point::Queued, 20 + subscriber as u64);
        let sent = named(id, Kind::Publish, record);
        self.leaves(&received, &sent);
        self.note(step / 64, sent);
    }

    fn ask_again(&mut self, step: u32) {
        let (client, id) = (u64::from(step % 3), u64::from(step / 4 % 3));
        let is_open =
            |(of, open, asked): &(u64, u64, Option<Record>)| (*of, *open) == (client, id) && asked.is_some();
        if self.answers_again.iter().any(is_open) {
            return;
        }
        let record = self.record(step, SERVER_AGAIN, Point::Received, client);
        let received = named(id, Kind::Message, record);
        self.note(step / 64, received);
        self.answers_again.push((client, id, Some(received)));
    }

    fn answer_again(&mut self, step: u32) {
        if self.answers_again.is_empty() {
            return;
        }
        let at = step as usize / 64 % self.answers_again.len();
        let (client, id, asked) = self.answers_again.remove(at);
        let record = self.record(step, SERVER_AGAIN, Point::Queued, client);
        let sent = named(id, Kind::Message, record);
        if let Some(received) = asked {
            self.is_true(&received, &sent);
            if step >> 4 & 1 == 0 {
                self.answers_again.push((client, id, None));
            }
        }
        self.note(step / 64, sent);
    }

    /// One request at a time by each connection, for one of few pages.
    fn ask(&mut self, step: u32) {
        let (process, client, id) = (WEB + step % 2, u64::from(step / 2 % 6), u64::from(step / 16 % 3));
        if self.busy.insert((process, client), ()).is_some() {
            return;
        }
        let record = self.record(step, process, Point::Received, client);
        let received = named(id, Kind::Request, record);
        self.run.note(received.into());
        let asked = Asked { client, server: 0, id, answer: Some(received), is_cut: false };
        if process == WEB || (step / 64).is_multiple_of(4) {
            // A server, or a proxy that has the page.
            self.web.push(Asked { server: u64::from(process), ..asked });
            return;
        }
        let server = 20 + client;
        let record = self.record(step, PROXY, Point::Queued, server);
        let sent = named(id, Kind::Request, record);
        self.is_true(&received, &sent);
        self.run.note(sent.into());
        self.proxy.push(Asked { server, answer: None, ..asked });
    }

    fn answer(&mut self, step: u32) {
        let response = |asked: &Asked, record: Record| match asked.is_cut {
            false => named(asked.id ^ ANSWER, Kind::Response, record),
            true => Record { kind: Kind::Response, flags: Flags(Flags::ABSENT), ..record },
        };
        if step & 1 == 0 && !self.web.is_empty() {
            let at = step as usize / 2 % self.web.len();
            let asked = self.web.swap_remove(at);
            let process = asked.server as u32;
            self.busy.remove(&(process, asked.client));
            let record = self.record(step, process, Point::Queued, asked.client);
            let sent = response(&asked, record);
            if let Some(received) = asked.answer {
                self.is_true(&received, &sent);
            }
            self.run.note(sent.into());
        } else if !self.proxy.is_empty() {
            let at = step as usize / 2 % self.proxy.len();
            let mut asked = self.proxy.swap_remove(at);
            if let Some(received) = asked.answer {
                self.busy.remove(&(PROXY, asked.client));
                let record = self.record(step, PROXY, Point::Queued, asked.client);
                let sent = response(&asked, record);
                self.is_true(&received, &sent);
                self.run.note(sent.into());
            } else {
                let record = self.record(step, PROXY, Point::Received, asked.server);
                let received = response(&asked, record);
                self.run.note(received.into());
                asked.answer = Some(received);
                self.proxy.push(asked);
            }
        }
    }
}

/// Follows so few ids that some are dropped before they are done.
pub(super) fn run_with_few(steps: &Steps) -> Result<(u64, usize), TestCaseError> {
    run_in(Model { run: Run { ids_max: Some(8), ..Run::default() }, ..Model::default() }, steps)
}

pub(super) fn run(steps: &Steps) -> Result<(u64, usize), TestCaseError> {
    run_in(Model::default(), steps)
}

fn run_in(mut model: Model, steps: &Steps) -> Result<(u64, usize), TestCaseError> {
    // Those that send twice are known by it.
    for _ in 0..3 {
        model.publish_again(256);
        (0..4).for_each(|copy| model.deliver_again(256 + copy % 2));
        model.ask_again(256);
        [256, 256].into_iter().for_each(|step| model.answer_again(step));
    }
    // A sensor is known as one before anything is lost, and so are clients that count alike.
    [257, 259].into_iter().for_each(|step| model.server(step));
    [256, 256].into_iter().for_each(|step| model.serve(step));
    for step in [8, 0, 24, 1, 8, 0, 24, 1, 0, 0, 1, 1] {
        match step {
            8.. => model.publish(256 + step),
            0 => model.deliver(256),
            _ => model.deliver(259),
        }
    }
    for step in steps {
        let (kind, step) = (step % 20, step / 20);
        if step % 97 == 0 {
            model.run.lose(1 + step / 128 % 6);
            let under_way = model.web.iter_mut().chain(&mut model.proxy);
            under_way.for_each(|asked| asked.is_cut = true);
        }
        let was_losing = model.run.losing > 0;
        match kind {
            0 | 1 => model.server(step),
            2..=4 => model.serve(step),
            5 | 6 => model.publish(step),
            7 | 8 | 13 | 14 | 15 => model.deliver(step),
            9 | 10 => model.ask(step),
            16 => model.publish_again(step),
            17 => model.deliver_again(step),
            18 => model.ask_again(step),
            19 => model.answer_again(step),
            _ => model.answer(step),
        }
        if was_losing || model.run.losing > 0 {
            // Their decoders start again.
            let under_way = model.web.iter_mut().chain(&mut model.proxy);
            under_way.for_each(|asked| asked.is_cut = true);
        }
    }
    let found = model.run.check(By::Id)?;
    Ok((model.run.received, found))
}
