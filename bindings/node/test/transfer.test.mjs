// Attempts as JSON lines: each attempt is imported once, whatever its source, and exports are unchanged when imported.

import assert from 'node:assert/strict'
import { createReadStream, createWriteStream, existsSync, readFileSync, writeFileSync } from 'node:fs'
import { open } from 'node:fs/promises'
import { join } from 'node:path'
import { Readable, Writable } from 'node:stream'
import { finished } from 'node:stream/promises'
import test from 'node:test'

import { Attempt, Journal, Selector, exportAttempts, importAttempts } from 'fetchwise'

import { folder, node } from './helpers.mjs'

const code = (code) => ({ code: `ERR_FETCHWISE_${code}` })
const line = (n) => ({ url: `https://example.org/${n}`, fetcher: 'playwright', success: true, attempted_at: 1763650000123 + n })
const attempt = (n) => new Attempt(`https://example.org/${n}`, 'playwright').delivered()

test('each attempt is imported once, and unusable lines are counted', async (t) => {
  const journal = new Journal(folder(t))
  const made = attempt(0)
  const counts = await importAttempts(
    [line(1), JSON.stringify(line(2)), Buffer.from(JSON.stringify(line(3))), made, '', line(1), 'nonsense', null, undefined, {}, { ...line(4), odd: 1 }],
    journal,
  )
  const { errors, ...numbers } = counts
  assert.deepEqual(numbers, { lines: 10, imported: 5, duplicates: 1, failed: 4, clamped: 0, unknownFields: ['odd'] })
  assert.deepEqual(
    errors.map(({ line }) => line),
    [7, 8, 9, 10],
  )
  assert.ok(errors.every(({ error }) => error.length > 5), JSON.stringify(errors))
  assert.equal((await importAttempts([made, line(2)], journal)).duplicates, 2)
  assert.equal((await importAttempts([], journal)).lines, 0)
  const clamped = await importAttempts([{ ...line(5), attempted_at: Date.now() + 1e9 }], journal)
  assert.deepEqual([clamped.imported, clamped.clamped], [1, 1])
  await journal.close()
  await assert.rejects(importAttempts([line(6)], journal), code('CLOSED'))
})

test('a given selector observes at once, a later one replays', async (t) => {
  const dir = folder(t)
  const journal = new Journal(dir)
  const selector = new Selector({ journal, fetchers: ['direct_access', 'playwright'] })
  const lines = Array.from({ length: 20 }, (_, n) => ({ ...line(n), attempted_at: Date.now() - n }))
  assert.equal((await importAttempts(lines, journal, { selector })).imported, 20)
  assert.equal(selector.select('https://example.org/new').fetcher, 'playwright')
  await journal.close()
  const again = await Selector.open(dir, { fetchers: ['direct_access', 'playwright'] })
  assert.equal(again.masses('domain', 'example.org', 'playwright').attempts, 20)
  await again.close()
})

test('export to a file and to a stream, and import in every way', async (t) => {
  const dir = folder(t)
  const journal = new Journal(join(dir, 'from'))
  const selector = new Selector({ journal })
  const count = 5000
  for (let n = 0; n < count; n++) selector.record(n % 3 ? attempt(n) : attempt(n).failed('timeout'))
  const [file, other] = [join(dir, 'attempts.jsonl'), join(dir, 'other.jsonl')]
  assert.equal(await exportAttempts(journal, file), count)
  const text = readFileSync(file, 'utf8')
  assert.equal(text.split('\n').length, count + 1)
  // The stream is not ended: the caller may write more.
  const stream = createWriteStream(other)
  assert.equal(await exportAttempts(join(dir, 'from'), stream), count)
  stream.end('\n')
  await finished(stream)
  assert.equal(readFileSync(other, 'utf8'), `${text}\n`)
  await journal.close()
  const ways = {
    stream: () => createReadStream(other, { highWaterMark: 1000 }),
    lines: async () => (await open(file)).readLines(),
    list: () => text.split('\n'),
    items: () => Readable.from(text.split('\n')),
  }
  for (const [way, begin] of Object.entries(ways)) {
    const into = new Journal(join(dir, way))
    const { imported, failed } = await importAttempts(await begin(), into)
    assert.deepEqual([imported, failed], [count, 0], way)
    await exportAttempts(into, join(dir, 'again.jsonl'))
    await into.close()
    assert.equal(readFileSync(join(dir, 'again.jsonl'), 'utf8'), text, way)
  }
})

test('a slow reader, a failing one, and missing files', async (t) => {
  const dir = folder(t)
  const journal = new Journal(dir)
  const selector = new Selector({ journal })
  for (let n = 0; n < 5000; n++) selector.record(attempt(n))
  let bytes = 0
  const slow = new Writable({
    highWaterMark: 1,
    write(chunk, _, done) {
      bytes += chunk.length
      setTimeout(done, 5)
    },
  })
  assert.equal(await exportAttempts(journal, slow), 5000)
  assert.ok(bytes > 500_000)
  const failing = new Writable({ write: (_chunk, _encoding, done) => done(new Error('full')) })
  await assert.rejects(exportAttempts(journal, failing), /full/)
  await assert.rejects(exportAttempts(journal, join(dir, 'no/where.jsonl')), { code: 'ENOENT' })
  await assert.rejects(exportAttempts(journal, 7), code('VALUE'))
  await assert.rejects(importAttempts(createReadStream(join(dir, 'nowhere.jsonl')), journal), { code: 'ENOENT' })
  await assert.rejects(importAttempts('{}', journal), code('VALUE'))
  await assert.rejects(importAttempts(null, journal), code('VALUE'))
  await assert.rejects(importAttempts([], {}))
  await assert.rejects(
    importAttempts(
      (function* () {
        yield line(1)
        throw new Error('torn')
      })(),
      journal,
    ),
    /torn/,
  )
  await journal.close()
  await assert.rejects(exportAttempts(journal, join(dir, 'closed.jsonl')), code('CLOSED'))
  await assert.rejects(exportAttempts(join(dir, 'nowhere'), join(dir, 'closed.jsonl')), /nowhere/)
  assert.ok(!existsSync(join(dir, 'closed.jsonl')), 'an export that cannot begin leaves no file')
})

test('an export without a reader keeps no process running', async (t) => {
  const dir = folder(t)
  writeFileSync(join(dir, 'lines.jsonl'), Array.from({ length: 20_000 }, (_, n) => JSON.stringify(line(n))).join('\n'))
  const done = await node(
    `
    import { createReadStream } from 'node:fs'
    import { createRequire } from 'node:module'
    import { dirname, join } from 'node:path'
    import { Journal, importAttempts } from 'fetchwise'
    const require = createRequire(process.cwd() + '/x.js')
    const { _exportFrom, _exportNext } = require(join(dirname(require.resolve('fetchwise')), 'binding.js'))
    const journal = new Journal(process.argv[1] + '/data')
    await importAttempts(createReadStream(process.argv[1] + '/lines.jsonl'), journal)
    const text = await _exportNext(_exportFrom(journal))
    console.log(typeof text)
  `,
    [dir],
  )
  assert.deepEqual([done.code, done.stdout.trim()], [0, 'string'], done.stderr)
})
