import assert from 'node:assert/strict'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import test from 'node:test'
import { inspect } from 'node:util'

import { FetchResult, Attempt, Detector, Selector } from 'fetchwise'

import { ARTICLE, SHELL, BLOCK_PAGE, folder } from './helpers.mjs'

const code = (code) => ({ code: `ERR_FETCHWISE_${code}` })

test('content, shells, blocks', () => {
  const detector = new Detector()
  const content = detector.classify(Buffer.from(ARTICLE))
  assert.deepEqual([content.isContent, content.outcome, content.errorFor('direct_access')], [true, 'content', null])
  assert.ok(content.textChars > 1000)
  const shell = detector.classify(new TextEncoder().encode(SHELL))
  assert.deepEqual([shell.isShell, shell.outcome], [true, 'shell'])
  assert.deepEqual([shell.errorFor('direct_access'), shell.errorFor('playwright'), shell.errorFor('mine', true)], ['wrong_tool', 'empty_content', 'empty_content'])
  const network = detector.classify(
    Buffer.from('<h1>This website is blocked</h1><p>By order of the court, your internet service provider has blocked access.</p>'),
  )
  assert.deepEqual([network.isNetworkBlock, network.outcome, network.toJSON().isNetworkBlock], [true, 'network_block', true])
  const blocked = detector.classify(BLOCK_PAGE, { status: 403 })
  assert.deepEqual([blocked.isBlocked, blocked.vendor, blocked.outcome, blocked.status], [true, 'cloudflare', 'blocked', 403])
  assert.match(inspect(blocked), /^Verdict \{[^]*cloudflare/)
  assert.ok(detector.explain(BLOCK_PAGE, { status: 403 }).matches.some((match) => match.counted && match.vendor === 'cloudflare'))
  assert.ok(detector.ruleCount > 10)
})

test('headers in the formats of clients', () => {
  const detector = new Detector()
  const forms = [
    { 'Retry-After': '120', 'set-cookie': ['a=1', 'b=2'], missing: undefined, number: 7 },
    [['Retry-After', '120']],
    new Headers({ 'retry-after': '120' }),
    new Map([['retry-after', '120']]),
  ]
  for (const headers of forms) {
    const answer = detector.judge(429, headers, '<h1>Slow down</h1>')
    assert.equal(answer.status, 429)
    assert.ok(!answer.isContent, inspect(headers))
  }
  assert.equal(detector.judge(200, undefined, ARTICLE).isContent, true)
  for (const wrong of [[['a']], [['a', 'b', 'c']], ['text'], { a: {} }, { a: Symbol('x') }]) {
    assert.throws(() => detector.judge(200, wrong, ARTICLE))
  }
})

test('another thread gives the same result, and the body may change meanwhile', async () => {
  const detector = new Detector()
  const large = Buffer.from(ARTICLE.replace('</body>', `<p>${'Tides and timetables. '.repeat(200_000)}</p></body>`))
  const here = detector.classify(large, { url: 'https://example.org/' })
  const pending = detector.classifyAsync(large, { url: 'https://example.org/' })
  large.fill(0)
  assert.deepEqual((await pending).toJSON(), here.toJSON())
  const many = await Promise.all(Array.from({ length: 50 }, () => detector.classifyAsync(BLOCK_PAGE, { status: 403 })))
  assert.ok(many.every((verdict) => verdict.isBlocked))
})

test('no body throws', () => {
  const detector = new Detector()
  const zeros = new Uint8Array(0)
  const part = new Uint8Array(Buffer.from(ARTICLE).buffer, 0, 10)
  for (const body of ['', zeros, part, '\ud800', '\0', Buffer.alloc(3_000_000, '<'), new Uint8Array(100_000).map((_, n) => n * 7)]) {
    assert.equal(typeof detector.classify(body).outcome, 'string')
  }
  for (const body of [null, undefined, 7, {}, [], new ArrayBuffer(3)]) {
    assert.throws(() => detector.classify(body))
    assert.throws(() => detector.classifyAsync(body))
  }
  for (const status of [NaN, -1, 1e9, 200.5, Infinity]) {
    assert.throws(() => detector.classify('', { status }), code('VALUE'))
    assert.throws(() => detector.judge(status, {}, ''), code('VALUE'))
  }
})

test('custom rules, replaced while it reads', (t) => {
  const file = join(folder(t), 'rules.toml')
  writeFileSync(file, '[[rule]\n')
  assert.throws(() => new Detector({ rules: file }), code('CONFIG'))
  assert.throws(() => new Detector({ rules: 'no-such-file.toml' }), code('CONFIG'))
  assert.throws(() => new Detector().reload(), code('MISUSE'))
  const detector = new Detector()
  const count = detector.ruleCount
  assert.throws(() => detector.reload(file), code('CONFIG'))
  assert.equal(detector.ruleCount, count)
  assert.throws(() => new Detector({ maxBytes: -1 }), code('VALUE'))
  assert.throws(() => new Detector({ blockThreshold: NaN }), code('VALUE'))
  assert.equal(new Detector({ maxBytes: 100, blockThreshold: 0.9, countAll: true }).ruleCount, count)
})

test('a verdict becomes an attempt, and a result needs none', () => {
  const selector = new Selector({ fetchers: ['direct_access', 'playwright'] })
  const decision = selector.select('https://example.org/')
  const verdict = new Detector().classify('<h1>Forbidden</h1>', { status: 403, headers: { server: 'x' } })
  const attempt = Attempt.fromResponse(decision, 'https://example.org/', verdict, { duration: 31 })
  assert.deepEqual([attempt.errorType, attempt.isBanned, attempt.fetcher, attempt.duration], ['blocked_403', true, 'direct_access', 31])
  assert.equal(attempt.toJSON().decision ?? attempt.toJSON().source, decision.source)
  selector.record(attempt)
  const timeout = new FetchResult('timeout', { message: 'no byte in 30 s', duration: 30_000 })
  assert.deepEqual([timeout.errorFor('direct_access'), timeout.message, timeout.isContent], ['timeout', 'no byte in 30 s', false])
  const block = new FetchResult('blocked_captcha', { vendor: 'datadome', retryAfter: 1000 })
  assert.deepEqual([block.isBlocked, block.vendor], [true, 'datadome'])
  assert.throws(() => new FetchResult('timeout', { duration: -1 }), code('VALUE'))
  assert.throws(() => new FetchResult('timeout', { retryAfter: Infinity }), code('VALUE'))
  assert.throws(() => Attempt.fromResponse({ ...decision, fetcher: undefined }, 'https://example.org/', verdict), code('MISUSE'))
})
