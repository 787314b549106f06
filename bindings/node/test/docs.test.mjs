// The page docs/guides/node.md: its snippets run as printed, against a site on loopback, and it names the whole API.

import assert from 'node:assert/strict'
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { join } from 'node:path'
import test from 'node:test'

import * as fetchwise from 'fetchwise'

import { HERE, run, site } from './helpers.mjs'

const page = readFileSync(process.env.FETCHWISE_DOCS ?? join(HERE, '../../../docs/guides/node.md'), 'utf8')
const snippets = [...page.matchAll(/```js\n([^]*?)```/g)].map(([, code]) => code)
const chromium = process.env.FETCHWISE_CHROMIUM ?? '/usr/bin/chromium'
const crawlee = () => {
  try {
    createRequire(join(HERE, 'x.js')).resolve('crawlee')
    return existsSync(chromium)
  } catch {
    return false
  }
}

test('there are snippets', () => assert.ok(snippets.length >= 6))

for (const [n, code] of snippets.entries()) {
  const wants = code.includes("'crawlee'")
  test(`snippet ${n + 1} runs`, { skip: wants && !crawlee() && 'Crawlee and a Chromium are not here' }, async (t) => {
    const { url, asked } = await site(t)
    const dir = mkdtempSync(join(HERE, 'snippet-'))
    t.after(() => rmSync(dir, { recursive: true, force: true }))
    writeFileSync(join(dir, 'snippet.mjs'), code.replaceAll('https://example.org', url))
    const env = {
      ...process.env,
      CRAWLEE_DEFAULT_BROWSER_PATH: chromium,
      CRAWLEE_DISABLE_BROWSER_SANDBOX: '1',
      CRAWLEE_STORAGE_DIR: join(dir, 'storage'),
    }
    const done = await run(process.execPath, ['snippet.mjs'], { cwd: dir, env })
    assert.equal(done.code, 0, done.stderr)
    if (wants) {
      assert.deepEqual(asked.sort(), ['/', '/page'], 'each page was asked for once, and no browser was needed')
      assert.ok(existsSync(join(dir, 'fetchwise-data')))
    }
  })
}

test('every public name is on the page, with an example', () => {
  const code = snippets.join('\n')
  // Classes without a constructor appear in the examples of the calls that return them.
  const made = { Explanation: 'explain(', Step: 'step.fetcher', Verdict: 'verdict.isBlocked', Visit: 'visit.next()' }
  for (const name of Object.keys(fetchwise).filter((name) => name !== 'default' && name !== 'module.exports')) {
    assert.ok(page.includes(`\`${name}\``), `${name} is not on the page`)
    assert.ok(code.includes(made[name] ?? name), `${name} has no example`)
  }
})

test('declarations and exports match', () => {
  const require = createRequire(join(HERE, 'x.js'))
  const root = join(require.resolve('fetchwise'), '..')
  const declared = readFileSync(join(root, 'binding.d.ts'), 'utf8')
  const classes = [...declared.matchAll(/^export declare class (\w+)/gm)].map(([, name]) => name)
  for (const name of classes) {
    assert.equal(typeof fetchwise[name], 'function', name)
    const body = declared.slice(declared.indexOf(`class ${name} `)).split('\n}')[0]
    const members = [...body.matchAll(/^ {2}(?:get |static )?(\w+)[(]/gm)].map(([, member]) => member)
    for (const member of members.filter((member) => member !== 'constructor')) {
      assert.ok(member in fetchwise[name].prototype || member in fetchwise[name], `${name}.${member}`)
    }
  }
  const kinds = declared.match(/export type ErrorKind =([^]*?)\n\n/)[1].match(/'(\w+)'/g).map((kind) => kind.slice(1, -1))
  assert.deepEqual(kinds, Object.values(fetchwise.ErrorKind))
})
