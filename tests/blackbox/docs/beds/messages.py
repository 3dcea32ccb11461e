#!/usr/bin/python3
"""Ends of messages for docs/trace.md. The name that this file runs by says which one: a process is traced by its name."""

import http.client, http.server, os, socket, ssl, subprocess, sys, time


def broker(port):
    """Sends back each datagram."""
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind(("", int(port)))
    while True:
        message, sender = server.recvfrom(2048)
        server.sendto(message, sender)


def sender(host, *ports):
    """Sends datagrams with an id of eight bytes at offset 8 and eight reserved bytes at offset 16."""
    sockets = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in ports]
    number = 0
    while True:
        for client, port in zip(sockets, ports):
            number += 1
            client.settimeout(0.1)
            try:
                client.connect((host, int(port)))
                client.send(b"message:" + number.to_bytes(8, "little") + bytes(48))
                client.recv(2048)
            except OSError:
                pass  # No broker listens there yet.
        time.sleep(0.005)


def browser(*urls):
    """Asks for pages, one after the other, by one connection each."""
    anybody = ssl._create_unverified_context()
    connections = []
    for url in urls:
        scheme, host = url.split("/")[0:3:2]
        to = http.client.HTTPSConnection(host, context=anybody) if scheme == "https:" else http.client.HTTPConnection(host)
        connections.append(to)
    while True:
        for to in connections:
            try:
                to.request("GET", "/")
                to.getresponse().read()
            except OSError:
                to.close()
        time.sleep(0.01)


def relay_messages(program, pid_file):
    """Lets a relay pass messages from one socket to another."""
    to, its_input = socket.socketpair()
    its_output, come = socket.socketpair()
    relay = subprocess.Popen([program, "recv"], stdin=its_input, stdout=its_output, stderr=subprocess.DEVNULL)
    with open(pid_file, "w") as file:
        print(relay.pid, file=file)
    while True:
        to.send(bytes(64))
        come.recv(64)
        time.sleep(0.01)


class Collector(http.server.BaseHTTPRequestHandler):
    """Takes spans as an OpenTelemetry collector does, and keeps them in a file."""

    def do_POST(self):
        with open("spans", "ab") as file:
            file.write(self.rfile.read(int(self.headers["Content-Length"])) + b"\n")
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_):
        pass


def collector(port):
    """Listens for spans."""
    http.server.HTTPServer(("127.0.0.1", int(port)), Collector).serve_forever()


roles = {"broker": broker, "sender": sender, "browser": browser, "relay-messages": relay_messages, "collector": collector}
roles[os.path.basename(sys.argv[0])](*sys.argv[1:])
