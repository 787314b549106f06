"""The crawler's own proxy refuses: Squid and Privoxy, with a rule against the site."""

from hosts import PORT, Guard, Link


class Proxy(Guard):
    kind, count, is_passable = "proxy", 10, False
    expected_error = "network_block"

    def links(self, part):
        pages = self.documentation.pages[part * self.count : (part + 1) * self.count]
        return [Link(f"http://{self.origin}:{PORT}/{path}", (title,)) for path, title in pages]

    def config(self):
        proxy = f'proxy = "http://{self.address}:{PORT}"\n'
        return f"[fetcher.direct_access]\n{proxy}\n[fetcher.playwright]\n{proxy}\n[fetcher.playwright_stealth]\n{proxy}"


class Squid(Proxy):
    name = "squid"
    rule = "`http_access deny`: 403 with `X-Squid-Error`"
    debian = (*Guard.debian, "squid")
    quick = True

    def set_up(self):
        self.serve_origin()
        share = self.software.file("usr/share/squid")
        settings = self.software.file("etc/squid")
        path = self.write(
            "squid.conf",
            f"""http_port {self.behind}:{PORT}
acl blocked dst {self.origin}/32
http_access deny blocked
http_access allow all
cache deny all
access_log none
cache_log {self.place}/cache.log
cache_store_log none
pid_filename {self.place}/squid.pid
coredump_dir {self.place}
mime_table {share}/mime.conf
icon_directory {share}/icons
error_directory {share}-langpack/en
err_page_stylesheet {settings}/errorpage.css
unlinkd_program {self.software.file("usr/lib/squid/unlinkd")}
pinger_enable off
shutdown_lifetime 1 seconds
""",
        )
        self.place.chmod(0o777)
        (self.place / "squid.pid").unlink(missing_ok=True)
        self.run("squid", [self.software.program("squid"), "-N", "-f", path])


class Privoxy(Proxy):
    name = "privoxy"
    rule = "`+block`: 403 of Privoxy"
    debian = (*Guard.debian, "privoxy")

    def set_up(self):
        self.serve_origin()
        self.write("block.action", f"{{ +block{{This site is blocked here.}} }}\n{self.origin}\n")
        path = self.write(
            "privoxy.conf",
            f"""confdir {self.place}
templdir {self.software.file("etc/privoxy/templates")}
logdir {self.place}
actionsfile block.action
listen-address {self.behind}:{PORT}
""",
        )
        self.run("privoxy", [self.software.program("privoxy"), "--no-daemon", path])


HOSTS = [Squid, Privoxy]
