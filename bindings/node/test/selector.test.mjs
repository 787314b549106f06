import assert from 'node:assert/strict'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import test from 'node:test'

import { Attempt, ErrorKind, Journal, Selector, errorKind } from 'fetchwise'

import { folder } from './helpers.mjs'

const code = (code) => ({ code: `ERR_FETCHWISE_${code}` })

for (const [successes, attempts, confidence] of [
  [5, 5, 0.5],
  [8, 10, 0.8],
  [14, 20, 0.7],
  [3, 3, 0.3],
]) {
  test(`the published confidence of ${successes} of ${attempts}`, () => {
    const selector = new Selector({ fetchers: ['direct_access', 'playwright'] })
    const at = Date.now()
    selector.recordBatch(
      Array.from({ length: attempts }, (_, n) => {
        const attempt = new Attempt(`https://example.org/${n}/page`, 'playwright', { at })
        return n < successes ? attempt.delivered() : attempt.failed(ErrorKind.SERVER_ERROR)
      }),
    )
    const masses = selector.masses('domain', 'example.org', 'playwright', false, at)
    assert.equal(masses.attempts, attempts)
    assert.ok(Math.abs(masses.success - successes) < 0.01)
    const { candidates } = selector.explain('https://example.org/new/page', { at }).toJSON()
    const found = candidates.find((candidate) => candidate.fetcher === 'playwright')
    assert.ok(Math.abs(found.confidence - confidence) < 0.01, `${found.confidence}`)
  })
}

test('evidence decides, and the decision is explained', () => {
  const selector = new Selector({ fetchers: ['direct_access', 'playwright'] })
  for (let n = 0; n < 10; n++) selector.record(new Attempt(`https://wikipedia.org/wiki/${n}`, 'playwright').delivered())
  const decision = selector.select(new URL('https://wikipedia.org/wiki/Rust'))
  assert.equal(decision.kind, 'take')
  assert.equal(decision.fetcher, 'playwright')
  assert.equal(decision.source, 'learned')
  assert.equal(decision.renders, true)
  const explained = selector.explain('https://wikipedia.org/wiki/Rust')
  assert.equal(explained.fetcher, 'playwright')
  assert.match(String(explained), /playwright {2}learned \(confidence 1\.00/)
  assert.equal(explained.toJSON().fetcher, 'playwright')
  assert.equal(selector.select('https://example.org/', { excluded: ['direct_access'], hint: 'empty' }).fetcher, 'playwright')
  assert.equal(selector.select('https://example.org/', { prefer: 'playwright' }).fetcher, 'playwright')
})

test('many URLs get the decisions that each gets alone', () => {
  const selector = new Selector({ fetchers: ['direct_access', 'playwright'] })
  const at = Date.now()
  for (let n = 0; n < 60; n++) selector.record(new Attempt(`https://site${n % 7}.org/${n}`, 'playwright', { at }).delivered())
  const urls = Array.from({ length: 40 }, (_, n) => new URL(`https://site${n % 11}.org/new/${n}`))
  const alone = urls.map((url) => selector.select(url, { at }))
  assert.deepEqual(selector.selectMany(urls, { at }), alone)
  assert.deepEqual(selector.selectMany(urls.map(String), { at }), alone)
  assert.equal(selector.selectMany(urls, { prefer: 'playwright', at })[9].source, 'hinted')
  assert.deepEqual(selector.selectMany([]), [])
  assert.throws(() => selector.selectMany(['https://example.org/', 'ftp://example.org/']), code('URL'))
  assert.throws(() => selector.selectMany(urls, { link: 'one' }), code('MISUSE'))
})

test('custom fetchers', () => {
  const selector = new Selector({ fetchers: ['direct_access', { name: 'mine', kind: 'rendering', cost: 7.5 }] })
  assert.deepEqual(
    selector.fetchers.map(({ name, cost, renders }) => [name, cost, renders]),
    [
      ['direct_access', 1, false],
      ['mine', 7.5, true],
    ],
  )
})

test('a config file', async (t) => {
  const dir = folder(t)
  const config = join(dir, 'fetchwise.toml')
  writeFileSync(config, "[http]\ntimeout = '7s'\n[tuning]\nprobe_timeout = '2s'\n[backoff]\nescalate_after_block = false\n")
  const visit = new Selector({ config, pace: false }).visit('https://example.org/')
  const step = visit.next()
  assert.equal(step.deadline, 2000)
  visit.report(step, 'blocked_403')
  assert.equal(visit.next(), null)
  assert.equal(visit.end.requests, 1)
  writeFileSync(config, "[[fetcher]]\nname = 'direct_access'\n[[fetcher]]\nname = 'mine'\nclass = 'rendering'\ncost = 7.5\n")
  const opened = await Selector.open(join(dir, 'data'), { config })
  assert.deepEqual(
    opened.fetchers.map(({ name, cost, renders }) => [name, cost, renders]),
    [
      ['direct_access', 1, false],
      ['mine', 7.5, true],
    ],
  )
  await opened.close()
  assert.throws(() => new Selector({ config, fetchers: ['direct_access'] }), code('CONFIG'))
  writeFileSync(config, "[[fetcher]]\nnam = 'direct_access'\n")
  assert.throws(() => new Selector({ config }), { ...code('CONFIG'), message: /nam/ })
  assert.throws(() => new Selector({ config: join(dir, 'nowhere.toml') }), { ...code('CONFIG'), message: /nowhere\.toml/ })
})

test('invalid settings and values throw', () => {
  const selector = new Selector()
  for (const url of ['', 'nonsense', 'ftp://example.org/', 'http://', null, undefined, 7, `https://${'a'.repeat(70_000)}`, {}]) {
    assert.throws(() => selector.select(url), code('URL'), String(url).slice(0, 40))
  }
  assert.throws(() => selector.select('https://example.org/', { prefer: 'nobody' }), code('CONFIG'))
  assert.throws(() => selector.select('https://example.org/', { hint: 'emty' }), code('VALUE'))
  assert.throws(() => selector.select('https://example.org/', { at: NaN }), code('VALUE'))
  assert.throws(() => selector.select('https://example.org/', { at: -1 }), code('VALUE'))
  assert.throws(() => selector.select('https://example.org/', { attempts: 0.5 }), code('VALUE'))
  assert.throws(() => new Selector({ policy: 'best' }), code('CONFIG'))
  assert.throws(() => new Selector({ halfLifeDays: 0.1 }), code('CONFIG'))
  assert.throws(() => new Selector({ fetchers: [{ name: 'x', cost: -1 }] }), code('CONFIG'))
  assert.throws(() => new Selector({ fetchers: [3] }))
  assert.throws(() => new Attempt('https://example.org/', 'x', { status: 1e9 }), code('VALUE'))
  assert.throws(() => new Attempt('https://example.org/', 'x', { confidence: 2 }), code('VALUE'))
  assert.throws(() => new Attempt('https://example.org/', 'x').weighing(0.3), code('VALUE'))
  assert.throws(() => Attempt.fromJSON('{}'), code('VALUE'))
  assert.throws(() => selector.stats(), code('MISUSE'))
  assert.throws(() => selector.record({}))
})

test('an attempt as JSON and back', () => {
  const attempt = new Attempt('https://example.org/a', 'direct_access', { status: 503, duration: 120, headers: { 'Retry-After': '5' } })
  const failed = attempt.failed(ErrorKind.SERVER_ERROR)
  assert.deepEqual([failed.success, failed.errorType, failed.weight, failed.status], [false, 'server_error', 1, 503])
  assert.equal(failed.duration, 120)
  const again = Attempt.fromJSON(JSON.parse(JSON.stringify(failed)))
  assert.deepEqual(again.toJSON(), failed.toJSON())
  assert.deepEqual(Attempt.fromJSON(JSON.stringify(failed)).toJSON(), failed.toJSON())
  const line = { url: 'https://example.org/', fetcher: 'playwright', success: true, attempted_at: 1763650000123 }
  assert.equal(Attempt.fromJSON(line).toJSON().attempted_at, '2025-11-20T14:46:40.123Z')
})

test('records survive a restart, counted and explained', async (t) => {
  const dir = folder(t)
  const first = await Selector.open(dir, { fetchers: ['direct_access', 'playwright'] })
  for (let n = 0; n < 20; n++) first.record(new Attempt(`https://example.org/${n}`, 'playwright').delivered())
  first.record(new Attempt('https://example.com/', 'direct_access').failed('blocked_403'))
  await first.flush()
  const rows = await first.stats('fetcher')
  assert.deepEqual(
    rows.map(({ key, attempts, delivered, banned }) => [key, attempts, delivered, banned]).sort(),
    [
      ['direct_access', 1, 0, 1],
      ['playwright', 20, 20, 0],
    ],
  )
  await first.close()
  assert.throws(() => first.record(new Attempt('https://example.org/', 'playwright').delivered()), code('CLOSED'))
  await assert.rejects(first.flush(), code('CLOSED'))
  const second = new Selector({ journal: dir, fetchers: ['direct_access', 'playwright'] })
  assert.equal(second.select('https://example.org/new').fetcher, 'playwright')
  assert.equal(second.journal.dir, dir)
  second.forget({ domain: 'example.org' })
  assert.throws(() => second.forget({}), code('MISUSE'))
  await second.close()
  const third = await Selector.open(dir)
  assert.equal(third.masses('domain', 'example.org', 'playwright').attempts, 0)
  assert.equal(third.masses('domain', 'example.com', 'direct_access').attempts, 1)
  await third.close()
})

test('a journal for several selectors, and its maintenance', async (t) => {
  const dir = folder(t)
  const journal = new Journal(dir, { durability: 'sync' })
  assert.throws(() => new Journal(dir), { code: 'ERR_FETCHWISE_LOCKED', pid: process.pid })
  await assert.rejects(Selector.open(dir), { code: 'ERR_FETCHWISE_LOCKED', pid: process.pid })
  const [one, other] = [new Selector({ journal }), new Selector({ journal })]
  one.record(new Attempt('https://example.org/', 'playwright').delivered())
  other.record(new Attempt('https://example.org/', 'playwright').delivered())
  await journal.settled()
  journal.flushSync()
  assert.equal(journal.health, 'good')
  assert.equal(journal.metrics().appended, 2)
  assert.deepEqual(await journal.verify(), { sound: true, attempts: 2 })
  assert.equal(await journal.snapshot(), 2)
  assert.deepEqual((await journal.compact({ dryRun: true })).attempts.length, 2)
  journal.closeSync()
  await journal.close()
  assert.equal(journal.health, 'closed')
  await assert.rejects(journal.flush(), code('CLOSED'))
  assert.throws(() => new Journal('/dev/null/nowhere'), code('LOG'))
  assert.throws(() => new Journal(dir, { durability: 'maybe' }), code('VALUE'))
  assert.throws(() => new Journal(dir, { linger: NaN }), code('VALUE'))
})

test('errors of clients have kinds', async () => {
  assert.equal(Object.keys(ErrorKind).length, 29)
  assert.equal(errorKind(Object.assign(new Error('x'), { code: 'ENOTFOUND' })), 'dns_error')
  assert.equal(errorKind(Object.assign(new Error('x'), { code: 'EAI_AGAIN' })), 'network_error')
  assert.equal(errorKind(new TypeError('fetch failed', { cause: Object.assign(new Error('x'), { code: 'ECONNRESET' }) })), 'network_error')
  assert.equal(errorKind(new Error('page.goto: net::ERR_CERT_DATE_INVALID at https://…')), 'tls_error')
  assert.equal(errorKind(AbortSignal.timeout(0).reason ?? new DOMException('late', 'TimeoutError')), 'timeout')
  for (const odd of [null, undefined, 7, 'text', {}, Object.create(null)]) assert.equal(errorKind(odd), 'network_error')
  const refused = await fetch('http://127.0.0.1:1/').catch((error) => error)
  assert.equal(errorKind(refused), 'network_error')
})
