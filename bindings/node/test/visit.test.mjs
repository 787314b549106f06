import assert from 'node:assert/strict'
import test from 'node:test'

import { Detector, Selector } from 'fetchwise'

import { ARTICLE, node, site } from './helpers.mjs'

const code = (code) => ({ code: `ERR_FETCHWISE_${code}` })
// The steps of a visit without the waits of a pace.
const both = () => new Selector({ fetchers: ['direct_access', 'playwright'], pace: false })

test('a visit tries the next fetcher, and reports its end', () => {
  const visit = both().visit('https://example.org/app')
  const asked = []
  for (let step = visit.next(); step; step = visit.next()) {
    asked.push([step.fetcher, step.url, step.wait, step.isProbe])
    visit.report(step, step.fetcher === 'direct_access' ? 'wrong_tool' : 'content', 12)
  }
  assert.deepEqual(
    asked.map(([fetcher]) => fetcher),
    ['direct_access', 'playwright'],
  )
  const { end } = visit
  assert.deepEqual([end.kind, end.isDelivered, end.fetcher, end.requests], ['delivered', true, 'playwright', 2])
  assert.equal(visit.next(), null)
})

test('the host that responds is held, and not the one that redirects', () => {
  const selector = both()
  const visit = selector.visit('https://short.example/1')
  const page = { finalUrl: 'https://v.example/1' }
  visit.report(visit.next(), new Detector().judge(429, { 'Retry-After': '600' }, '<h1>Slow down</h1>', page))
  assert.equal(visit.next(), null)
  assert.equal(visit.end.isBanned, true)
  assert.ok(selector.hostPause('v.example'))
  assert.equal(selector.hostPause('short.example'), null)
})

test('visits keep a pace unless it is turned off', () => {
  const ends = (options) => {
    const selector = new Selector({ fetchers: ['direct_access'], ...options })
    return Array.from({ length: 20 }, (_, n) => {
      const visit = selector.visit(`https://example.org/${n}`)
      for (let step = visit.next(); step; step = visit.next()) {
        if (step.wait) {
          assert.equal(step.reason, 'pace')
          visit.giveUp(step)
        } else {
          visit.report(step, 'content')
        }
      }
      return visit.end.kind
    })
  }
  const paced = ends({})
  assert.equal(paced[0], 'delivered')
  assert.ok(paced.includes('paced'), 'twenty pages at once are more than a new host gets')
  assert.deepEqual(ends({ pace: true }).includes('paced'), true)
  assert.deepEqual(new Set(ends({ pace: false })), new Set(['delivered']))
})

test('a host that is held for long ends visits instead of keeping them waiting', () => {
  const selector = new Selector({ fetchers: ['direct_access'] })
  const first = selector.visit('https://example.org/1')
  first.report(first.next(), new Detector().judge(429, { 'Retry-After': '600' }, '<h1>Slow down</h1>'))
  assert.equal(first.next(), null)
  assert.equal(first.end.isBanned, true)
  const second = selector.visit('https://example.org/2')
  assert.equal(second.next(), null)
  assert.deepEqual([second.end.kind, second.end.paused, second.end.requests], ['paused', 'host', 0])
})

test('errors of a client are outcomes', () => {
  const visit = both().visit('https://example.org/', { fetchers: ['direct_access'] })
  const step = visit.next()
  assert.equal(step.decision.fetcher, 'direct_access')
  visit.report(step, Object.assign(new Error('getaddrinfo'), { code: 'ENOTFOUND' }))
  for (let again = visit.next(); again; again = visit.next()) visit.report(again, 'dns_error')
  assert.deepEqual([visit.end.kind, visit.end.errorType], ['failed', 'dns_error'])
})

test('misuse throws, and costs nothing', () => {
  const selector = both()
  const [visit, other] = [selector.visit('https://example.org/'), selector.visit('https://example.com/')]
  const step = visit.next()
  assert.throws(() => other.report(step, 'content'), code('MISUSE'))
  assert.throws(() => visit.giveUp(step), code('MISUSE'))
  assert.throws(() => visit.report(step, 'content', -1), code('VALUE'))
  assert.throws(() => visit.report(step, 7))
  assert.throws(() => visit.report(step, {}))
  assert.throws(() => visit.report({}, 'content'))
  visit.report(step, 'content')
  assert.throws(() => visit.report(step, 'content'), code('MISUSE'))
  assert.equal(visit.next(), null)
  other.close()
  assert.equal(other.next(), null)
  assert.throws(() => selector.visit('nonsense'), code('URL'))
  assert.throws(() => selector.visit('https://example.org/', { fetchers: ['nobody'] }), code('CONFIG'))
  assert.throws(() => selector.visit('https://example.org/', { prefer: 'nobody' }), code('CONFIG'))
})

test('a wait ends with its event', async () => {
  const selector = both()
  const [first, second] = [selector.visit('https://example.org/a'), selector.visit('https://example.org/b')]
  const probe = first.next()
  assert.equal(probe.isProbe, true)
  const wait = second.next()
  assert.deepEqual([wait.wait, wait.reason, wait.fetcher], [true, 'probe', null])
  assert.ok(wait.delay > 0)
  assert.throws(() => second.report(wait, 'content'), code('MISUSE'))
  const order = []
  const come = wait.ready().then(() => order.push('ready'))
  await new Promise((resolve) => setImmediate(resolve))
  order.push('report')
  first.report(probe, 'content')
  await come
  assert.deepEqual(order, ['report', 'ready'])
  const next = second.next()
  assert.equal(next.wait, false)
  second.report(next, 'content')
  assert.equal(second.next(), null)
})

test('a wait also ends in time, and keeps no process running', async () => {
  const selector = both()
  const [first, second] = [selector.visit('https://example.org/a'), selector.visit('https://example.org/b')]
  first.next()
  const wait = second.next()
  await wait.ready(1)
  second.close()
  const done = await node(`
    import { Selector } from 'fetchwise'
    const selector = new Selector({ fetchers: ['direct_access', 'playwright'] })
    const [first, second] = [selector.visit('https://example.org/a'), selector.visit('https://example.org/b')]
    first.next()
    second.next().ready(1).then(() => console.log('ready'))
  `)
  assert.deepEqual([done.code, done.stdout], [0, 'ready\n'], done.stderr)
})

test('a visit driven by functions, against a site that counts', async (t) => {
  const { url, asked } = await site(t)
  const selector = both()
  const fetchers = {
    direct_access: (address, step, signal) => fetch(address, { signal }),
    playwright: async (address) => ({ status: 200, headers: { 'content-type': 'text/html' }, body: ARTICLE, url: address }),
  }
  const page = await selector.fetch(`${url}/page`, fetchers)
  assert.deepEqual([page.end.kind, page.end.fetcher, page.end.requests], ['delivered', 'direct_access', 1])
  assert.match(Buffer.from(page.body).toString(), /ferry/)
  const app = await selector.fetch(`${url}/app/1`, fetchers)
  assert.deepEqual([app.end.kind, app.end.fetcher, app.end.requests], ['delivered', 'playwright', 2])
  assert.deepEqual(asked, ['/page', '/app/1'])
  const reset = await selector.fetch(`${url}/reset`, { direct_access: fetchers.direct_access })
  assert.deepEqual([reset.end.kind, reset.response, reset.answer], ['failed', null, null])
  const stop = new AbortController()
  const reason = new Error('enough')
  setTimeout(() => stop.abort(reason), 20)
  await assert.rejects(selector.fetch(`${url}/hang`, { direct_access: fetchers.direct_access }, { signal: stop.signal }), reason)
})

test('a block pauses the link, and the pause is kept', async (t) => {
  const { url, asked } = await site(t)
  const selector = both()
  const detector = new Detector()
  const blocked = async (address, step, signal) => fetch(address, { signal })
  const fetchers = { direct_access: blocked, playwright: blocked }
  const first = await selector.fetch(`${url}/block`, fetchers, { detector })
  assert.equal(first.end.isBanned, true)
  assert.ok(first.end.pausedUntil > Date.now())
  const before = asked.length
  const second = await selector.fetch(`${url}/block`, fetchers, { detector })
  assert.deepEqual([second.end.kind, second.end.requests, asked.length], ['paused', 0, before])
  assert.ok(second.end.paused === 'link' || second.end.paused === 'host')
  selector.unpauseLink(`${url}/block`)
  selector.unpauseHost(url)
  assert.equal(selector.hostPause(url), null)
})
