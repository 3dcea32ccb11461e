//! Servers of HTTP and Redis, by the bytes on their sockets, in calls of any size with their first bytes seen. Requests come one at a time or
//! several at once, answers before their request's end.

use std::collections::VecDeque;

use super::*;
use crate::decode::Decoding;

const CLIENTS: usize = 4;

/// A request of a connection: where it ends in what comes in, and its answer.
#[derive(Debug)]
struct Request {
    head: usize,
    end: usize,
    answer: Vec<u8>,
    received_ns: u64,
    /// Where its answer begins in what goes out, once that is written.
    answered: Option<usize>,
    sent_ns: u64,
}

#[derive(Debug, Default)]
struct Client {
    is_pipelining: bool,
    coming: VecDeque<u8>,
    asked: usize,
    read: usize,
    going: VecDeque<u8>,
    answered: usize,
    written: usize,
    requests: Vec<Request>,
}

struct Model {
    run: Run,
    decoding: Decoding,
    capture: usize,
    clients: [Client; CLIENTS],
}

/// A request's head, its rest, and its answer.
fn request(is_redis: bool, step: u32) -> (Vec<u8>, Vec<u8>, Vec<u8>) {
    let (kind, page, length) = (step % 8, step / 8 % 3, step as usize / 32 % 90);
    let body = "x".repeat(length);
    let mut answer = match (is_redis, step / 4096 % 5) {
        (true, 0) => b"$-1\r\n".to_vec(),
        (true, 1) => b":7\r\n".to_vec(),
        (true, _) => format!("${length}\r\n{body}\r\n").into_bytes(),
        (false, 0) => b"HTTP/1.1 204 No\r\n\r\n".to_vec(),
        (false, 1) => format!(
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n{body}x\r\n0\r\n\r\n",
            length + 1
        )
        .into_bytes(),
        (false, _) => format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{body}").into_bytes(),
    };
    let (head, rest) = match (is_redis, kind) {
        (true, 0..=3) => (format!("*2\r\n$3\r\nGET\r\n$1\r\n{page}\r\n"), String::new()),
        (true, _) => (format!("*3\r\n$3\r\nSET\r\n$1\r\n{page}\r\n${length}\r\n{body}\r\n"), String::new()),
        (false, 0..=3) => (format!("GET /{page} HTTP/1.1\r\n\r\n"), String::new()),
        (false, 4) => {
            answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n").into_bytes();
            (format!("HEAD /{page} HTTP/1.1\r\n\r\n"), String::new())
        }
        (false, 5) => {
            let rest = format!("{:x}\r\n{body}x\r\n0\r\n\r\n", length + 1);
            (format!("POST /{page} HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"), rest)
        }
        (false, _) => (format!("POST /{page} HTTP/1.1\r\nContent-Length: {length}\r\n\r\n"), body),
    };
    if !is_redis && (step / 1024).is_multiple_of(4) {
        answer = [&b"HTTP/1.1 100 Continue\r\n\r\n"[..], &answer].concat();
    }
    (head.into_bytes(), rest.into_bytes(), answer)
}

impl Model {
    fn ask(&mut self, client: usize, is_redis: bool, step: u32) {
        let of = &mut self.clients[client];
        let open = of.requests.iter().filter(|request| request.answered.is_none()).count();
        let is_over = open == 0 && of.going.is_empty() && of.coming.is_empty();
        if !is_over && (!of.is_pipelining || open > 3) {
            return;
        }
        let (head, rest, answer) = request(is_redis, step);
        let begin = of.asked;
        of.coming.extend(head.iter().chain(&rest));
        of.asked += head.len() + rest.len();
        of.requests.push(Request {
            head: begin + head.len(),
            end: of.asked,
            answer,
            received_ns: 0,
            answered: None,
            sent_ns: 0,
        });
    }

    /// A call; the decoder sees it, unless it is lost.
    fn call(&mut self, client: usize, point: Point, bytes: &[u8], step: u32) -> u64 {
        let Model { run, decoding, capture, .. } = self;
        let time = run.tick(step);
        if run.losing > 0 {
            run.losing -= 1;
            run.has_lost = true;
            return time;
        }
        if std::mem::take(&mut run.has_lost) {
            decoding.lose(time);
            run.events.push(Event::Gap { time_ns: time });
        }
        let call = event(time, 1, 7, point, Transport::Tcp, client as u64);
        let call = Record { bytes: bytes.len() as u32, ..call };
        decoding.take(call, &bytes[..bytes.len().min(*capture)], &mut |record| run.note(record.into()));
        time
    }

    fn read(&mut self, client: usize, step: u32) {
        let of = &mut self.clients[client];
        let count = if step & 1 == 0 { of.coming.len() } else { of.coming.len().min(step as usize / 2 % 70) };
        let bytes: Vec<u8> = of.coming.drain(..count).collect();
        of.read += count;
        if bytes.is_empty() {
            return;
        }
        let time = self.call(client, Point::Received, &bytes, step);
        let of = &mut self.clients[client];
        let read = of.read;
        for request in
            of.requests.iter_mut().filter(|request| request.end <= read && request.received_ns == 0)
        {
            request.received_ns = time;
        }
    }

    fn answer(&mut self, client: usize, step: u32) {
        let of = &mut self.clients[client];
        let is_early = step.is_multiple_of(5);
        let next = of.requests.iter_mut().find(|request| request.answered.is_none());
        let Some(request) =
            next.filter(|request| request.end <= of.read || is_early && request.head <= of.read)
        else {
            return;
        };
        // An interim answer goes before the answer itself.
        let interim = if request.answer.starts_with(b"HTTP/1.1 100") { 25 } else { 0 };
        request.answered = Some(of.answered + interim);
        of.answered += request.answer.len();
        of.going.extend(&request.answer);
    }

    fn write(&mut self, client: usize, step: u32) {
        let of = &mut self.clients[client];
        let count = if step & 1 == 0 { of.going.len() } else { of.going.len().min(step as usize / 2 % 70) };
        let bytes: Vec<u8> = of.going.drain(..count).collect();
        of.written += count;
        if bytes.is_empty() {
            return;
        }
        let time = self.call(client, Point::Queued, &bytes, step);
        let of = &mut self.clients[client];
        for request in &mut of.requests {
            if request.sent_ns == 0 && request.answered.is_some_and(|answered| answered < of.written) {
                request.sent_ns = time;
            }
        }
    }
}

pub(super) fn run(steps: &Steps) -> Result<(u64, usize), TestCaseError> {
    let is_redis = steps[0] & 1 == 0;
    let capture = if steps[0] & 2 == 0 { usize::MAX } else { 300 };
    let decode = if is_redis { "redis" } else { "http" };
    let decoding = Decoding::new(decode.parse().map_err(TestCaseError::fail)?);
    let mut model = Model { run: Run::default(), decoding, capture, clients: Default::default() };
    for client in (0..CLIENTS).filter(|client| client % 2 == 1) {
        // It is known to send several at once before anything is lost.
        model.clients[client].is_pipelining = true;
        (0..2).for_each(|_| model.ask(client, is_redis, 0));
        model.read(client, 0);
        (0..2).for_each(|_| model.answer(client, 1));
        model.write(client, 0);
    }
    for step in steps {
        let (kind, client, step) = (step % 8, *step as usize / 8 % CLIENTS, step / 64);
        if step % 149 == 0 {
            model.run.lose(1 + step / 256 % 4);
        }
        match kind {
            0 | 1 => model.ask(client, is_redis, step),
            2 | 3 => model.read(client, step),
            4 | 5 => model.answer(client, step),
            _ => model.write(client, step),
        }
    }
    let mut messages = 0;
    for of in &model.clients {
        for request in of.requests.iter().filter(|request| request.received_ns > 0) {
            messages += 1;
            if request.sent_ns > 0 {
                model.run.truth.insert((request.received_ns, request.sent_ns));
            }
        }
    }
    let found = model.run.check(By::Id)?;
    Ok((messages, found))
}
