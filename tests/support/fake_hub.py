#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A Hugging Face hub in miniature, with the faults that networks and hubs have.

Prints "HUB_PORT TLS_PORT" and serves until standard input ends. The repository's name chooses the
behaviour (see `class Hub`). Large files are redirected to a second port, the "CDN", as the hub does.
A third port speaks TLS (its certificate: tests/data/hub/fake_hub.pem) and redirects all to the hub without.
GET /_log gives the requests so far, one a line: server, path, Range, Authorization; GET /_reset forgets
them. Byte i of the content of a file is (7 i + i // 251 + length) % 256.

With a folder as argument it is also a Python package index: /simple/PROJECT/ lists the files of
FOLDER/PROJECT as JSON, or as HTML with relative links where the project's name begins with "html".
Of "other-hash" it lists them with another hash, of "changed" it serves other bytes; "closed" wants
the login who:secret, "gone" has lost its files.
"""

import base64
import hashlib
import http.server
import json
import pathlib
import ssl
import sys
import threading
import urllib.parse

COMMIT = "0123456789abcdef0123456789abcdef01234567"
LARGE = 300000
TOKEN = "hf_good"


def content(length):
    return bytes((7 * i + i // 251 + length) % 256 for i in range(length))


def git_hash(data):
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


GOOD = {
    ".gitattributes": 10,
    "README.md": 20,
    "config.json": 700,
    "chat template #1.jinja": 30,
    "empty.txt": 0,
    "tokenizer.model": 5000,
    "model.safetensors": LARGE,
    "consolidated.safetensors": LARGE + 1,
    "pytorch_model.bin": LARGE + 2,
    "pytorch_model.bin.index.json": 40,
    "onnx/config.json": 50,
}
ONE = {"model.safetensors": LARGE}
FILES = {
    "good": GOOD,
    "bin": {"config.json": 700, "pytorch_model.bin": LARGE, "training_args.bin": 9},
    "gguf": {"a-q4.gguf": LARGE, "a-q8.gguf": LARGE},
    "gated": {"config.json": 700, "model.safetensors": LARGE},
    "data": {".gitattributes": 10, "data/train-00000.parquet": 2000, "README.md": 20},
    "escape1": {"config.json": 9, "../evil.json": 9},
    "escape2": {"config.json": 9, "/evil.json": 9},
    "escape3": {"config.json": 9, "a/../../evil.json": 9},
    "escape4": {"config.json": 9, "\x1b]0;evil.json": 9},
    "escape5": {"config.json": 9, "a//evil.json": 9},
    "escape6": {"config.json": 9, ".snug-download.json": 9},
    "clash": {"a": 9, "a/b": 9},
    "busy": {"config.json": 700},
    "none": {},
    "huge": {"model.safetensors": 1 << 62},
}

# Files that mean something.
TEXTS = {("card", "README.md"): b"---\ntags: [a]\nlicense:\n- cc-by-4.0\n- mit\n---\n# Pictures\n"}
TEXTS["shape", "config.json"] = json.dumps({
    "model_type": "llama", "vocab_size": 512, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128}).encode()
FILES["shape"] = {"config.json": len(TEXTS["shape", "config.json"]), "tokenizer.json": 300, "model.safetensors": 5000,
                  "README.md": 20}
TEXTS["words", "README.md"] = b"""---
license: mit
configs:
- config_name: en
  default: true
  data_files:
  - split: train
    path: en/train-*.jsonl
  - split: test
    path: en/test.jsonl
- config_name: fr
  data_files: fr/*.jsonl
---
"""
for path, words in {"en/train-1": "one", "en/train-2": "two", "en/test": "three", "fr/all": "un"}.items():
    TEXTS["words", path + ".jsonl"] = b'{"question": "Which?", "answer": "%s"}\n' % words.encode()
FILES["words"] = {path: len(text) for (repo, path), text in TEXTS.items() if repo == "words"}
FILES["words"] |= {".gitattributes": 10, "pictures/1.png": 900}
TEXTS["bare", "rows.jsonl"] = b'{"question": "Which?", "answer": "bare"}\n'
FILES["bare"] = {".gitattributes": 10, "rows.jsonl": len(TEXTS["bare", "rows.jsonl"])}
FILES["card"] = {"README.md": len(TEXTS["card", "README.md"]), "data/train-00000.parquet": 2000}

log = []
seen = {}  # how often a fault has been shown
lock = threading.Lock()


def first_time(key, times=1):
    """True for the first `times` calls with this key."""
    with lock:
        seen[key] = seen.get(key, 0) + 1
        return seen[key] <= times


def listing(repo):
    siblings = []
    for path, length in FILES.get(repo, ONE).items():
        entry = {"rfilename": path}
        size = {"wrong_size": length + 5}.get(repo, length)
        if repo != "no_hash":
            entry["size"] = size
            data = TEXTS.get((repo, path)) or (content(length) if length < 1 << 30 else b"")
            if length >= 1000:
                digest = hashlib.sha256(data).hexdigest()
                if repo == "wrong_hash":
                    digest = "0" * 64
                entry["blobId"] = "f" * 40
                entry["lfs"] = {"sha256": digest, "size": size, "pointerSize": 134}
            else:
                entry["blobId"] = git_hash(data)
        siblings.append(entry)
    return {"id": "org/" + repo, "sha": COMMIT, "gated": repo == "gated", "siblings": siblings}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *args):
        pass

    def note(self):
        with lock:
            fields = self.headers.get("Range", "-"), self.headers.get("Authorization", "-")
            log.append(" ".join((self.name, self.path) + fields))

    def reply(self, status, body=b"", **headers):
        self.send_response(status)
        for key, value in headers.items():
            self.send_header(key.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def cut(self):
        self.wfile.flush()
        self.close_connection = True

    def offset(self):
        value = self.headers.get("Range", "bytes=0-")
        return int(value[len("bytes="):].split("-")[0])

    def send_content(self, data, whole=False):
        start = 0 if whole else self.offset()
        if start >= len(data) > 0:
            return self.reply(416, Content_Range="bytes */%d" % len(data))
        extra = {"ETag": '"%s"' % hashlib.sha256(data).hexdigest()}
        if start > 0:
            extra["Content_Range"] = "bytes %d-%d/%d" % (start, len(data) - 1, len(data))
        self.reply(206 if start > 0 else 200, data[start:], **extra)


class Hub(Handler):
    name = "hub"

    def do_GET(self):
        url = urllib.parse.urlsplit(self.path)
        if url.path == "/_log":
            return self.reply(200, "\n".join(log).encode())
        if url.path == "/_reset":
            log.clear()
            seen.clear()
            return self.reply(200)
        self.note()
        parts = [urllib.parse.unquote(p) for p in url.path.split("/")[1:]]
        if parts[0] in ("simple", "packages"):
            return self.index(*parts)
        if parts[0] == "api":
            return self.api(parts[3], parts[5], url.query)
        if parts[0] == "datasets":
            parts = parts[1:]
        return self.resolve(parts[1], parts[3], "/".join(parts[4:]))

    def api(self, repo, revision, query):
        authorized = self.headers.get("Authorization") == "Bearer " + TOKEN
        if repo == "private" and not authorized:
            return self.reply(401, b"Invalid username or password.")
        if repo == "missing":
            return self.reply(404, b"", X_Error_Code="RepoNotFound", X_Error_Message="Not\x1b[31m here")
        if revision not in ("main", COMMIT, "refs/pr/1"):
            return self.reply(404, b"", X_Error_Code="RevisionNotFound")
        if repo == "busy" and first_time("busy listing"):
            return self.reply(429, b"slow down", Retry_After="1")
        if repo == "dead":
            return self.reply(503, b"maintenance")
        if repo == "website":
            return self.reply(200, b"<html>hello</html>")
        if repo == "echo":  # shows what it was told
            told = self.headers.get("Authorization", "-")
            return self.reply(403, told.encode(), X_Error_Message="no, " + told)
        if repo == "away":  # to another host, whose address tells the token and a signature
            host = "http://localhost:%d" % self.server.cdn_port
            told = self.headers.get("Authorization", "-").split()[-1]
            return self.reply(302, Location="%s/%s/1?token=%s&signature=abc" % (host, told, told))
        if repo == "local":
            return self.reply(302, Location="file:///etc/hostname")
        if repo == "loop":
            return self.reply(302, Location=self.path)
        if repo == "list":
            return self.reply(200, b'{"sha": "%s", "siblings": [7]}' % COMMIT.encode())
        assert query == "blobs=true"
        self.reply(200, json.dumps(listing(repo)).encode(), Content_Type="application/json")

    def index(self, what, project, name):
        folder = pathlib.Path(sys.argv[1]) / project
        login = "Basic " + base64.b64encode(b"who:secret").decode()
        if project == "closed" and self.headers.get("Authorization") != login:
            return self.reply(401, b"who are you?")
        if not folder.is_dir() or (what == "packages" and project == "gone"):
            return self.reply(404, b"Not Found")
        if what == "packages":
            data = (folder / name).read_bytes()
            return self.send_content(data[::-1] if project == "changed" else data)
        files = {f.name: hashlib.sha256(f.read_bytes()).hexdigest() for f in sorted(folder.iterdir())}
        if project == "other-hash":
            files = {name: "0" * 64 for name in files}
        if project.startswith("html"):
            link = '<a href="../../packages/%s/%s#sha256=%s" data-requires-python="&gt;=3">%s</a>'
            page = "<html>" + "".join(link % (project, f, h, f) for f, h in files.items()) + "</html>"
            return self.reply(200, page.encode(), Content_Type="text/html")
        assert "simple.v1+json" in self.headers["Accept"]
        host = "http://" + self.headers["Host"]
        entries = [{"filename": f, "url": "%s/packages/%s/%s" % (host, project, f), "hashes": {"sha256": h}}
                   for f, h in files.items()]
        page = json.dumps({"files": entries}).encode()
        self.reply(200, page, Content_Type="application/vnd.pypi.simple.v1+json")

    def resolve(self, repo, revision, path):
        files = FILES.get(repo, ONE)
        if revision != COMMIT or path not in files:
            return self.reply(404, X_Error_Code="EntryNotFound")
        if repo == "gated" and self.headers.get("Authorization") != "Bearer " + TOKEN:
            return self.reply(403, b"", X_Error_Code="GatedRepo", X_Error_Message="Access is restricted")
        if repo == "busy" and first_time("busy file", 2):
            return self.reply(502, b"<html>bad gateway</html>")
        if files[path] >= 1000:
            where = "http://127.0.0.1:%d/%s/%d" % (self.server.cdn_port, repo, files[path])
            return self.reply(302, b"Found. Redirecting", Location=where, X_Linked_Size=str(files[path]))
        self.send_content(TEXTS.get((repo, path)) or content(files[path]))


class Cdn(Handler):
    name = "cdn"

    def do_GET(self):
        self.note()
        _, repo, length = urllib.parse.urlsplit(self.path).path.split("/")
        data = content(int(length))
        fault = getattr(self, repo, None)
        if fault is None or fault(data) is False:
            self.send_content(data)

    def half(self, data, start, stop):
        """Announces the rest of `data` from `start` but sends it only up to `stop`."""
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", "bytes %d-%d/%d" % (start, len(data) - 1, len(data)))
        self.send_header("Content-Length", str(len(data) - start))
        self.end_headers()
        self.wfile.write(data[start:stop])

    def drop(self, data):
        if not first_time("drop", 2):
            return False
        start = self.offset()
        self.half(data, start, start + 100000)
        self.cut()

    def always_drop(self, data):
        self.half(data, 0, 1000)
        self.cut()

    def no_range(self, data):
        if first_time("no_range"):
            self.half(data, 0, 100000)
            self.cut()
        else:
            self.send_content(data, whole=True)

    def stall(self, data):
        if not first_time("stall"):
            return False
        self.half(data, 0, 50000)
        self.wfile.flush()
        self.rfile.read(1)  # until the client gives up
        self.close_connection = True

    def other_range(self, data):
        if self.offset() == 0:
            return False
        self.send_response(206)
        self.send_header("Content-Range", "bytes 0-99/%d" % len(data))
        self.send_header("Content-Length", "100")
        self.end_headers()
        self.wfile.write(data[:100])

    def too_long(self, data):
        self.send_response(200)
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(data + b"more")
        self.cut()


class Tls(Handler):
    name = "tls"

    def do_GET(self):
        self.note()
        self.reply(302, Location="http://127.0.0.1:%d%s" % (self.server.hub_port, self.path))


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request, client_address):
        if not isinstance(sys.exc_info()[1], ConnectionError):  # clients may hang up
            super().handle_error(request, client_address)


def serve(handler, certificate=None):
    server = Server(("127.0.0.1", 0), handler)
    if certificate:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(certificate)
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


if __name__ == "__main__":
    cdn = serve(Cdn)
    hub = serve(Hub)
    hub.cdn_port = cdn.server_address[1]
    tls = serve(Tls, pathlib.Path(__file__).parent.parent / "data/hub/fake_hub.pem")
    tls.hub_port = hub.server_address[1]
    print("%d %d" % (tls.hub_port, tls.server_address[1]), flush=True)
    sys.stdin.read()
