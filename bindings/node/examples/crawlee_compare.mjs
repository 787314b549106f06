// Crawlee's adaptive crawler with its own predictor and with fetchwise's, on the demo sites: prints the results of
// each, as the testbed has counted them.
//
//     npm run compare -- [--lab fetchwise-lab] [--pages N] [--sites FILE] [--chromium PATH] [--json]
//
// Each crawls twice, in two processes: from nothing, and after a restart, with other pages of the same sites. The
// testbed's ledger counts good, wrong, blocked and rendered pages. Each crawler submits the pages of its request
// handler.

import { spawn } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'

const HERE = fileURLToPath(import.meta.url)
// Longer than any crawl takes.
const PATIENCE_MS = 15 * 60_000

const { values: args } = parseArgs({
  options: {
    lab: { type: 'string', default: 'fetchwise-lab' },
    chromium: { type: 'string', default: process.env.FETCHWISE_CHROMIUM ?? '/usr/bin/chromium' },
    pages: { type: 'string', default: '10' },
    sites: { type: 'string' },
    concurrency: { type: 'string', default: '4' },
    json: { type: 'boolean', default: false },
    verbose: { type: 'boolean', default: false },
    crawl: { type: 'string' },
  },
})

/** Runs one crawl in this process. */
async function crawl({ ours, links, pages, folder }) {
  const { AdaptivePlaywrightCrawler, log } = await import('crawlee')
  const { Predictor } = ours ? await import('fetchwise/crawlee') : {}
  if (!args.verbose) log.setLevel(log.LEVELS.OFF)
  const taken = new Map()
  const concurrency = Number(args.concurrency)
  let options = {
    minConcurrency: concurrency,
    maxConcurrency: concurrency,
    launchContext: { launchOptions: { executablePath: args.chromium, args: ['--no-sandbox'] } },
    async requestHandler({ request, parseWithCheerio, pushData }) {
      const $ = await parseWithCheerio()
      await pushData({ url: request.url, text: $.html() })
    },
  }
  // The sites are on this machine, and Crawlee alone keeps no pace either.
  const predictor = ours ? new Predictor({ dataDir: join(folder, 'fetchwise'), pace: false }) : null
  if (predictor) options = predictor.options(options)
  const crawler = new AdaptivePlaywrightCrawler(options)
  const listed = (await (await fetch(links)).text()).trim().split('\n')
  await crawler.run(listed)
  const known = new Set(listed)
  for (const { url, text } of (await crawler.getData()).items) {
    if (known.has(url)) taken.set(url, text)
  }
  await predictor?.close()
  let batch = ''
  const handIn = async () => {
    const answer = await fetch(pages, { method: 'POST', body: batch })
    if (!answer.ok) throw new Error(`the testbed did not accept pages: ${answer.status}`)
    batch = ''
  }
  for (const [url, text] of taken) {
    const line = `${JSON.stringify({ url, text })}\n`
    if (batch.length + line.length > 500_000) await handIn()
    batch += line
  }
  if (batch) await handIn()
}

function ended(child, name) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => child.kill('SIGKILL'), PATIENCE_MS)
    child.on('error', reject)
    child.on('exit', (code, signal) => {
      clearTimeout(timer)
      if (code === 0) resolve()
      else reject(new Error(`${name} ended with ${code ?? signal}`))
    })
  })
}

/** Returns the ledger's result of one crawl. */
async function measured(ours, folder, round) {
  const where = ['--pages', args.pages, '--seed', String(round)]
  if (args.sites) where.push('--sites', args.sites)
  const testbed = spawn(args.lab, ['testbed', '--json', ...where], { stdio: ['ignore', 'pipe', 'ignore'] })
  try {
    const places = await new Promise((resolve, reject) => {
      testbed.on('error', reject)
      testbed.on('exit', (code) => reject(new Error(`the testbed ended with ${code}`)))
      createInterface({ input: testbed.stdout }).once('line', (line) => resolve(JSON.parse(line)))
    })
    const own = ['--chromium', args.chromium, '--concurrency', args.concurrency]
    if (args.verbose) own.push('--verbose')
    const task = JSON.stringify({ ours, folder, ...places })
    const begun = Date.now()
    // Crawlee's predictor keeps its state in the process's storage directory, whatever configuration the crawler has.
    const env = { ...process.env, CRAWLEE_STORAGE_DIR: join(folder, 'crawlee'), CRAWLEE_PURGE_ON_START: '0' }
    const crawler = spawn(process.execPath, [HERE, ...own, '--crawl', task], { env, stdio: ['ignore', 'ignore', 'inherit'] })
    await ended(crawler, 'the crawl')
    const seconds = Math.round((Date.now() - begun) / 1000)
    const { total, kinds } = await (await fetch(places.ledger)).json()
    return { ...total, kinds, seconds }
  } finally {
    testbed.removeAllListeners('exit')
    testbed.kill('SIGTERM')
  }
}

function table(rows) {
  const heads = ['predictor', 'good', 'wrong', 'blocked', 'renders', 'requests', 'cost', 'seconds']
  const lines = [`| ${heads.join(' | ')} |`, `|${'---|'.repeat(heads.length)}`]
  for (const [name, row] of Object.entries(rows)) {
    const cells = ['good', 'wrong', 'blocked', 'renders', 'requests', 'cost', 'seconds'].map((figure) => row[figure])
    lines.push(`| ${name} | ${cells.join(' | ')} |`)
  }
  const { listed, servable } = Object.values(rows)[0]
  return `${listed} pages, of which ${servable} are available:\n\n${lines.join('\n')}`
}

if (args.crawl) {
  await crawl(JSON.parse(args.crawl))
  // Crawlee leaves timers running.
  process.exit(0)
}
const rows = {}
for (const [name, ours] of [
  ["Crawlee's own", false],
  ["fetchwise's", true],
]) {
  const folder = mkdtempSync(join(tmpdir(), 'fetchwise-compare-'))
  try {
    rows[`${name}, from nothing`] = await measured(ours, folder, 1)
    rows[`${name}, after a restart`] = await measured(ours, folder, 2)
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
}
console.log(args.json ? JSON.stringify(rows) : table(rows))
