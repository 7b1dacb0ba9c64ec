"""nodes.py - three nodes of the demo model as processes, and a proxy that can spoil the way between them.

For faults, chaos and namespaces beside this file, and tests/perf/node_figures. Nothing but Python's own library.
"""
import base64
import json
import os
import random
import select
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
import urllib.error
import urllib.request

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
NAMES = ["one", "two", "three"]
RESET = b"\1\0\0\0\0\0\0\0"  # of SO_LINGER: closing resets


class Proxy(threading.Thread):
    """Passes bytes on from one loopback port to another: late, slowly, spoiled, not at all, or in one direction only."""

    def __init__(self, port, target):
        super().__init__(daemon=True)
        self.target = target
        self.delay_s, self.bytes_per_s, self.mode = 0.0, 0.0, "open"  # mode: open, cut, mute, mute_back
        self.spoil = None  # what becomes of some of the pieces: a list of bytes, in which None is a reset
        self.listener = socket.create_server(("127.0.0.1", port), backlog=64)
        self.pairs, self.guard = [], threading.Lock()
        self.start()

    def run(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            if self.mode == "cut":
                client.close()
                continue
            try:
                server = socket.create_connection(("127.0.0.1", self.target), timeout=2)
            except OSError:
                client.close()
                continue
            for connection in (client, server):
                connection.settimeout(None)
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self.guard:
                self.pairs.append((client, server))
            threading.Thread(target=self.pass_on, args=(client, server, "there"), daemon=True).start()
            threading.Thread(target=self.pass_on, args=(server, client, "back"), daemon=True).start()

    def pass_on(self, source, target, way):
        try:
            while True:
                data = source.recv(1 << 16)
                if not data:
                    break
                while self.mode == "mute" or self.mode == "mute_" + way:
                    time.sleep(0.02)
                if self.delay_s:
                    time.sleep(self.delay_s)
                if self.bytes_per_s:
                    time.sleep(len(data) / self.bytes_per_s)
                for part in self.spoil(data) if self.spoil and random.random() < 0.2 else [data]:
                    if part is None:
                        source.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                        raise OSError
                    target.sendall(part)
        except OSError:
            pass
        for connection in (source, target):
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            connection.close()

    def cut(self):
        self.mode = "cut"
        with self.guard:
            pairs, self.pairs = self.pairs, []
        for pair in pairs:
            for connection in pair:
                try:
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                    connection.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass

    def heal(self):
        self.delay_s, self.bytes_per_s, self.mode, self.spoil = 0.0, 0.0, "open", None


def free_ports(count):
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [listener.getsockname()[1] for listener in held]
    for listener in held:
        listener.close()
    return ports


def make_certificates(folder):
    def openssl(*words, **options):
        subprocess.run(["openssl", *words], check=True, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL, cwd=folder, **options)
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    openssl("req", "-x509", *curve, "-days", "3650", "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=cluster")
    for name, days in [(name, 365) for name in NAMES + ["client", "etcd"]] + [("expired", -1)]:
        subject = "two" if name == "expired" else name
        openssl("req", *curve, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={subject}")
        with open(os.path.join(folder, f"{name}.ext"), "w") as file:
            file.write("subjectAltName=IP:127.0.0.1\n" if name == "etcd" else f"subjectAltName=DNS:{subject}\n")
        openssl("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial",
                "-days", str(days), "-extfile", f"{name}.ext", "-out", f"{name}.pem")


class Etcd:
    """Members of etcd on loopback; with `tls` they want certificates of the cluster's authority. `quota_bytes`: their disk."""

    def __init__(self, folder, count=3, tls=False, quota_bytes=0):
        ports = free_ports(2 * count)
        self.folder, self.tls, self.quota_bytes, self.members = folder, tls, quota_bytes, {}
        scheme = "https" if tls else "http"
        self.clients = [f"{scheme}://127.0.0.1:{port}" for port in ports[:count]]
        self.peers = [f"http://127.0.0.1:{port}" for port in ports[count:]]
        for number in range(count):
            self.start(number)

    def start(self, number):
        all_peers = ",".join(f"m{i}={peer}" for i, peer in enumerate(self.peers))
        files = []
        if self.tls:
            files = ["--cert-file", "etcd.pem", "--key-file", "etcd.key", "--trusted-ca-file", "ca.pem", "--client-cert-auth"]
        if self.quota_bytes:
            files += ["--quota-backend-bytes", str(self.quota_bytes)]
        self.members[number] = subprocess.Popen(
            ["etcd", "--name", f"m{number}", "--data-dir", f"etcd{number}", "--listen-peer-urls", self.peers[number],
             "--initial-advertise-peer-urls", self.peers[number], "--listen-client-urls", self.clients[number],
             "--advertise-client-urls", self.clients[number], "--initial-cluster", all_peers, *files],
            cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)

    def settings(self, name):
        """What a node, or a command, needs to use them."""
        options = [f"--set=registry.endpoints={json.dumps(self.clients)}"]
        if self.tls:
            options += [f"--set=registry.{key}={os.path.join(self.folder, file)}" for key, file in
                        (("certificate", f"{name}.pem"), ("key", f"{name}.key"), ("ca", "ca.pem"))]
        return options

    def put(self, key, value):
        """The HTTP code of the answer; 0: none came."""
        body = json.dumps({field: base64.b64encode(text.encode()).decode() for field, text in (("key", key), ("value", value))})
        for client in self.clients:
            try:
                return urllib.request.urlopen(f"{client}/v3/kv/put", body.encode(), timeout=2).status
            except urllib.error.HTTPError as error:
                return error.code
            except OSError:
                continue
        return 0

    def forget(self):
        """All members end, and begin anew with nothing."""
        for number in list(self.members):
            self.kill(number)
            shutil.rmtree(os.path.join(self.folder, f"etcd{number}"))
        for number in range(len(self.clients)):
            self.start(number)

    def tell(self, number, signal_number):
        if number in self.members:
            os.kill(self.members[number].pid, signal_number)

    def kill(self, number):
        member = self.members.pop(number)
        os.kill(member.pid, signal.SIGCONT)
        member.kill()
        member.wait()

    def close(self):
        for number in list(self.members):
            self.kill(number)


class Cluster:
    """`hosts`: address of each server; `enter`: words before the program, such as ip netns exec NAME."""

    def __init__(self, program, wire="tcp", hosts=None, enter=None, proxied=False, requests=12, poisson_s=0.2,
                 output_tokens=24, placement="prism", heartbeats=True, extra=""):
        self.program, self.wire, self.enter = program, wire, enter or {}
        self.folder = tempfile.mkdtemp(prefix="moorage-nodes-")
        self.nodes, self.killed, self.proxies = {}, set(), {}
        hosts = hosts or {name: "127.0.0.1" for name in NAMES}
        ports = free_ports(12)
        self.listen = {name: f"{hosts[name]}:{ports[i]}" for i, name in enumerate(NAMES)}
        self.address = dict(self.listen)
        if proxied:
            for i, name in enumerate(NAMES):
                self.proxies[name] = Proxy(ports[9 + i], ports[i])
                self.address[name] = f"127.0.0.1:{ports[9 + i]}"
        self.status = {name: f"{hosts[name]}:{ports[3 + i]}" for i, name in enumerate(NAMES)}
        with open(os.path.join(ROOT, "configs", "clusters", "local.toml")) as file:
            text = file.read().replace("../demo", os.path.join(ROOT, "configs", "demo"))
        for i, name in enumerate(NAMES):
            text = text.replace(f'"127.0.0.1:730{i + 1}"', f'"{self.address[name]}"')
            text = text.replace(f'"127.0.0.1:930{i + 1}"', f'"{self.status[name]}"')
            beat = f'"{hosts[name]}:{ports[6 + i]}"'
            text = text.replace(f'heartbeats = "127.0.0.1:830{i + 1}"', f"heartbeats = {beat}" if heartbeats else "")
        text = text.replace("requests = 20", f"requests = {requests}").replace("poisson_s = 1\n", f"poisson_s = {poisson_s}\n")
        text = text.replace("output_tokens = 32", f"output_tokens = {output_tokens}")
        text = text.replace('[placement]\nplugin = "prism"', f'[placement]\nplugin = "{placement}"')
        text = text.replace('[wire]\nplugin = "tcp"\n', f'[wire]\nplugin = "{"ucx" if wire.startswith("ucx") else "tcp"}"\n' + extra)
        self.file = os.path.join(self.folder, "cluster.toml")
        with open(self.file, "w") as file:
            file.write(text)
        if wire == "tls":
            make_certificates(self.folder)
        # Like a node's own log, for whoever looks at what went wrong.
        self.log = open(os.path.join(self.folder, "log"), "a")

    def security(self, name):
        if self.wire != "tls":
            return []
        return [f"--set=wire.{key}={os.path.join(self.folder, file)}" for key, file in
                (("certificate", f"{name}.pem"), ("key", f"{name}.key"), ("ca", "ca.pem"))] + ["--set=wire.security=tls"]

    def start(self, name, *options, prefix=()):
        """`prefix`: words before the program, such as prlimit's."""
        words = [*self.enter.get(name, []), *prefix, self.program, "node", self.file, "--server", name,
                 "--set=run.threads=1", *self.security(name), *options]
        if self.address[name] != self.listen[name]:
            words += ["--listen", self.listen[name]]
        self.nodes[name] = subprocess.Popen(words, stdout=self.log, stderr=self.log, start_new_session=True)
        self.await_status(name)

    def await_status(self, name, seconds=60):
        end = time.time() + seconds
        while time.time() < end:
            if self.nodes[name].poll() is not None:
                break
            if self.look(name):
                return
            time.sleep(0.05)
        raise RuntimeError(f"node {name} does not serve; see {self.folder}/log")

    def look(self, name, path="status"):
        words = self.enter.get(name)
        url = f"http://{self.status[name]}/{path}"
        try:
            if words:
                text = subprocess.run([*words, "curl", "-s", "-m", "2", url], capture_output=True, check=True).stdout
            else:
                text = urllib.request.urlopen(url, timeout=2).read()
            return json.loads(text) if path == "status" else text.decode()
        except Exception:
            return None

    def tell(self, name, signal_number):
        """To the node and its supervisor, which are a group."""
        if name in self.nodes:
            os.killpg(self.nodes[name].pid, signal_number)

    def process(self, name):
        """The process that serves: the child of the one that was started."""
        pid = self.nodes[name].pid
        while True:
            with open(f"/proc/{pid}/task/{pid}/children") as file:
                children = file.read().split()
            if not children:
                return pid
            pid = int(children[0])

    def kill(self, name, signal_number=signal.SIGKILL):
        node = self.nodes.pop(name)
        if node.poll() is None:  # else it has ended by itself
            os.killpg(node.pid, signal.SIGCONT)
            # A process that dies takes its supervisor along, and the other way round.
            os.killpg(node.pid, signal_number) if signal_number == signal.SIGKILL else os.kill(node.pid, signal_number)
        return node.wait()

    def rss_kib(self, name):
        try:
            with open(f"/proc/{self.process(name)}/status") as file:
                return next(int(line.split()[1]) for line in file if line.startswith("VmRSS"))
        except (OSError, KeyError, StopIteration):
            return 0

    def descriptors(self, name):
        return len(os.listdir(f"/proc/{self.process(name)}/fd"))

    def begin_load(self, *options):
        answers = os.path.join(self.folder, f"answers{random.random()}")
        words = [*self.enter.get("client", []), self.program, "load", self.file, "--answers", answers, "--json", answers + ".json",
                 *self.security("client"), *options]
        return subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=self.log), answers

    def end_load(self, load):
        process, answers = load
        process.wait()
        with open(answers) as file:
            lines = [json.loads(line) for line in file]
        with open(answers + ".json") as file:
            report = json.load(file)
        return lines, report

    def load(self, *options):
        return self.end_load(self.begin_load(*options))

    def reference(self):
        """What each prompt is continued with by a process that has all experts: no call leaves it."""
        alone = ["--set=cluster.servers.expert_memory_bytes=1e9"]
        for name in NAMES:
            self.start(name, *alone)
        lines, report = self.load(*alone, "--faster", "1000")
        for name in NAMES:
            self.kill(name, signal.SIGTERM)
        assert report["cluster"]["calls"] == 0, "the reference called other nodes"
        assert all(line["end"] == "answered" for line in lines), "the reference was not answered"
        return {(line["home"], tuple(line["prompt"])): line["ids"] for line in lines}

    def close(self, keep=False):
        for name in list(self.nodes):
            self.kill(name)
        self.log.close()
        if not keep:
            shutil.rmtree(self.folder, ignore_errors=True)


def wrong_texts(lines, reference):
    """How many answers are not what one process writes; those that broke off have to be its beginning."""
    wrong = 0
    for line in lines:
        want = reference[(line["home"], tuple(line["prompt"]))]
        wrong += line["ids"] != (want if line["end"] == "answered" else want[:len(line["ids"])])
    return wrong


def program_of(arguments):
    return os.path.abspath(os.path.join(arguments.bin, "moorage"))
