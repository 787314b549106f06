"""Whether requests that fetchwise signs are verified by http-message-signatures, which shares no code with it.

    python .ci/signed_requests.py PROGRAM REQUESTS

Fetches a thousand pages of TLS servers on loopback, with redirects between them, in both forms of Signature-Agent.

REQUESTS has requests that the tests of the fetchers received or signed, as lines of JSON: by HTTP/1.1 and HTTP/2, at names, IDN names and IPv6
addresses. This writes the file:

    FETCHWISE_RECORD_SIGNED_REQUESTS=REQUESTS cargo test --workspace --all-features --test fetchers a_thousand_random_requests
"""

import base64
import json
import pathlib
import random
import re
import ssl
import subprocess
import sys
import tempfile
import threading
from datetime import datetime, timedelta, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from types import SimpleNamespace
from urllib.parse import urlsplit

from cryptography import x509
from cryptography.exceptions import InvalidSignature as WrongSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.x509.oid import NameOID
from http_message_signatures import HTTPMessageVerifier, InvalidSignature, MappingKeyResolver, algorithms

URLS_OF_A_FORM = 500
RECORDED_OF_A_FORM = 500
PRICE = "crawler-max-price"
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


class RecordVerifier(HTTPMessageVerifier):
    """A verifier of requests that were recorded some minutes ago."""

    max_clock_skew = timedelta(hours=1)


def keys_of(jwks: dict[str, str]) -> MappingKeyResolver:
    """The keys with these ids, from their `x`."""
    raw = {kid: base64.urlsafe_b64decode(x + "=") for kid, x in jwks.items()}
    public = {kid: Ed25519PublicKey.from_public_bytes(key) for kid, key in raw.items()}
    return MappingKeyResolver(public_keys=public, private_keys={})


def is_valid(keys: MappingKeyResolver, request: SimpleNamespace, verifier: type = HTTPMessageVerifier) -> bool:
    checks = verifier(signature_algorithm=algorithms.ED25519, key_resolver=keys)
    try:
        return len(checks.verify(request, expect_tag="web-bot-auth", require_components=["@authority"])) == 1
    except InvalidSignature as error:
        # Any other reason would say nothing about what the signature covers.
        if isinstance(error.__cause__, WrongSignature):
            return False
        raise


def changed(request: SimpleNamespace) -> list[SimpleNamespace]:
    """The request, changed in one place each: method, authority, path, a bit, agent, time, and the price if it has one."""
    with_ = lambda **new: SimpleNamespace(**{**vars(request), **new})
    with_header = lambda wanted, change: with_(
        headers={name: change(value) if name.lower() == wanted else value for name, value in request.headers.items()}
    )

    def flip(header: str) -> str:
        label, value = header.split("=", 1)
        signature = bytearray(base64.b64decode(value.strip(":")))
        signature[random.randrange(64)] ^= 1 << random.randrange(8)
        return f"{label}=:{base64.b64encode(signature).decode()}:"

    parts = urlsplit(request.url)
    other_port = parts.netloc[:-1] + str((int(parts.netloc[-1]) + 1) % 10)
    earlier = lambda value: re.sub(r";created=(\d+)", lambda found: f";created={int(found[1]) - 1}", value)
    others = [
        with_(method="HEAD"),
        with_(url=parts._replace(netloc=other_port).geturl()),
        with_(url=parts._replace(path=f"{parts.path}x").geturl()),
        with_header("signature", flip),
        with_header("signature-agent", lambda value: value.replace("bot.", "bad.")),
        with_header("signature-input", earlier),
    ]
    if any(name.lower() == PRICE for name in request.headers):
        others.append(with_header(PRICE, lambda value: value.replace("USD 0.", "USD 1.")))
    return others


def check_recorded(file: pathlib.Path) -> None:
    requests = [SimpleNamespace(**json.loads(line)) for line in file.read_text().splitlines()]
    assert {request.version for request in requests} == {"HTTP/1.1", "HTTP/2.0"}
    hosts = {urlsplit(request.url).hostname for request in requests}
    assert len(hosts) > 3 and any(host.startswith("xn--") for host in hosts), hosts
    for form in ("Dictionary", "String"):
        of_form = [request for request in requests if request.form == form]
        priced = sum(PRICE in request.headers for request in of_form)
        assert min(priced, len(of_form) - priced) >= RECORDED_OF_A_FORM, (priced, len(of_form))
        for request in of_form:
            keys = keys_of(request.keys)
            assert is_valid(keys, request, RecordVerifier), f"a request is refused: {request}"
            accepted = [other for other in changed(request) if is_valid(keys, other, RecordVerifier)]
            assert not accepted, f"changed requests are accepted: {accepted[0]}"
        print(f"{form}: {len(of_form)} recorded requests verify, {priced} of them with a price, and 0 changed ones")


def main(program: str, folder: pathlib.Path) -> None:
    certificate(folder)
    authorities = [f"{host}:{serve(folder)}" for host in ("127.0.0.1", "localhost", "127.0.0.1")]
    init = ["identity", "init", "--agent", "https://bot.example", "--name", "ExampleBot", "--config", "c.toml", "--json"]
    base = "data_dir = 'data'\n[http]\nca_file = 'ca.pem'\n[network]\nallow = ['127.0.0.0/8', '::1/128']\n[pace]\nmode = 'off'\n"
    (folder / "c.toml").write_text(base + "[identity]\nkeys = 'keys'\n")
    section = json.loads(run(program, folder, *init))["config"]
    random.seed(29)
    for form in ("dictionary", "string"):
        (folder / "c.toml").write_text(f"tuning.signature_form = '{form}'\n{base}{section}")
        run(program, folder, "identity", "directory", "--out", "site", "--config", "c.toml")
        published = json.loads((folder / "site/.well-known/http-message-signatures-directory").read_text())["keys"]
        keys = keys_of({jwk["kid"]: jwk["x"] for jwk in published})
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
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    check_recorded(pathlib.Path(sys.argv[2]))
    with tempfile.TemporaryDirectory() as made:
        main(str(pathlib.Path(sys.argv[1]).resolve()), pathlib.Path(made))
