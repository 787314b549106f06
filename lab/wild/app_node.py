"""Applications of Node: Nuxt without rendering on the server, and Next with it."""

import json
import os

from hosts import PORT, App
from software import run

NUXT_PAGE = """<script setup>
const route = useRoute()
const { data } = await useFetch('/api/' + route.params.slug)
</script>

<template>
  <main v-if="data">
    <h1>{{ data.title }}</h1>
    <p v-for="part in data.paragraphs">{{ part }}</p>
  </main>
</template>
"""
NUXT_API = """import articles from '../../articles.json'

export default defineEventHandler((event) => articles[getRouterParam(event, 'slug')])
"""
NEXT_PAGE = """import { notFound } from 'next/navigation';
import articles from '../../articles.json';

export const dynamic = 'force-dynamic';

export default async function Page({ params }) {
  const { slug } = await params;
  const article = articles[slug];
  if (!article) notFound();
  return <main><h1>{article.title}</h1>{article.paragraphs.map((part) => <p key={part}>{part}</p>)}</main>;
}
"""
NEXT_LAYOUT = """export const metadata = { title: 'Articles' };

export default function Layout({ children }) {
  return <html lang="en"><body>{children}</body></html>;
}
"""


class NodeApp(App):
    count = 60
    #: What a build of the same files needs no more.
    built = ""

    def build(self):
        if (self.node_folder / self.built).exists():
            return
        articles = {one.slug: {"title": one.title, "paragraphs": one.paragraphs} for one in self.articles}
        for path, text in {**self.files(), "articles.json": json.dumps(articles)}.items():
            file = self.node_folder / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        environment = {**os.environ, "NUXT_TELEMETRY_DISABLED": "1", "NEXT_TELEMETRY_DISABLED": "1"}
        run([f"node_modules/.bin/{self.name}", "build"], cwd=self.node_folder, env=environment)

    def files(self) -> dict[str, str]:
        raise NotImplementedError


class Nuxt(NodeApp):
    name = "nuxt"
    rule = "Nuxt with `ssr: false`; 30 articles, which a script fetches"
    node = ("nuxt@4.2.1",)
    built = ".output/server/index.mjs"
    count, seconds = 30, 400.0

    def files(self):
        return {
            "nuxt.config.ts": "export default defineNuxtConfig({ ssr: false, telemetry: false, compatibilityDate: '2025-11-01' })\n",
            "app/app.vue": "<template><NuxtPage /></template>\n",
            "app/pages/[slug].vue": NUXT_PAGE,
            "server/api/[slug].ts": NUXT_API,
        }

    def set_up(self):
        environment = {**os.environ, "NITRO_HOST": self.behind, "NITRO_PORT": str(PORT)}
        self.run("nuxt", ["node", self.node_folder / self.built], env=environment)


class Next(NodeApp):
    name = "next"
    rule = "Next with its app router; 60 articles, rendered on the server"
    node = ("next@16.4.6", "react@19.3.1", "react-dom@19.3.1")
    built = ".next/BUILD_ID"

    def files(self):
        return {"next.config.mjs": "export default {};\n", "app/layout.js": NEXT_LAYOUT, "app/[slug]/page.js": NEXT_PAGE}

    def set_up(self):
        self.run("next", [self.node_folder / "node_modules/.bin/next", "start", self.node_folder, "-H", self.behind, "-p", PORT])


HOSTS = [Nuxt, Next]
