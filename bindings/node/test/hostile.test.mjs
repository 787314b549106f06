// Any argument throws or works: none ends the process.

import assert from 'node:assert/strict'
import { readFileSync, readdirSync } from 'node:fs'
import { dirname, join } from 'node:path'
import test from 'node:test'

import { HERE, node } from './helpers.mjs'

const CODE = `
import * as fetchwise from 'fetchwise'
const { FetchResult, Attempt, Detector, Journal, Selector, Visit, errorKind } = fetchwise
const evil = { get url() { throw new Error('no') }, toString() { throw new Error('no') } }
const looped = {}; looped.self = looped
const values = [undefined, null, true, false, NaN, -1, 0, 1.5, 2 ** 53, -Infinity, 10n, '', 'x', '\\0', '\\ud800', 'a'.repeat(100_000),
  'https://example.org/', 'https://[::1]:99999/', Symbol('s'), [], [[]], [[1, 2]], {}, evil, looped, new Proxy({}, { get() { throw new Error('no') } }),
  () => {}, class {}, new Date(NaN), /x/g, new Map([[1, 2]]), new Set([1]), new Uint8Array(5), new ArrayBuffer(5), Buffer.from('\\xff\\xfe'),
  new DataView(new ArrayBuffer(2)), Object.create(null), new Error('e'), Promise.resolve(), Object.create(Selector.prototype)]
let seed = 1
const pick = () => values[(seed = (seed * 48271) % 2147483647) % values.length]
const make = () => {
  const selector = new Selector({ fetchers: ['direct_access', 'playwright'] })
  const visit = selector.visit('https://example.org/')
  return [selector, visit, visit.next(), new Detector(), new Attempt('https://example.org/', 'x'), new FetchResult('timeout'),
    new Detector().classify('<p>x</p>'), selector.explain('https://example.org/')]
}
const counts = { worked: 0, threw: 0 }
const settle = async (result) => { if (result && typeof result.then === 'function') await result.catch(() => {}) }
const call = async (work) => {
  try { await settle(work()); counts.worked++ } catch (error) {
    counts.threw++
    if (!(error instanceof Error)) throw new Error('thrown: ' + String(error))
  }
}
// A random name must not create a directory.
const skipped = new Set(['constructor'])
for (let round = 0; round < 40; round++) {
  for (const object of make()) {
    const kind = Object.getPrototypeOf(object)
    for (const name of Object.getOwnPropertyNames(kind)) {
      if (skipped.has(name)) continue
      const { value, get } = Object.getOwnPropertyDescriptor(kind, name)
      if (get) { await call(() => get.call(object)); await call(() => get.call(pick())); continue }
      if (typeof value !== 'function') continue
      const args = Array.from({ length: round % 5 }, pick)
      await call(() => value.apply(object, args))
      if (round % 8 === 0) await call(() => value.apply(pick(), args))
    }
  }
  const options = () => ({ fetchers: pick(), pace: pick(), halfLifeDays: pick(), policy: pick(), maxKeys: pick(), hint: pick(), prefer: pick(),
    excluded: pick(), attempts: pick(), heuristics: pick(), link: pick(), at: pick(), headers: pick(), status: pick(), duration: pick(), url: pick(),
    retryAfter: pick(), message: pick(), maxBytes: pick(), blockThreshold: pick(), tryNo: pick(), confidence: pick() })
  const one = () => { const all = Object.entries(options()); return Object.fromEntries([all[round % all.length], all[(round * 7) % all.length]]) }
  const [selector, , , detector] = make()
  await call(() => new Selector(one()))
  await call(() => selector.select('https://example.org/', one()))
  await call(() => selector.explain('https://example.org/', one()))
  await call(() => selector.visit('https://example.org/', one()))
  await call(() => new Attempt('https://example.org/', 'x', one()))
  await call(() => new FetchResult('timeout', one()))
  await call(() => detector.classify('<p>x</p>', one()))
  await call(() => detector.judge(pick(), pick(), pick(), one()))
  await call(() => new Detector(one()))
  await call(() => selector.recordBatch(pick()))
  await call(() => errorKind(pick()))
  for (const kind of [Selector, Visit, Detector, Attempt, FetchResult]) await call(() => kind(pick()))
  await call(() => new Visit(pick()))
}
console.log(JSON.stringify(counts))
`

test('thousands of calls with anything', async (t) => {
  const done = await node(CODE)
  assert.equal(done.code, 0, `${done.signal}\n${done.stderr.slice(-2000)}`)
  const { worked, threw } = JSON.parse(done.stdout)
  assert.ok(worked > 500 && threw > 500, done.stdout)
})

test('a panic is an error', async () => {
  const done = await node(`
    import { createRequire } from 'node:module'
    import { dirname, join } from 'node:path'
    const require = createRequire(process.cwd() + '/x.js')
    const { _panic } = require(join(dirname(require.resolve('fetchwise')), 'binding.js'))
    const { Selector } = require('fetchwise')
    const selector = new Selector()
    for (let n = 0; n < 3; n++) {
      try { _panic(); process.exit(3) } catch (error) { console.log(error instanceof Error, error.code, error.message) }
    }
    console.log(selector.select('https://example.org/').kind)
  `)
  assert.equal(done.code, 0, `${done.signal}\n${done.stderr}`)
  const line = 'true GenericFailure asked for by a test'
  assert.deepEqual(done.stdout.trim().split('\n'), [line, line, line, 'take'])
})

test('every function that JavaScript can call catches panics', () => {
  const docs = process.env.FETCHWISE_DOCS ?? join(HERE, '../../../docs/guides/node.md')
  const sources = join(dirname(docs), '../../bindings/node/src')
  let functions = 0
  for (const name of readdirSync(sources)) {
    const lines = readFileSync(join(sources, name), 'utf8').split('\n')
    // The lines above a function, from the attribute that exports it on.
    let above = null
    for (const line of lines) {
      if (/^ {0,4}#\[napi/.test(line)) above = ''
      if (above === null) continue
      above += `${line}\n`
      if (/^ {0,4}pub fn /.test(line)) {
        functions++
        assert.match(above, /catch_unwind/, `${name}: ${line.trim()}`)
      }
      if (/^ {0,4}(pub|impl) ?/.test(line)) above = null
    }
  }
  assert.ok(functions > 100, `${functions}`)
})
