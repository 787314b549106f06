"""Guards of nginx, as its documentation has them: `limit_req`, `limit_conn`, and `return 444` for programs."""

from hosts import PORT, Guard, nginx


class LimitReq(Guard):
    name = "nginx-limit-req"
    rule = "`limit_req`: 1 per second, burst 5 with delay; 503"
    best, count, quick = 1.0, 60, True

    def set_up(self):
        zone = "limit_req_zone $binary_remote_addr zone=one:10m rate=1r/s;"
        nginx(self, "nginx", f"listen {self.behind}:{PORT}; root {self.documentation.root}; limit_req zone=one burst=5;", zone)


class LimitConn(Guard):
    name = "nginx-limit-conn"
    rule = "`limit_conn`: 2 at once, each at 60 kB per second; 503"
    count = 60
    rate = 60_000

    def install(self):
        super().install()
        self.best = 2 * self.rate / self.documentation.size(self.count)

    def set_up(self):
        zone = "limit_conn_zone $binary_remote_addr zone=addr:10m;"
        limits = f"limit_conn addr 2; limit_rate {self.rate};"
        nginx(self, "nginx", f"listen {self.behind}:{PORT}; root {self.documentation.root}; {limits}", zone)


class NoPrograms(Guard):
    name = "nginx-444"
    rule = "`return 444` for clients that name no browser, robots.txt included"
    count, is_passable, drops, quick = 20, False, True, True
    seconds = 420.0

    def set_up(self):
        test = 'map $http_user_agent $is_program { default 1; "~*mozilla" 0; }'
        server = f"listen {self.behind}:{PORT}; root {self.documentation.root}; if ($is_program) {{ return 444; }}"
        nginx(self, "nginx", server, test)


HOSTS = [LimitReq, LimitConn, NoPrograms]
