"""Guards of HAProxy: a stick table counts requests of 10 s; more than 20 are denied, tarpitted or dropped."""

from hosts import PORT, Guard


class HAProxy(Guard):
    debian = (*Guard.debian, "haproxy")
    best = 2.0
    answer = ""

    def set_up(self):
        self.serve_origin()
        path = self.write(
            "haproxy.cfg",
            f"""global
    maxconn 500
defaults
    mode http
    timeout connect 5s
    timeout client 30s
    timeout server 30s
    timeout tarpit 10s
frontend web
    bind {self.behind}:{PORT}
    stick-table type ip size 100k expire 30s store http_req_rate(10s)
    http-request track-sc0 src
    {self.answer} if {{ sc_http_req_rate(0) gt 20 }}
    default_backend pages
backend pages
    server one {self.origin}:{PORT}
""",
        )
        self.run("haproxy", [self.software.program("haproxy"), "-db", "-f", path])


class Deny(HAProxy):
    name = "haproxy-429"
    rule = "more than 20 in 10 s: 429"
    answer, quick = "http-request deny deny_status 429", True


class Tarpit(HAProxy):
    name = "haproxy-tarpit"
    rule = "more than 20 in 10 s: 500 after 10 s"
    answer = "http-request tarpit"


class Drop(HAProxy):
    name = "haproxy-silent-drop"
    rule = "more than 20 in 10 s: no answer, and the connection stays open"
    answer, drops = "http-request silent-drop", True
    seconds = 420.0


HOSTS = [Deny, Tarpit, Drop]
