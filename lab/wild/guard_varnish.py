"""Varnish with vsthrottle: a limit whose answer names a shorter time than the ban lasts."""

from hosts import PORT, Guard


class Throttle(Guard):
    name = "varnish-vsthrottle"
    rule = "15 in 10 s, then 429 for 30 s; `Retry-After: 5`"
    debian = (*Guard.debian, "varnish", "varnish-modules")
    best = 1.5
    seconds = 420.0

    def set_up(self):
        self.serve_origin()
        path = self.write(
            "default.vcl",
            f"""vcl 4.1;
import vsthrottle;
backend default {{ .host = "{self.origin}"; .port = "{PORT}"; }}
sub vcl_recv {{
    if (vsthrottle.is_denied(client.identity, 15, 10s, 30s)) {{
        return (synth(429, "Too Many Requests"));
    }}
}}
sub vcl_synth {{
    if (resp.status == 429) {{
        set resp.http.Retry-After = "5";
    }}
}}
""",
        )
        modules = self.software.file("usr/lib/*-linux-gnu/varnish/vmods")
        command = [self.software.program("varnishd"), "-F", "-j", "none", "-a", f"{self.behind}:{PORT}", "-f", path, "-n", self.place / "work"]
        self.run("varnishd", [*command, "-s", "malloc,32m", "-T", "none", "-p", f"vmod_path={modules}"])


HOSTS = [Throttle]
