"""Applications in PHP, from Debian, served by PHP itself: MediaWiki, DokuWiki, and the log-in of Roundcube."""

import os
import pathlib
import re
import shutil

from hosts import PORT, App, Documentation, Link
from software import run

#: Extensions in the order in which they depend on each other.
EXTENSIONS = "ctype iconv fileinfo tokenizer pdo xml dom simplexml xmlreader xmlwriter xsl mbstring intl posix phar sockets sqlite3 pdo_sqlite".split()


class Php(App):
    debian = (Documentation.PACKAGE, "php-cli", "php-sqlite3", "php-mbstring", "php-xml", "php-intl")
    #: The folder to serve, below the copy.
    served = ""

    def install(self):
        self.site = self.place / "site"
        super().install()

    def php(self) -> list[str]:
        """Returns the command of PHP, with settings that find what is unpacked."""
        root = self.software.debian_root
        program = sorted(root.glob("usr/bin/php[0-9]*"))
        if not program:
            return [self.software.program("php")]
        folder = sorted(root.glob("usr/lib/php/20*"))[-1]
        lines = [f'extension_dir="{folder}"', f'include_path=".:{root}/usr/share/php"', "memory_limit=256M", "date.timezone=UTC"]
        lines += [f"extension={name}.so" for name in EXTENSIONS if (folder / f"{name}.so").exists()]
        return [str(program[-1]), "-c", str(self.write("php.ini", "\n".join(lines) + "\n"))]

    def copy(self, path: str, to: pathlib.Path):
        """Copies a folder of a package, so that its links and its paths lead to what is unpacked."""
        root = self.software.debian_root
        source = self.software.file(path)
        to.mkdir(parents=True, exist_ok=True)
        for entry in sorted(source.iterdir()):
            target = to / entry.name
            if entry.is_symlink() and not entry.exists():
                entry = root / os.readlink(entry).lstrip("/")
            if entry.is_dir():
                self.copy(str(entry.relative_to(root) if entry.is_relative_to(root) else entry).lstrip("/"), target)
            elif entry.is_file():
                shutil.copy(entry, target)
                if target.suffix == ".php" and root in entry.parents:
                    text = target.read_bytes()
                    for folder in (b"/usr/share/php", b"/usr/share/javascript", b"/etc/", b"/var/lib/"):
                        for quote in (b"'", b'"'):
                            text = text.replace(quote + folder, quote + str(root).encode() + folder)
                    target.write_bytes(text)

    def set_up(self):
        environment = {**self.software.environment(), "PHP_CLI_SERVER_WORKERS": "4"}
        self.run("php", [*self.php(), "-S", f"{self.behind}:{PORT}", "-t", self.site / self.served], env=environment)


class MediaWiki(Php):
    name = "mediawiki"
    rule = "Debian's MediaWiki with SQLite; 60 articles"
    debian = (*Php.debian, "mediawiki")
    path = "/index.php/Article-{number}"

    def build(self):
        if (self.place / "built").exists():
            return
        shutil.rmtree(self.site, ignore_errors=True)
        shutil.rmtree(self.place / "db", ignore_errors=True)
        self.copy("usr/share/mediawiki", self.site)
        script = [*self.php(), self.site / "maintenance/install.php", "--dbtype=sqlite", f"--dbpath={self.place}/db", "--dbname=wiki"]
        script += [f"--server={self.base}", "--scriptpath=", "--pass=wild-lab-2026", "Lab", "Keeper"]
        run(script, env=self.software.environment())
        texts = self.place / "texts"
        texts.mkdir(exist_ok=True)
        for number, article in enumerate(self.articles):
            (texts / f"Article-{number}").write_text(f"== {article.title} ==\n\n" + "\n\n".join(article.paragraphs))
        files = sorted(texts.iterdir())
        run([*self.php(), self.site / "maintenance/importTextFiles.php", "--overwrite", *files], env=self.software.environment())
        self.write("built", "")


class DokuWiki(Php):
    name = "dokuwiki"
    rule = "Debian's DokuWiki; 60 pages"
    debian = (*Php.debian, "dokuwiki")
    path = "/doku.php?id={slug}"

    def build(self):
        if (self.place / "built").exists():
            return
        shutil.rmtree(self.site, ignore_errors=True)
        self.copy("usr/share/dokuwiki", self.site)
        for part in ("data", "lib"):
            self.copy(f"var/lib/dokuwiki/{part}", self.site / part)
        self.copy("etc/dokuwiki", self.site / "conf")
        # As it is without Debian's changes: settings and data below the wiki.
        (self.site / "inc/preload.php").write_text(f"<?php define('DOKU_CONF', '{self.site}/conf/');\n")
        (self.site / "conf/local.php").write_text(f"<?php\n$conf['title'] = 'Lab';\n$conf['useacl'] = 0;\n$conf['savedir'] = '{self.site}/data';\n")
        for article in self.articles:
            page = self.site / f"data/pages/{article.slug}.txt"
            page.write_text(f"====== {article.title} ======\n\n" + "\n\n".join(article.paragraphs))
        self.write("built", "")


class Roundcube(Php):
    name = "roundcube"
    rule = "Debian's Roundcube with SQLite: its log-in, for 8 addresses"
    debian = (*Php.debian, "roundcube-core", "roundcube-sqlite3")
    count = 8

    def build(self):
        if (self.place / "built").exists():
            return
        shutil.rmtree(self.site, ignore_errors=True)
        self.copy("usr/share/roundcube", self.site)
        self.copy("etc/roundcube", self.site / "config")
        for folder in ("temp", "logs"):
            (self.site / folder).mkdir(exist_ok=True)
        settings = f"""<?php
$config = [];
$config['db_dsnw'] = 'sqlite:///{self.place}/mail.db?mode=0646';
$config['imap_host'] = 'localhost:143';
$config['smtp_host'] = 'localhost:587';
$config['product_name'] = 'Harbour Mail';
$config['des_key'] = 'rcmail-!24ByteDESkey*Str';
$config['plugins'] = [];
$config['skin'] = 'elastic';
"""
        (self.site / "config/config.inc.php").write_text(settings)
        # Debian's package looks for the rest in a farm of links in /var/lib.
        for name in ("index.php", "program/include/iniset.php"):
            file = self.site / name
            file.write_text(re.sub(r"'[^']*/var/lib/roundcube/'", f"'{self.site}/'", file.read_text()))
        self.write("built", "")

    def links(self, part):
        tasks = ["login", "mail", "addressbook", "settings", "mail&_mbox=INBOX", "mail&_mbox=Sent", "login&_language=en"]
        paths = ["", *(f"?_task={task}" for task in tasks)]
        return [Link(f"{self.base}/{path}", ("Username", "Password", "Harbour Mail")) for path in paths]


HOSTS = [MediaWiki, DokuWiki, Roundcube]
