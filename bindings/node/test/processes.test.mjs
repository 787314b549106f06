// Processes that end or are killed: acknowledged records are on disk afterwards.

import assert from 'node:assert/strict'
import test from 'node:test'

import { Journal } from 'fetchwise'

import { folder, node } from './helpers.mjs'

const RECORD = `
import { Attempt, Selector } from 'fetchwise'
const [dir, count] = process.argv.slice(1)
const selector = new Selector({ journal: dir })
const attempt = () => new Attempt('https://example.org/', 'playwright').delivered()
for (let n = 0; n < Number(count); n++) selector.record(attempt())
`

async function attemptsIn(dir) {
  const journal = new Journal(dir)
  const { sound, attempts } = await journal.verify()
  await journal.close()
  assert.equal(sound, true)
  return attempts
}

for (const [name, end, more, status] of [
  ['runs out', '', 0, 0],
  ['is told to exit', 'process.exit(0)', 0, 0],
  ['fails', 'throw new Error("intended")', 0, 1],
  ['has a promise rejected', 'await Promise.reject(new Error("intended"))', 0, 1],
  ['records in its last handler', 'process.on("exit", () => selector.record(attempt()))', 1, 0],
]) {
  test(`nothing is lost when a process ${name}`, async (t) => {
    const dir = folder(t)
    const done = await node(RECORD + end, [dir, '20000'])
    assert.equal(done.code, status, done.stderr)
    assert.equal(await attemptsIn(dir), 20_000 + more)
  })
}

test('kill -9 loses no settled record', async (t) => {
  const dir = folder(t)
  const code = `${RECORD}
await selector.settled()
console.log('settled')
for (;;) selector.record(attempt())`
  const onLine = (stdout, child) => stdout.includes('settled') && child.kill('SIGKILL')
  const done = await node(code, [dir, '20000'], { onLine })
  assert.equal(done.signal, 'SIGKILL', done.stderr)
  assert.ok((await attemptsIn(dir)) >= 20_000)
})

test('kill -9 loses no flushed record, again and again', async (t) => {
  const dir = folder(t)
  let least = 0
  for (let round = 0; round < 3; round++) {
    const code = `${RECORD}
let known = 0
for (;;) {
  for (let n = 0; n < 500; n++) selector.record(attempt())
  await selector.flush()
  known += 500
  console.log(known)
}`
    const onLine = (stdout, child) => stdout.split('\n').length > 4 && child.kill('SIGKILL')
    const done = await node(code, [dir, '0'], { onLine })
    assert.equal(done.signal, 'SIGKILL', done.stderr)
    least += Number(done.stdout.trim().split('\n').at(-1))
    assert.ok((await attemptsIn(dir)) >= least)
  }
})

test('evidence that left memory is kept on disk', async (t) => {
  const dir = folder(t)
  const code = `
import { Attempt, Journal, Selector } from 'fetchwise'
const sites = Array.from({ length: 3000 }, (_, n) => \`site\${n}.example\`)
const knows = (selector) => sites.filter((site) => selector.masses('domain', site, 'playwright').attempts === 1).length
const first = new Selector({ journal: process.argv[1], maxKeys: 50 })
for (const site of sites) first.record(new Attempt(\`https://\${site}/\`, 'playwright').delivered())
const seen = [knows(first)]
await first.close()
const second = new Selector({ journal: process.argv[1], maxKeys: 50 })
seen.push(knows(second))
await second.close()
console.log(seen.join(' '))`
  const done = await node(code, [dir])
  assert.equal(done.stdout.trim(), '3000 3000', done.stderr)
})

test('a second writer gets the pid of the first', async (t) => {
  const dir = folder(t)
  const journal = new Journal(dir)
  const done = await node(
    `
    import { Selector } from 'fetchwise'
    const seen = []
    try { new Selector({ journal: process.argv[1] }) } catch (error) { seen.push([error.code, error.pid]) }
    await Selector.open(process.argv[1]).catch((error) => seen.push([error.code, error.pid]))
    console.log(JSON.stringify(seen))
  `,
    [dir],
  )
  assert.equal(done.code, 0, done.stderr)
  assert.deepEqual(JSON.parse(done.stdout), [
    ['ERR_FETCHWISE_LOCKED', process.pid],
    ['ERR_FETCHWISE_LOCKED', process.pid],
  ])
  await journal.close()
  assert.equal(await attemptsIn(dir), 0)
})

test('worker threads have separate journals, and their end loses nothing', async (t) => {
  const dir = folder(t)
  const done = await node(
    `
    import { Worker, isMainThread, workerData } from 'node:worker_threads'
    import { Attempt, Selector } from 'fetchwise'
    const code = \`
      const { workerData } = require('node:worker_threads')
      const { Attempt, Selector } = require(workerData.module)
      const selector = new Selector({ journal: workerData.dir })
      for (let n = 0; n < 5000; n++) selector.record(new Attempt('https://example.org/', 'x').delivered())
    \`
    const { createRequire } = await import('node:module')
    const module = createRequire(process.cwd() + '/x.js').resolve('fetchwise')
    const ends = [1, 2].map((n) => new Promise((resolve, reject) => {
      new Worker(code, { eval: true, execArgv: [], workerData: { module, dir: process.argv[1] + '/' + n } }).on('exit', resolve).on('error', reject)
    }))
    console.log(JSON.stringify(await Promise.all(ends)))
    const own = new Selector({ journal: process.argv[1] + '/own' })
    own.record(new Attempt('https://example.org/', 'x').delivered())
  `,
    [dir],
  )
  assert.deepEqual([done.code, done.stdout.trim()], [0, '[0,0]'], done.stderr)
  assert.equal(await attemptsIn(`${dir}/1`), 5000)
  assert.equal(await attemptsIn(`${dir}/2`), 5000)
  assert.equal(await attemptsIn(`${dir}/own`), 1)
})

test('the package loads no other packages', async () => {
  const done = await node(`
    import { createRequire } from 'node:module'
    const require = createRequire(process.cwd() + '/x.js')
    const fetchwise = require('fetchwise')
    require('fetchwise/crawlee')
    const names = Object.keys(require.cache).filter((name) => !/fetchwise[^/]*\\/(index|binding|outcomes|fetching|signing|transfer|crawlee)\\.js$|\\.node$/.test(name))
    console.log(JSON.stringify(names))
  `)
  assert.deepEqual([done.code, done.stdout.trim()], [0, '[]'], done.stderr)
})
