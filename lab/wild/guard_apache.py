"""Guards of Apache: mod_evasive, mod_qos, and ModSecurity with the rules against floods of the core rule set."""

import shutil

from hosts import PORT, Documentation, Guard, Host, is_root


def apache(host: Host, modules: list[str], settings: str, root, processes: int = 2):
    """Starts an Apache with prefork, as mod_evasive needs it."""
    folder = host.software.file("usr/lib/apache2/modules")
    loaded = ["mpm_prefork", "authz_core", "authz_host", "dir", "mime", "alias", "env", "setenvif", *modules]
    loads = "\n".join(f"LoadModule {name}_module {folder}/mod_{name}.so" for name in loaded)
    logs = host.place / "logs"
    logs.mkdir(exist_ok=True)
    logs.chmod(0o777)
    (host.place / "run").mkdir(exist_ok=True)
    (host.place / "run").chmod(0o777)
    path = host.write(
        "apache.conf",
        f"""{loads}
ServerRoot "{host.place}"
ServerName {host.address}
Listen {host.behind}:{PORT}
PidFile run/apache.pid
DefaultRuntimeDir run
Mutex file:{host.place}/run default
ErrorLog logs/error.log
TypesConfig /dev/null
AddType text/html .html
AddType text/css .css
AddType text/javascript .js
AddDefaultCharset utf-8
DirectoryIndex index.html
{"User www-data" if is_root() else ""}
{"Group www-data" if is_root() else ""}
StartServers {processes}
MinSpareServers {processes}
MaxSpareServers {2 * processes}
MaxRequestWorkers 32
DocumentRoot "{root}"
<Directory "{root}">
    Require all granted
</Directory>
{settings}
""",
    )
    host.run("apache", [host.software.program("apache2"), "-DFOREGROUND", "-f", path])


class Apache(Guard):
    debian = (Documentation.PACKAGE, "apache2-bin")
    modules: tuple[str, ...] = ()

    def settings(self) -> str:
        raise NotImplementedError

    def set_up(self):
        apache(self, list(self.modules), self.settings(), self.documentation.root)


class Evasive(Apache):
    name = "apache-mod-evasive"
    rule = "50 pages per second and process, 2 of one page; 403 for 10 s"
    debian = (*Apache.debian, "libapache2-mod-evasive")
    modules = ("evasive20",)

    def settings(self):
        logs = self.place / "logs"
        return f"""DOSHashTableSize 3097
DOSPageCount 2
DOSSiteCount 50
DOSPageInterval 1
DOSSiteInterval 1
DOSBlockingPeriod 10
DOSLogDir "{logs}"
"""


class Quality(Apache):
    name = "apache-mod-qos"
    rule = "`QS_ClientEventLimitCount`: 60 in 30 s; 500 until these are over"
    debian = (*Apache.debian, "libapache2-mod-qos")
    best = 2.0
    seconds = 420.0

    def settings(self):
        # Debian's module does not name this library, which another module usually brings.
        library = self.software.file("lib/*-linux-gnu/libpcre.so.3")
        module = self.software.file("usr/lib/apache2/modules/mod_qos.so")
        return f"""LoadFile {library}
LoadModule qos_module {module}
QS_ClientEntries 1000
SetEnvIf Request_URI / QS_Limit=yes
QS_ClientEventLimitCount 60 30 QS_Limit
"""


class CoreRules(Apache):
    name = "apache-modsecurity-crs"
    rule = "core rule set, its rules against floods: twice 100 within 60 s; connections are dropped for 60 s"
    debian = (*Apache.debian, "libapache2-mod-security2", "modsecurity-crs")
    modules = ("unique_id", "security2")
    best, count, drops = 100 / 60, 240, True
    seconds = 420.0

    def settings(self):
        rules = self.software.file("usr/share/modsecurity-crs/rules")
        data = self.place / "data"
        # Counters are on disk.
        shutil.rmtree(data, ignore_errors=True)
        data.mkdir()
        data.chmod(0o777)
        # As crs-setup.conf has it, but for the time of a ban (600 s there) and the rule against addresses in numbers, which are all there is here.
        return f"""SecRuleEngine On
SecRequestBodyAccess On
SecDataDir {data}
SecTmpDir {data}
SecDefaultAction "phase:1,log,auditlog,pass"
SecDefaultAction "phase:2,log,auditlog,pass"
SecAuditEngine Off
SecAction "id:900700,phase:1,nolog,pass,t:none,setvar:'tx.dos_burst_time_slice=60',setvar:'tx.dos_counter_threshold=100',setvar:'tx.dos_block_timeout=60'"
SecAction "id:900990,phase:1,nolog,pass,t:none,setvar:tx.crs_setup_version=330"
SecCollectionTimeout 600
Include {rules}/*.conf
SecRuleRemoveById 920350
"""


HOSTS = [Evasive, Quality, CoreRules]
