//! Points in functions of the process itself: an unmodified server behind TLS by the functions of libssl, and probes that cannot be.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::time::{ClockId, clock_gettime};
use serde_json::Value;
use trieline_testbed::command::{Running, binary_path, run};
use trieline_testbed::{eventually, needs_root, skip};

use super::refused::{end, start};
use super::relay;

const REQUESTS: usize = 50;

fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// A server that ends with the test, and its workers with it.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.0);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let _ = self.0.wait();
    }
}

/// nginx with a certificate of its own: a master and one worker; `None` where it is not installed.
fn server(folder: &Path) -> Option<(Server, u16)> {
    let at = folder.display();
    let certificate = run(&format!(
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=here -keyout {at}/key -out {at}/crt"
    ));
    certificate.ok();
    let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|name| format!("{name}_temp_path {at}/{name};"))
        .concat();
    let text = format!(
        "daemon off; worker_processes 1; user root; pid {at}/pid; error_log {at}/error.log; events {{}} http {{ access_log off; \
         {temporary} server {{ listen 127.0.0.1:{port} ssl; ssl_certificate {at}/crt; ssl_certificate_key {at}/key; \
         location / {{ return 200 done; }} }} }}"
    );
    fs::write(folder.join("nginx.conf"), text).unwrap();
    let path = format!("{}:/usr/sbin", std::env::var("PATH").unwrap_or_default());
    let mut nginx = Command::new("nginx");
    nginx.env("PATH", path).arg("-c").arg(folder.join("nginx.conf")).arg("-p").arg(folder);
    let Ok(child) = nginx.stdout(Stdio::null()).stderr(Stdio::null()).spawn() else {
        skip("nginx is not installed (./dev setup)");
        return None;
    };
    let server = Server(child);
    assert!(eventually(20.0, || TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok()));
    Some((server, port))
}

#[test]
fn a_servers_messages_are_found_behind_tls() {
    needs_root!();
    let folder = tempfile::tempdir().unwrap();
    let Some((server, port)) = server(folder.path()) else { return };
    let master = server.0.id().to_string();
    let children = format!("/proc/{master}/task/{master}/children");
    let mut worker = String::new();
    assert!(eventually(10.0, || {
        worker = fs::read_to_string(&children).unwrap().trim().to_owned();
        !worker.is_empty()
    }));
    let mut client = Command::new("openssl");
    client.args(["s_client", "-quiet", "-connect", &format!("127.0.0.1:{port}")]);
    client.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut client = Running(client.spawn().unwrap());
    let mut to = client.stdin.take().unwrap();
    let mut from = BufReader::new(client.stdout.take().unwrap());
    let mut ask = || {
        let sent_ns = now();
        to.write_all(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n").unwrap();
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert!(from.read_line(&mut head).unwrap() > 0, "{head}");
        }
        assert!(head.starts_with("HTTP/1.1 200") && head.contains("Content-Length: 4"), "{head}");
        from.read_exact(&mut [0; 4]).unwrap();
        (sent_ns, now())
    };
    ask();

    let functions =
        ["--uprobe", "received=libssl.so.3:SSL_read%return", "--uprobe", "sent=libssl.so.3:SSL_write"];
    let rows = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let csv = [rows("worker"), rows("children")];
    let worker = start(&[&["-p", &worker, "--strict", "--csv", &csv[0]], &functions[..]].concat());
    let children = start(&[&["-p", &master, "--children", "--csv", &csv[1]], &functions[..]].concat());
    let trips: Vec<(u64, u64)> = (0..REQUESTS).map(|_| ask()).collect();
    for trace in [worker, children] {
        let (code, report, printed) = end(trace);
        let count = |key: &str| report[key].as_u64();
        let all = Some(REQUESTS as u64);
        assert_eq!(
            (code, count("received"), count("sent"), count("matched")),
            (0, all, all, all),
            "{report} {printed}"
        );
        assert_eq!((&report["hooks"], &report["cost"]), (&"user".into(), &Value::Null), "{report}");
        let stage = &report["stages"][0];
        assert_eq!((&stage["from"], &stage["same_socket"]), (&"function".into(), &false.into()), "{report}");
    }
    for path in csv {
        let text = fs::read_to_string(path).unwrap();
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split(',').collect()).collect();
        let column = |name: &str| lines[0].iter().position(|column| *column == name).unwrap();
        assert_eq!(lines.len(), 1 + REQUESTS);
        for (line, (sent_ns, answered_ns)) in lines[1..].iter().zip(&trips) {
            let number = |name: &str| line[column(name)].parse::<u64>().unwrap();
            let times = [*sent_ns, number("received_ns"), number("left_ns"), *answered_ns];
            assert!(times.is_sorted(), "{times:?}");
            // The request in the clear.
            assert_eq!((number("bytes_in"), number("bytes_out")), (30, 0), "{line:?}");
        }
    }
}

#[test]
fn probe_cost_is_measured_on_the_process() {
    needs_root!();
    let folder = tempfile::tempdir().unwrap();
    let (broker, mut from, mut to) = relay(folder.path());
    let probes = ["--usdt", "received=relay:relay:received", "--usdt", "sent=relay:relay:sending"];
    let process = broker.id().to_string();
    let command = [&["trace", "--live-cost", "--duration", "2.5", "-p", &process], &probes[..]].concat();
    let mut trace = Command::new(binary_path("trieline"));
    let mut trace = trace.args(command).stdout(Stdio::piped()).spawn().unwrap();
    while trace.try_wait().unwrap().is_none() {
        from.write_all(&[7; 64]).unwrap();
        to.read_exact(&mut [0; 64]).unwrap();
    }
    let output = trace.wait_with_output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success());
    for words in [
        "hooks: user ",
        "  uprobe ",
        "\ncost: not measured: ",
        " --live-cost measures it",
        "\nlive: with the hooks ",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
    assert!(!text.contains("UDP on loopback") && !text.contains("(0 pairs"), "{text}");
}

#[test]
fn probes_that_cannot_be_are_refused_in_words() {
    let trace = |arguments: &str| run(&format!("{} trace {arguments}", binary_path("trieline")));
    let sent = "--uprobe sent=/bin/sh:main";
    trace("--comm x --uprobe SSL_read").fails(2, &["`SSL_read`: expected POINT=FILE:FUNCTION", "%return"]);
    trace("--comm x --usdt sent=/bin/sh:main").fails(2, &["expected POINT=FILE:PROVIDER:NAME"]);
    trace(&format!("--comm x {sent}"))
        .fails(1, &["no function in which a message is received", "received=FILE"]);
    let both = format!("{sent} --uprobe received=/bin/sh:main");
    for (option, why) in [
        ("--port 80", "no socket"),
        ("--transport tcp", "no socket"),
        ("--client 1", "no socket"),
        ("--id 0:8", "no bytes"),
        ("--decode mqtt", "no bytes"),
        ("--capture 8", "no bytes"),
        ("--stamp 8", "no bytes"),
        ("--done", "where the probe is"),
        ("--hooks sockets", "the probes are the hooks"),
    ] {
        let name = option.split(' ').next().unwrap();
        trace(&format!("--comm x {both} {option}"))
            .fails(2, &[&format!("{name} does not go with --uprobe"), why]);
    }
    trace(&format!("--comm x {both} --records r")).fails(2, &["--records", "cannot be used with"]);
    run(&format!("{} trace calibrate --comm x {both}", binary_path("trieline")))
        .fails(1, &["a pair of sockets", "--live-cost"]);
}

#[test]
fn files_without_the_function_have_distinct_errors() {
    needs_root!();
    let folder = tempfile::tempdir().unwrap();
    let (broker, _from, _to) = relay(folder.path());
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    run(&format!("strip -o {} {}", at("stripped"), at("relay"))).ok();
    fs::write(at("text"), "relay_send").unwrap();
    let trace = |who: &str, probe: &str| {
        run(&format!(
            "{} trace {who} --duration 0.1 --uprobe received={}:relay_receive%return {probe}",
            binary_path("trieline"),
            at("relay")
        ))
    };
    let anyone = |probe: &str| trace("--comm absent", &format!("--{probe}"));
    anyone(&format!("uprobe sent={}:relay_send", at("none"))).fails(1, &[&at("none"), "No such file"]);
    anyone(&format!("uprobe sent={}:relay_send", at(""))).fails(1, &["expected a file"]);
    anyone(&format!("uprobe sent={}:relay_send", at("text"))).fails(1, &[&at("text"), "not an ELF file"]);
    anyone(&format!("uprobe sent={}:relay_sent", at("relay")))
        .fails(1, &["no function `relay_sent`; nearest: relay_send, "]);
    anyone(&format!("uprobe sent={}:relay_send", at("stripped")))
        .fails(1, &["no function `relay_send` (it is stripped"]);
    anyone(&format!("uprobe sent={}:relay_send+4096", at("relay")))
        .fails(1, &["+4096: the function relay_send has "]);
    anyone("uprobe sent=relay:relay_send").fails(1, &["relay: expected an absolute path"]);
    anyone("usdt sent=/bin/sh:relay:sent").fails(1, &["/bin/sh: it has no static probes"]);
    anyone(&format!("usdt sent={}:relay:sent", at("relay")))
        .fails(1, &["`relay:sent`; nearest: relay:sending, "]);
    // A program of Go, as Debian has it.
    let go = "/usr/sbin/nats-server";
    if Path::new(go).exists() {
        anyone(&format!("uprobe sent={go}:main.main%return")).fails(1, &[go, "%return: a program of Go"]);
    } else {
        skip("nats-server is not installed (./dev setup)");
    }
    let own = |probe: &str| trace(&format!("-p {}", broker.id()), &format!("--uprobe sent={probe}"));
    let process = format!("process {} has ", broker.id());
    own("libssl.so.3:SSL_write").fails(1, &[&process, "mapped no such file"]);
    own("./relay:relay_send").fails(1, &["./relay: expected an absolute path, or the name"]);
    fs::create_dir(at("other")).unwrap();
    fs::copy(at("relay"), at("other/relay")).unwrap();
    own(&format!("{}:relay_send", at("other/relay")))
        .fails(1, &[&process, &format!("not mapped it, but {}", at("relay"))]);
    own("relay:relay_send").fails(3, &[]);
    // Every process that maps the file, if there is any.
    let seen = anyone(&format!("usdt sent={}:relay:sending", at("relay")));
    assert!(seen.code == 3 && seen.stdout.contains("no message was seen"), "{seen:?}");
}
