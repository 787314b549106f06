"""Whether requests that fetchwise signs are verified by http-message-signatures, which shares no code with it.

    python .ci/signed_requests.py PROGRAM

Fetches a thousand pages of TLS servers on loopback, with redirects between them, in both forms of Signature-Agent.
"""

import base64
import json
import pathlib
import random
import ssl
import subprocess
import sys
import tempfile
import threading
from datetime import datetime, timedelta, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from types import SimpleNamespace

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.x509.oid import NameOID
from http_message_signatures import HTTPMessageVerifier, MappingKeyResolver, algorithms

URLS_OF_A_FORM = 500
PARTS = ["a", "b%20c", "%E4%B8%AD", "x+y", "~u", "%2F", "a;v=1", "q=1,2", "(x)", "*", "A-Z_0.9"]
PLAN: dict[str, str] = {}
SEEN: list[SimpleNamespace] = []


class Site(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        url = f"https://{self.headers['host']}{self.path}"
        SEEN.append(SimpleNamespace(method=self.command, url=url, headers=dict(self.headers.items())))
        target, body = PLAN.get(url), b"<html><title>A page</title><p>" + b"Some words that a person may read. " * 40
        status = 302 if target else 404 if self.path == "/robots.txt" else 200
        self.send_response(status)
        if target:
            self.send_header("Location", target)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


def certificate(folder: pathlib.Path) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "loopback")])
    now = datetime.now(timezone.utc)
    names = [x509.DNSName("localhost"), *(x509.IPAddress(ip_address(text)) for text in ("127.0.0.1", "::1"))]
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .sign(key, hashes.SHA256())
    )
    (folder / "ca.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (folder / "server.pem").write_bytes(private + made.public_bytes(serialization.Encoding.PEM))


def serve(folder: pathlib.Path) -> str:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.pem")
    server = ThreadingHTTPServer(("127.0.0.1", 0), Site)
    server.daemon_threads = True
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return str(server.server_address[1])


def run(program: str, folder: pathlib.Path, *args: str) -> str:
    ran = subprocess.run([program, *args], cwd=folder, capture_output=True, text=True, timeout=600)
    if ran.returncode:
        sys.exit(f"fetchwise {' '.join(args)} exits with {ran.returncode}: {ran.stdout[-2000:]}{ran.stderr[-2000:]}")
    return ran.stdout


def is_valid(keys: MappingKeyResolver, request: SimpleNamespace) -> bool:
    verifier = HTTPMessageVerifier(signature_algorithm=algorithms.ED25519, key_resolver=keys)
    try:
        return len(verifier.verify(request, expect_tag="web-bot-auth", require_components=["@authority"])) == 1
    except Exception:
        return False


def changed(request: SimpleNamespace) -> list[SimpleNamespace]:
    with_ = lambda **new: SimpleNamespace(**{**vars(request), **new})
    label, value = request.headers["Signature"].split("=", 1)
    signature = bytearray(base64.b64decode(value.strip(":")))
    signature[random.randrange(64)] ^= 1 << random.randrange(8)
    flipped = f"{label}=:{base64.b64encode(signature).decode()}:"
    return [
        with_(method="HEAD"),
        with_(url=request.url.replace("https://", "https://x", 1)),
        with_(url=request.url.replace("?", "x?", 1) if "?" in request.url else request.url + "x"),
        with_(headers={**request.headers, "Signature": flipped}),
    ]


def main(program: str, folder: pathlib.Path) -> None:
    certificate(folder)
    authorities = [f"{host}:{serve(folder)}" for host in ("127.0.0.1", "localhost", "127.0.0.1")]
    init = ["identity", "init", "--agent", "https://bot.example", "--name", "ExampleBot", "--config", "c.toml", "--json"]
    base = "data_dir = 'data'\n[http]\nca_file = 'ca.pem'\n[network]\nallow = ['127.0.0.0/8', '::1/128']\n[pace]\nmode = 'off'\n"
    (folder / "c.toml").write_text(base + "[identity]\nkeys = 'keys'\n")
    section = json.loads(run(program, folder, *init))["config"]
    random.seed(29)
    for form in ("dictionary", "string"):
        (folder / "c.toml").write_text(f"{base}{section}form = '{form}'\n")
        run(program, folder, "identity", "directory", "--out", "site", "--config", "c.toml")
        published = json.loads((folder / "site/.well-known/http-message-signatures-directory").read_text())["keys"]
        raw = lambda jwk: base64.urlsafe_b64decode(jwk["x"] + "=")
        keys = MappingKeyResolver(
            public_keys={jwk["kid"]: Ed25519PublicKey.from_public_bytes(raw(jwk)) for jwk in published}, private_keys={}
        )
        SEEN.clear(), PLAN.clear()
        first, hops = [], 0
        for number in range(URLS_OF_A_FORM):
            chain = []
            for hop in range(random.randrange(6) + 1):
                path = "/".join(random.choice(PARTS) for _ in range(random.randrange(1, 5)))
                chain.append(f"https://{random.choice(authorities)}/{path}?n={number}.{hop}&f={form}")
            PLAN.update(zip(chain, chain[1:]))
            first.append(chain[0])
            hops += len(chain)
        (folder / "urls.txt").write_text("\n".join(first) + "\n")
        run(program, folder, "fetch", "--config", "c.toml", "--no-browser", "--json", "--input", "urls.txt")
        pages = [request for request in SEEN if not request.url.endswith("/robots.txt")]
        robots = len(SEEN) - len(pages)
        assert len({request.url for request in pages}) == hops and robots >= len(authorities), (len(pages), hops, robots)
        wrong = [request for request in SEEN if not is_valid(keys, request)]
        assert not wrong, f"{len(wrong)} of {len(SEEN)} requests are refused: {wrong[0]}"
        nonces = {request.headers["Signature-Input"].split(";nonce=")[1] for request in SEEN}
        assert len(nonces) == len(SEEN)
        accepted = [other for request in SEEN for other in changed(request) if is_valid(keys, other)]
        assert not accepted, f"changed requests are accepted: {accepted[0]}"
        agent = SEEN[0].headers["User-Agent"]
        assert agent == "Mozilla/5.0 (compatible; ExampleBot/1.0; +https://bot.example/bot)", agent
        print(f"{form}: {len(SEEN)} of {len(SEEN)} requests verify, {robots} of them for robots.txt, 0 changed ones")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    with tempfile.TemporaryDirectory() as made:
        main(str(pathlib.Path(sys.argv[1]).resolve()), pathlib.Path(made))
