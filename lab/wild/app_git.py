"""Web interfaces of git, as CGI programs of Apache: cgit and gitweb, on a repository with one commit for each article."""

import os
import shutil

from hosts import App, Documentation, Link
from software import run
from guard_apache import apache


class Git(App):
    debian = (Documentation.PACKAGE, "apache2-bin")

    def build(self):
        self.repository = self.place / "repositories/lab.git"
        if not (self.place / "built").exists():
            shutil.rmtree(self.place / "repositories", ignore_errors=True)
            work = self.place / "work"
            shutil.rmtree(work, ignore_errors=True)
            work.mkdir()
            # The same commits every time, and nothing of the user's own settings.
            names = {f"GIT_{who}_{what}": value for who in ("AUTHOR", "COMMITTER") for what, value in (("NAME", "Keeper"), ("EMAIL", "keeper@lab.example"))}
            days = {"GIT_AUTHOR_DATE": "2026-01-01T00:00:00Z", "GIT_COMMITTER_DATE": "2026-01-01T00:00:00Z", "GIT_CONFIG_GLOBAL": "/dev/null"}
            environment = {**os.environ, **names, **days}
            run(["git", "init", "-q", "-b", "main"], cwd=work, env=environment)
            for article in self.articles:
                (work / f"{article.slug}.txt").write_text("\n\n".join([article.title, *article.paragraphs]) + "\n")
                run(["git", "add", "."], cwd=work, env=environment)
                run(["git", "commit", "-q", "-m", f"Describe {article.title}"], cwd=work, env=environment)
            run(["git", "clone", "-q", "--bare", work, self.repository], env=environment)
            self.write("built", "")
        self.commits = run(["git", "rev-list", "--reverse", "main"], cwd=self.place / "work").split()
        self.write("gitconfig", "[safe]\n\tdirectory = *\n")

    def serve(self, settings: str):
        libraries = self.software.environment()["LD_LIBRARY_PATH"]
        own = f"""SetEnv GIT_CONFIG_GLOBAL {self.place}/gitconfig
SetEnv PATH {os.environ["PATH"]}
SetEnv LD_LIBRARY_PATH {libraries}
"""
        apache(self, ["cgi"], own + settings, self.place / "repositories")

    def grant(self, folder) -> str:
        return f'<Directory "{folder}">\n    Options +ExecCGI\n    Require all granted\n</Directory>\n'


class Cgit(Git):
    name = "cgit"
    rule = "cgit behind Apache; 30 commits and 30 files"
    debian = (*Git.debian, "cgit")

    def set_up(self):
        share, program = self.software.file("usr/share/cgit"), self.software.file("usr/lib/cgit/cgit.cgi")
        settings = self.write(
            "cgitrc",
            f"css=/cgit-css/cgit.css\nlogo=/cgit-css/cgit.png\nvirtual-root=/cgit/\nrepo.url=lab\nrepo.path={self.repository}\nrepo.desc=The lab\n",
        )
        self.serve(
            f"SetEnv CGIT_CONFIG {settings}\nAlias /cgit-css {share}\nScriptAlias /cgit {program}\n" + self.grant(share) + self.grant(program.parent)
        )

    def links(self, part):
        commits = [Link(f"{self.base}/cgit/lab/commit/?id={one}", (f"Describe {article.title}",)) for one, article in zip(self.commits[:30], self.articles)]
        files = [Link(f"{self.base}/cgit/lab/tree/{article.slug}.txt", (article.words,)) for article in self.articles[30:]]
        return commits + files


class Gitweb(Git):
    name = "gitweb"
    rule = "gitweb behind Apache; 30 commits and 30 files"
    debian = (*Git.debian, "gitweb")

    def set_up(self):
        program = self.software.file("usr/share/gitweb/gitweb.cgi")
        static = self.software.file("usr/share/gitweb/static")
        settings = self.write(
            "gitweb.conf",
            f'our $GIT = "{shutil.which("git")}";\nour $projectroot = "{self.repository.parent}";\n'
            'our @stylesheets = ("/static/gitweb.css");\nour $javascript = "/static/gitweb.js";\nour $logo = "/static/git-logo.png";\n',
        )
        modules = self.software.debian_root / "usr/share/perl5"
        own = sorted(self.software.debian_root.glob("usr/lib/*-linux-gnu/perl5/*"))
        self.serve(
            f"SetEnv GITWEB_CONFIG {settings}\nSetEnv PERL5LIB {':'.join(map(str, [modules, *own]))}\nScriptAlias /gitweb {program}\n"
            f"Alias /static {static}\n" + self.grant(program.parent) + self.grant(static)
        )

    def links(self, part):
        commits = [
            Link(f"{self.base}/gitweb?p=lab.git;a=commit;h={one}", (f"Describe {article.title}",)) for one, article in zip(self.commits[:30], self.articles)
        ]
        files = [Link(f"{self.base}/gitweb?p=lab.git;a=blob;f={article.slug}.txt;hb=main", (article.words,)) for article in self.articles[30:]]
        return commits + files


HOSTS = [Cgit, Gitweb]
