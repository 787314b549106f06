// Crawlee's adaptive crawler with the system's Chromium, against sites that count.

import assert from 'node:assert/strict'
import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { dirname, join } from 'node:path'
import test from 'node:test'

import { Selector } from 'fetchwise'
import { Predictor } from 'fetchwise/crawlee'

import { HERE, folder, run, site } from './helpers.mjs'

const chromium = process.env.FETCHWISE_CHROMIUM ?? '/usr/bin/chromium'
// The program of the testbed lies next to the other one.
const lab = process.env.FETCHWISE_PROGRAM && join(dirname(process.env.FETCHWISE_PROGRAM), 'fetchwise-lab')
let found = existsSync(chromium)
try {
  createRequire(join(HERE, 'x.js')).resolve('crawlee')
} catch {
  found = false
}
const skip = !found && 'Crawlee and a Chromium are not here'

test('a predictor alone learns from comparisons, and stores them', async (t) => {
  const dir = folder(t)
  const first = new Predictor({ dataDir: dir })
  assert.throws(() => first.predict({ url: 'https://example.org/' }), /not initialized/)
  await first.initialize()
  const app = (n) => ({ url: `https://example.org/app/${n}`, uniqueKey: `${n}` })
  assert.equal(first.predict(app(0)).detectionProbabilityRecommendation, 1)
  for (let n = 0; n < 20; n++) first.storeResult(app(n), 'clientOnly')
  for (let n = 0; n < 20; n++) first.storeResult({ url: `https://example.com/${n}` }, 'static')
  await first.close()
  const second = new Predictor({ dataDir: dir })
  await second.initialize()
  assert.deepEqual(second.predict(app(99)), { renderingType: 'clientOnly', detectionProbabilityRecommendation: 0 })
  assert.deepEqual(second.predict({ url: 'https://example.com/99' }), { renderingType: 'static', detectionProbabilityRecommendation: 0 })
  await second.close()
})

const CRAWL = `
import { AdaptivePlaywrightCrawler, Configuration, log } from 'crawlee'
import { NotDelivered, Predictor } from 'fetchwise/crawlee'
log.setLevel(log.LEVELS.OFF)
const [origin, dir, paths, chromium] = process.argv.slice(2)
const predictor = new Predictor({ dataDir: dir, pace: false })
const failed = []
const seen = []
const crawler = new AdaptivePlaywrightCrawler(predictor.options({
  launchContext: { launchOptions: { executablePath: chromium, args: ['--no-sandbox'] } },
  minConcurrency: 2,
  maxConcurrency: 2,
  preNavigationHooks: [(context) => { context.log.debug('before') }],
  async requestHandler(context) {
    const { request, parseWithCheerio, pushData } = context
    if (request.url.includes('/needs-a-page')) await context.page.title()
    const $ = await parseWithCheerio()
    await pushData({ path: new URL(request.url).pathname, heading: $('h1').text() })
  },
  failedRequestHandler({ request }, error) {
    failed.push([new URL(request.url).pathname, error instanceof NotDelivered, error.end?.kind, error.end?.isBanned ?? null, request.retryCount])
  },
}), new Configuration({ persistStorage: false }))
await crawler.run(JSON.parse(paths).map((path) => origin + path))
for (const item of (await crawler.getData()).items) seen.push([item.path, item.heading])
await predictor.close()
console.log(JSON.stringify({ seen: seen.sort(), failed: failed.sort() }))
process.exit(0)
`

async function crawl(t, origin, dir, paths) {
  const place = mkdtempSync(join(HERE, 'crawl-'))
  t.after(() => rmSync(place, { recursive: true, force: true }))
  writeFileSync(join(place, 'crawl.mjs'), CRAWL)
  const done = await run(process.execPath, ['crawl.mjs', origin, dir, JSON.stringify(paths), chromium], { cwd: place })
  assert.equal(done.code, 0, done.stderr)
  return JSON.parse(done.stdout.trim().split('\n').at(-1))
}

test('each request is a visit: shells go to the browser, blocks pause, handlers that need a page get one', { skip }, async (t) => {
  const { url, asked } = await site(t)
  const dir = folder(t)
  const paths = ['/one', '/app/1', '/app/2', '/needs-a-page', '/block/1']
  const first = await crawl(t, url, dir, paths)
  assert.deepEqual(first.seen, [
    ['/app/1', 'App'],
    ['/app/2', 'App'],
    ['/needs-a-page', 'Ferries'],
    ['/one', 'Ferries'],
  ])
  assert.deepEqual(first.failed.map(([path, ours]) => [path, ours]), [['/block/1', true]])
  const count = (path) => asked.filter((one) => one === path).length
  assert.equal(count('/one'), 1)
  // Crawlee's own predictor makes eight requests: both ways, and in three retries.
  assert.ok(count('/block/1') <= 3, `a blocked page was requested ${count('/block/1')} times`)
  const selector = new Selector({ journal: dir, fetchers: ['direct_access', 'playwright'] })
  const rows = await selector.stats('fetcher')
  assert.ok(rows.find(({ key }) => key === 'playwright').delivered >= 3)
  await selector.close()
  const before = asked.length
  const again = await crawl(t, url, dir, ['/block/1'])
  assert.deepEqual(again.failed, [['/block/1', true, 'paused', false, 0]])
  assert.equal(asked.length, before, 'what is paused is not asked for, after a restart either')
})

test('fewer renders and fewer wrong pages than with Crawlee’s own predictor', { skip: skip || (!lab && 'FETCHWISE_PROGRAM is not set') }, async (t) => {
  const sites = join(folder(t), 'sites.toml')
  const kinds = { static: 2, shell: 1, cloudflare: 1, sly: 1, short: 1, redirect: 1, gone: 1 }
  writeFileSync(sites, Object.entries(kinds).map(([kind, count]) => `[[site]]\nkind = "${kind}"\ncount = ${count}\n`).join(''))
  const compare = join(HERE, '../examples/crawlee_compare.mjs')
  const done = await run(process.execPath, [compare, '--json', '--lab', lab, '--pages', '6', '--sites', sites, '--chromium', chromium], { timeout: 600_000 })
  assert.equal(done.code, 0, done.stderr.slice(-3000))
  const [own, ownAgain, first, again] = Object.values(JSON.parse(done.stdout))
  t.diagnostic(JSON.stringify({ own, ownAgain, first, again }, (key, value) => (key === 'kinds' ? undefined : value)))
  for (const [theirs, ours] of [
    [own, first],
    [ownAgain, again],
  ]) {
    assert.ok(ours.wrong < theirs.wrong, `${ours.wrong} wrong pages, not fewer than ${theirs.wrong}`)
    for (const [kind, { good }] of Object.entries(theirs.kinds)) {
      // A visit does not trust a short page whose text also came for another address; Crawlee's predictor trusts
      // everything.
      if (kind !== 'short') assert.ok(ours.kinds[kind].good >= good, `${kind}: ${ours.kinds[kind].good} good pages, fewer than ${good}`)
    }
    assert.ok(ours.renders < theirs.renders, `${ours.renders} renders, not fewer than ${theirs.renders}`)
    assert.ok(ours.blocked < theirs.blocked, `${ours.blocked} blocked, not fewer than ${theirs.blocked}`)
  }
  assert.equal(first.wrong + again.wrong, 0)
})
