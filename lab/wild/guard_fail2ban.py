"""fail2ban with nginx: who exceeds `limit_req` too often is put on a deny list, which nginx reads again."""

import os
import shutil
import sys

from hosts import PORT, Guard, nginx
from software import Program


class Fail2ban(Guard):
    name = "fail2ban"
    rule = "`limit_req` 5 per second, burst 10; the third 503 within 60 s is a ban of 60 s (403)"
    debian = (*Guard.debian, "fail2ban")
    best = 5.0
    count = 200
    seconds = 300.0

    def set_up(self):
        banned = self.write("banned.map", "")
        log = self.place / "nginx-files/error.log"
        log.unlink(missing_ok=True)
        tables = f"limit_req_zone $binary_remote_addr zone=one:10m rate=5r/s; map $remote_addr $is_banned {{ include {banned}; default 0; }}"
        server = f"listen {self.behind}:{PORT}; root {self.documentation.root}; if ($is_banned) {{ return 403; }} limit_req zone=one burst=10 nodelay;"
        nginx(self, "nginx", server, tables)
        settings = self.place / "fail2ban-settings"
        shutil.rmtree(settings, ignore_errors=True)
        shutil.copytree(self.software.file("etc/fail2ban"), settings)
        self.write(
            "fail2ban-settings/jail.local",
            f"""[DEFAULT]
ignoreself = false
ignoreip =
backend = polling
[sshd]
enabled = false
[nginx-limit-req]
enabled = true
logpath = {log}
maxretry = 3
findtime = 60
bantime = 60
banaction =
action = nginx-deny
""",
        )
        self.write("fail2ban-settings/fail2ban.local", "[Definition]\ndbfile = None\n")
        pid = self.place / "nginx-files/pid"
        self.write(
            "fail2ban-settings/action.d/nginx-deny.conf",
            f"""[Definition]
actionstart =
actionstop =
actioncheck =
actionban = echo '<ip> 1;' >> {banned}; kill -HUP $(cat {pid})
actionunban = sed -i '/^<ip> /d' {banned}; kill -HUP $(cat {pid})
""",
        )
        folder = self.software.file("usr/lib/python3/dist-packages/fail2ban").parent
        python = "/usr/bin/python3" if os.path.exists("/usr/bin/python3") else sys.executable
        command = [python, self.software.program("fail2ban-server"), "-c", settings, "-s", self.place / "socket", "-p", self.place / "f2b.pid"]
        environment = {**self.software.environment(), "PYTHONPATH": str(folder)}
        socket = self.place / "socket"
        socket.unlink(missing_ok=True)
        server = Program("fail2ban", [*command, "-x", "-f", "--logtarget=STDOUT", "start"], self.place, environment)
        self.programs.append(server)
        server.wait_until(lambda: "Jail 'nginx-limit-req' started" in server.messages.read_text(errors="replace"))


HOSTS = [Fail2ban]
