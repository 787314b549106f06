"""Signed requests of httpx, Scrapy and Crawlee over redirects between two authorities, held against a verifier that shares
no code with fetchwise.
"""

from __future__ import annotations

import asyncio
import json
import pathlib
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from types import SimpleNamespace
from typing import Any

import pytest
from conftest import HERE

import fetchwise

pytest.importorskip("http_message_signatures")
httpx = pytest.importorskip("httpx")

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.x509.oid import NameOID
from http_message_signatures import HTTPMessageVerifier, MappingKeyResolver, algorithms

AGENT = "https://bot.example"


class Sites:
    """Two TLS servers on loopback, and one for plain http. ``/hops/N`` redirects N times to the next of the two
    authorities, ``/down`` to plain http.
    """

    def __init__(self, folder: pathlib.Path) -> None:
        self.seen: list[SimpleNamespace] = []
        self.ca = folder / "ca.pem"
        self.key = Ed25519PrivateKey.generate()
        self.pem = _pem(self.key)
        _certificate(folder)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(folder / "server.pem")
        sites = self

        class Site(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                sites.respond(self)

            def log_message(self, *_: object) -> None:
                pass

        self.servers = [ThreadingHTTPServer(("127.0.0.1", 0), Site) for _ in range(3)]
        ports = [server.server_address[1] for server in self.servers]
        self.authorities = [f"127.0.0.1:{ports[0]}", f"localhost:{ports[1]}"]
        self.plain = f"127.0.0.1:{ports[2]}"
        for server, tls in zip(self.servers, (True, True, False)):
            server.daemon_threads = True
            server.tls = tls  # type: ignore[attr-defined]
            if tls:
                server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
            threading.Thread(target=server.serve_forever, daemon=True).start()

    def respond(self, handler: Any) -> None:
        scheme = "https" if handler.server.tls else "http"
        host = handler.headers["host"]
        headers = dict(handler.headers.items())
        self.seen.append(SimpleNamespace(method=handler.command, url=f"{scheme}://{host}{handler.path}", headers=headers))
        kind, _, left = handler.path.strip("/").partition("/")
        target = None
        if kind == "hops" and int(left):
            other = self.authorities[1 - self.authorities.index(host)]
            target = f"https://{other}/hops/{int(left) - 1}"
        elif kind == "down":
            target = f"http://{self.plain}/page"
        body = b"<html><title>A page</title><p>" + b"Some words that a person may read. " * 40
        handler.send_response(302 if target else 404 if kind == "robots.txt" else 200)
        if target:
            handler.send_header("Location", target)
        handler.send_header("Content-Type", "text/html")
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    def close(self) -> None:
        for server in self.servers:
            server.shutdown()
            server.server_close()

    def pages(self) -> list[SimpleNamespace]:
        return [request for request in self.seen if not request.url.endswith("/robots.txt")]

    def is_valid(self, request: SimpleNamespace) -> bool:
        verifier = HTTPMessageVerifier(signature_algorithm=algorithms.ED25519, key_resolver=_AnyKid(self.key.public_key()))
        try:
            return len(verifier.verify(request, expect_tag="web-bot-auth", require_components=["@authority"])) == 1
        except Exception:
            return False

    def check(self, hops: int) -> None:
        """Every https request verifies at its authority, and not at the other one; plain http has no signature."""
        signed = [request for request in self.pages() if request.url.startswith("https:")]
        assert len(signed) == hops, [request.url for request in self.seen]
        assert {request.url.split("/")[2] for request in signed} == set(self.authorities)
        for request in signed:
            assert self.is_valid(request), request
            other = self.authorities[1 - self.authorities.index(request.url.split("/")[2])]
            elsewhere = SimpleNamespace(**{**vars(request), "url": f"https://{other}/hops/0"})
            assert not self.is_valid(elsewhere), "the signature is for one authority and path"
        assert len({request.headers["Signature-Input"] for request in signed}) == hops, "each has its own nonce"
        for request in self.pages():
            if request.url.startswith("http:"):
                assert not [name for name in request.headers if name.lower().startswith("signature")], request


class _AnyKid(MappingKeyResolver):  # type: ignore[misc]
    def __init__(self, public: Ed25519PublicKey) -> None:
        self.public = public

    def resolve_public_key(self, key_id: str) -> Ed25519PublicKey:
        return self.public


def _pem(key: Any) -> str:
    text = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return str(text.decode())


def _certificate(folder: pathlib.Path) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "loopback")])
    now = datetime.now(timezone.utc)
    names = [x509.DNSName("localhost"), x509.IPAddress(ip_address("127.0.0.1"))]
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
    (folder / "server.pem").write_text(_pem(key) + made.public_bytes(serialization.Encoding.PEM).decode())


@pytest.fixture
def sites(tmp_path: pathlib.Path) -> Iterator[Sites]:
    sites = Sites(tmp_path)
    yield sites
    sites.close()


def write_config(sites: Sites, folder: pathlib.Path) -> pathlib.Path:
    """Writes a config with a key, as `fetchwise identity init` makes it."""
    keys = folder / "keys"
    keys.mkdir(mode=0o700)
    (keys / "key.pem").touch(mode=0o600)
    (keys / "key.pem").write_text(sites.pem)
    config = folder / "c.toml"
    config.write_text(f"[identity]\nagent = '{AGENT}'\nkeys = '{keys}'\n")
    return config


def test_a_signer_signs_https_only_and_names_what_is_wrong(sites: Sites, tmp_path: pathlib.Path) -> None:
    signer = fetchwise.Signer(agent=AGENT, key=sites.pem)
    assert (signer.agent, repr(signer)) == (AGENT, f'Signer(agent="{AGENT}")')
    headers = signer.headers("https://shop.example/a", "POST")
    assert sorted(headers) == ["Signature", "Signature-Agent", "Signature-Input"]
    request = SimpleNamespace(method="POST", url="https://shop.example/a", headers=headers)
    assert sites.is_valid(request)
    assert not sites.is_valid(SimpleNamespace(method="GET", url="https://shop.example/a", headers=headers))
    assert signer.headers("http://shop.example/a") == {}
    assert signer.headers("https://shop.example/a") != signer.headers("https://shop.example/a")
    # Cloudflare reads the older form.
    assert signer.headers("https://cf.example/")["Signature-Agent"].startswith("sig1=")
    signer.observe("https://cf.example/", ["CF-Ray"])
    assert signer.headers("https://cf.example/")["Signature-Agent"] == f'"{AGENT}"'
    with pytest.raises(fetchwise.UrlError):
        signer.headers("nonsense")
    for wrong, words in [
        ({}, "missing agent"),
        ({"agent": "http://bot.example", "key": sites.pem}, "https origin"),
        ({"agent": AGENT, "key": "hunter2"}, "BEGIN PRIVATE KEY"),
        ({"agent": AGENT, "keys": tmp_path / "none"}, "identity init"),
    ]:
        with pytest.raises(fetchwise.ConfigError, match=words) as failed:
            fetchwise.Signer(**wrong)  # type: ignore[arg-type]
        assert "hunter2" not in str(failed.value)
    assert fetchwise.Signer(config=write_config(sites, tmp_path)).headers("https://shop.example/")
    (tmp_path / "keys" / "key.pem").chmod(0o644)
    with pytest.raises(fetchwise.ConfigError, match="chmod 600"):
        fetchwise.Signer(config=tmp_path / "c.toml")


def test_httpx_verifies_at_both_authorities_of_a_redirect(sites: Sites) -> None:
    import fetchwise.httpx

    signer = fetchwise.Signer(agent=AGENT, key=sites.pem)
    selector = fetchwise.Selector(fetchers=["direct_access"])

    async def main() -> None:
        context = ssl.create_default_context(cafile=str(sites.ca))
        signing = fetchwise.httpx.SigningTransport(signer, httpx.AsyncHTTPTransport(verify=context))
        transport = fetchwise.httpx.Transport(selector, signing)
        async with httpx.AsyncClient(transport=transport, follow_redirects=True) as client:
            response = await client.get(f"https://{sites.authorities[0]}/hops/3")
            assert (response.status_code, len(response.history)) == (200, 3)
            down = await client.get(f"https://{sites.authorities[0]}/down")
            assert down.url.scheme == "http"

    asyncio.run(main())
    sites.check(5)


def test_the_synchronous_client_signs_too(sites: Sites) -> None:
    import fetchwise.httpx

    context = ssl.create_default_context(cafile=str(sites.ca))
    inner = httpx.HTTPTransport(verify=context)
    transport = fetchwise.httpx.SyncSigningTransport(fetchwise.Signer(agent=AGENT, key=sites.pem), inner)
    with httpx.Client(transport=transport, follow_redirects=True) as client:
        assert client.get(f"https://{sites.authorities[1]}/hops/2").status_code == 200
    sites.check(3)


def test_scrapy_signs_every_hop(sites: Sites, tmp_path: pathlib.Path) -> None:
    pytest.importorskip("scrapy")
    from test_scrapy import CRAWL

    settings = {
        "LOG_LEVEL": "ERROR",
        "TELNETCONSOLE_ENABLED": False,
        "TWISTED_REACTOR": "twisted.internet.asyncioreactor.AsyncioSelectorReactor",
        "FETCHWISE_FETCHERS": {"direct_access": None},
        "FETCHWISE_IDENTITY": str(write_config(sites, tmp_path)),
        "DOWNLOADER_MIDDLEWARES": {"fetchwise.scrapy.Middleware": 585},
        "DOWNLOAD_HANDLERS": {"http": "fetchwise.scrapy.Handler", "https": "fetchwise.scrapy.Handler"},
    }
    given = json.dumps([f"https://{sites.authorities[0]}", settings, ["/hops/3", "/down"]])
    done = subprocess.run(
        [sys.executable, "-c", CRAWL, given], capture_output=True, text=True, timeout=120, check=False, cwd=HERE
    )
    assert done.returncode == 0, done.stderr[-3000:]
    sites.check(5)


def test_crawlee_signs_every_hop(sites: Sites) -> None:
    pytest.importorskip("crawlee")
    import fetchwise.crawlee

    signer = fetchwise.Signer(agent=AGENT, key=sites.pem)
    client = fetchwise.crawlee.signing_client(signer, verify=ssl.create_default_context(cafile=str(sites.ca)))

    async def main() -> None:
        async with client:
            assert (await client.send_request(f"https://{sites.authorities[0]}/hops/3")).status_code == 200
            assert (await client.send_request(f"https://{sites.authorities[0]}/down")).status_code == 200

    asyncio.run(main())
    sites.check(5)
