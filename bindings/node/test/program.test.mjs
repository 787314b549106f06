// The program reads the attempts that Node has written, and reports the same.

import assert from 'node:assert/strict'
import { createReadStream, readFileSync } from 'node:fs'
import { join } from 'node:path'
import test from 'node:test'

import { Attempt, ErrorKind, Journal, Selector, exportAttempts, importAttempts } from 'fetchwise'

import { folder, run } from './helpers.mjs'

const program = process.env.FETCHWISE_PROGRAM

test('export and explain', { skip: !program && 'FETCHWISE_PROGRAM is not set' }, async (t) => {
  const dir = folder(t)
  const selector = await Selector.open(dir, { fetchers: ['direct_access', 'playwright'] })
  const kinds = Object.values(ErrorKind)
  const attempts = Array.from({ length: 1000 }, (_, n) => {
    const attempt = new Attempt(`https://example.${n % 3 ? 'org' : 'com'}/${n % 7}/${n}?q=ä`, n % 2 ? 'playwright' : 'direct_access', {
      status: 200 + (n % 300),
      duration: n,
      headers: { server: `x${n}`, 'retry-after': '5' },
      at: Date.now() - n * 1000,
      link: n % 5 ? undefined : `link ${n}`,
    })
    return n % 4 ? attempt.delivered() : attempt.failed(kinds[n % kinds.length])
  })
  selector.recordBatch(attempts)
  await selector.flush()
  const exported = await run(program, ['export', '--data-dir', dir])
  assert.equal(exported.code, 0, exported.stderr)
  const lines = exported.stdout.trim().split('\n').map((line) => JSON.parse(line))
  const byId = new Map(lines.map((line) => [line.id, line]))
  assert.equal(byId.size, 1000)
  for (const attempt of attempts) {
    const { recorded_at: _, ...line } = byId.get(attempt.id)
    const { recorded_at: __, ...own } = attempt.toJSON()
    for (const [name, value] of Object.entries(own)) {
      // The selector adds the heuristics of the URL when it records.
      if (name !== 'heuristics') assert.deepEqual(line[name], value, name)
    }
  }
  const url = 'https://example.org/1/new'
  const explained = await run(program, ['explain', '--data-dir', dir, '--json', url])
  assert.equal(explained.code, 0, explained.stderr)
  const [theirs, ours] = [JSON.parse(explained.stdout), selector.explain(url).toJSON()]
  assert.equal(theirs.url, ours.url)
  assert.deepEqual(theirs.heuristics, ours.heuristics)
  const ofProgram = Object.fromEntries(theirs.candidates.map((candidate) => [candidate.fetcher, candidate]))
  for (const candidate of ours.candidates) {
    // Evidence has decayed a little in between.
    for (const figure of ['confidence', 'p', 'b', 'domain_attempts']) {
      assert.ok(Math.abs(candidate[figure] - ofProgram[candidate.fetcher][figure]) < 1e-3, `${candidate.fetcher} ${figure}`)
    }
  }
  const own = join(dir, 'own.jsonl')
  assert.equal(await exportAttempts(dir, own), 1000)
  assert.equal(readFileSync(own, 'utf8'), exported.stdout)
  await selector.close()
  // The program's import and the package's import of the same lines give the same log.
  const [by, other] = [folder(t), folder(t)]
  const imported = await run(program, ['import', '--data-dir', by, own])
  assert.equal(imported.code, 0, imported.stderr)
  const journal = new Journal(other)
  assert.equal((await importAttempts(createReadStream(own), journal)).imported, 1000)
  await journal.close()
  const both = await Promise.all([by, other].map((data) => run(program, ['export', '--data-dir', data])))
  assert.equal(both[0].stdout, both[1].stdout)
  assert.equal(both[0].stdout.trim().split('\n').length, 1000)
})
