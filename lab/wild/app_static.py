"""Sites that need no program of their own: Bootstrap 5, VitePress and Swagger UI, built with their npm packages."""

import json
import shutil

from hosts import PORT, App, Documentation, Link, nginx
from software import run


class Static(App):
    debian = (Documentation.PACKAGE, "nginx-light")

    def install(self):
        self.site = self.place / "site"
        super().install()

    def set_up(self):
        nginx(self, "nginx", f"listen {self.behind}:{PORT}; root {self.site}; index index.html; try_files $uri $uri.html $uri/ =404;")


class Bootstrap(Static):
    name = "bootstrap"
    rule = "the starter template of Bootstrap 5; 60 short pages"
    node = ("bootstrap@5.3.8",)
    path = "/{slug}"
    quick = True

    def build(self):
        self.site.mkdir(exist_ok=True)
        for name in ("css/bootstrap.min.css", "js/bootstrap.bundle.min.js"):
            shutil.copy(self.node_folder / "node_modules/bootstrap/dist" / name, self.site)
        for article in self.articles:
            (self.site / f"{article.slug}.html").write_text(
                f"""<!doctype html>
<html lang="en">
  <head>
    <meta charset="utf-8">
    <meta name="viewport" content="width=device-width, initial-scale=1">
    <title>{article.title}</title>
    <link href="/bootstrap.min.css" rel="stylesheet">
  </head>
  <body>
    <div class="container py-4">
      <h1>{article.title}</h1>
      <p class="lead">{article.words}.</p>
    </div>
    <script src="/bootstrap.bundle.min.js"></script>
  </body>
</html>
"""
            )


class VitePress(Static):
    name = "vitepress"
    rule = "`vitepress build`; 60 pages"
    node = ("vitepress@1.6.4",)
    path = "/{slug}.html"

    def build(self):
        docs = self.node_folder / "docs"
        built = docs / ".vitepress/dist"
        if not built.exists():
            (docs / ".vitepress").mkdir(parents=True, exist_ok=True)
            (docs / ".vitepress/config.mjs").write_text("export default { title: 'Lab', description: 'Articles of the lab' }\n")
            for article in self.articles:
                # Braces and angle brackets are code in VitePress.
                text = "\n\n".join(article.paragraphs)
                for sign, name in (("&", "&amp;"), ("<", "&lt;"), ("{", "&#123;")):
                    text = text.replace(sign, name)
                (docs / f"{article.slug}.md").write_text(f"# Article {article.slug}\n\n{text}\n")
            run(["node_modules/.bin/vitepress", "build", "docs"], cwd=self.node_folder)
        self.site = built


class Swagger(Static):
    name = "swagger-ui"
    rule = "Swagger UI, as its package has it; 20 descriptions of interfaces"
    node = ("swagger-ui-dist@5.35.0",)
    count = 20

    def build(self):
        package = self.node_folder / "node_modules/swagger-ui-dist"
        for number, article in enumerate(self.articles):
            folder = self.site / f"docs-{number}"
            folder.mkdir(parents=True, exist_ok=True)
            for name in ("index.html", "index.css", "swagger-ui.css", "swagger-ui-bundle.js", "swagger-ui-standalone-preset.js"):
                shutil.copy(package / name, folder)
            text = (package / "swagger-initializer.js").read_text()
            (folder / "swagger-initializer.js").write_text(text.replace("https://petstore.swagger.io/v2/swagger.json", "openapi.json"))
            responses = {"200": {"description": "the article"}}
            paths = {f"/articles/{n}": {"get": {"summary": one.title, "responses": responses}} for n, one in enumerate(self.articles[:6])}
            description = {"openapi": "3.0.3", "info": {"title": f"Interface {number}", "version": "1", "description": article.words}, "paths": paths}
            (folder / "openapi.json").write_text(json.dumps(description))

    def links(self, part):
        return [Link(f"{self.base}/docs-{number}/", (f"Interface {number}", article.words)) for number, article in enumerate(self.articles)]


HOSTS = [Bootstrap, VitePress, Swagger]
