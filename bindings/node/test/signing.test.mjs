// Signed requests, held against Node's own Ed25519 over redirects between two authorities.

import assert from 'node:assert/strict'
import { createPublicKey, generateKeyPairSync, verify } from 'node:crypto'
import { createServer } from 'node:http'
import { chmodSync, mkdirSync, writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { join } from 'node:path'
import test from 'node:test'

import { Signer, signedFetch } from 'fetchwise'

import { HERE, folder } from './helpers.mjs'

const AGENT = 'https://bot.example'

function key() {
  const { privateKey } = generateKeyPairSync('ed25519')
  return { pem: privateKey.export({ type: 'pkcs8', format: 'pem' }), publicKey: createPublicKey(privateKey) }
}

/** Returns whether the headers of a request sign it, by RFC 9421. */
function isValid(publicKey, method, url, headers) {
  const of = (name) => Object.entries(headers).find(([known]) => known.toLowerCase() === name)?.[1]
  const { host, pathname } = new URL(url)
  const [, params, components] = /^sig1=(\((.*?)\);.*)$/.exec(of('signature-input') ?? '') ?? []
  if (!params) return false
  const values = { '"@authority"': host, '"@method"': method, '"@path"': pathname }
  const agent = of('signature-agent')
  values['"signature-agent"'] = agent
  values['"signature-agent";key="sig1"'] = agent.replace(/^sig1=/, '')
  const base = [...components.split(' ').map((name) => `${name}: ${values[name]}`), `"@signature-params": ${params}`].join('\n')
  const [, signature] = /^sig1=:(.*):$/.exec(of('signature'))
  return verify(null, Buffer.from(base), publicKey, Buffer.from(signature, 'base64'))
}

test('a signer signs https only, and says what is wrong', (t) => {
  const { pem, publicKey } = key()
  const signer = new Signer({ agent: AGENT, key: pem })
  assert.equal(signer.agent, AGENT)
  const headers = signer.headers(new URL('https://shop.example:8443/a/b%20c?q=1'), 'POST')
  assert.deepEqual(Object.keys(headers).sort(), ['Signature', 'Signature-Agent', 'Signature-Input'])
  assert.ok(isValid(publicKey, 'POST', 'https://shop.example:8443/a/b%20c?q=1', headers))
  assert.ok(!isValid(publicKey, 'GET', 'https://shop.example:8443/a/b%20c?q=1', headers))
  assert.ok(!isValid(publicKey, 'POST', 'https://shop.example/a/b%20c?q=1', headers))
  assert.deepEqual(signer.headers('http://shop.example/'), {})
  // Cloudflare reads the older form.
  signer.observe('https://cf.example/', ['CF-Ray'])
  const string = signer.headers('https://cf.example/')
  assert.equal(string['Signature-Agent'], `"${AGENT}"`)
  assert.ok(isValid(publicKey, 'GET', 'https://cf.example/', string))
  assert.throws(() => signer.headers('nonsense'), { code: 'ERR_FETCHWISE_URL' })
  for (const [options, message] of [
    [{}, /missing agent/],
    [{ agent: 'http://bot.example', key: pem }, /https origin/],
    [{ agent: AGENT, key: 'hunter2' }, /BEGIN PRIVATE KEY/],
    [{ agent: AGENT, keys: join(folder(t), 'none') }, /identity init/],
  ]) {
    assert.throws(() => new Signer(options), { code: 'ERR_FETCHWISE_CONFIG', message })
  }
})

test('a config names the keys, and loose modes are refused', (t) => {
  const dir = folder(t)
  mkdirSync(join(dir, 'keys'), { mode: 0o700 })
  const file = join(dir, 'keys', 'key.pem')
  writeFileSync(file, key().pem, { mode: 0o600 })
  const config = join(dir, 'c.toml')
  writeFileSync(config, `[identity]\nagent = '${AGENT}'\nkeys = '${join(dir, 'keys')}'\n`)
  const signer = new Signer({ config })
  assert.ok(signer.headers('https://shop.example/').Signature)
  chmodSync(file, 0o644)
  assert.throws(() => new Signer({ config }), { message: /chmod 600/ })
  assert.throws(() => signer.reload(), { message: /chmod 600/ })
  assert.ok(signer.headers('https://shop.example/').Signature)
})

/** Two servers on loopback under two names; `/N` redirects N times to the other one. */
async function authoritiesOf(t) {
  const seen = []
  const authorities = []
  for (const host of ['127.0.0.1', 'localhost']) {
    const server = createServer((request, response) => {
      seen.push({ url: `http://${request.headers.host}${request.url}`, method: request.method, headers: request.headers })
      const left = Number(request.url.slice(1))
      const other = authorities[1 - authorities.indexOf(request.headers.host)]
      if (left) response.writeHead(302, { location: `http://${other}/${left - 1}` })
      response.end('page')
    })
    await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve))
    t.after(() => {
      server.closeAllConnections()
      server.close()
    })
    authorities.push(`${host}:${server.address().port}`)
  }
  return { authorities, seen }
}

/** A signer for servers on loopback, which have no TLS. */
function loopbackSigner(t, pem) {
  const config = join(folder(t), 'c.toml')
  writeFileSync(config, `[identity]\nagent = '${AGENT}'\n[tuning]\nsign_http = 'loopback'\n`)
  return new Signer({ config, key: pem })
}

function checkHops(publicKey, { authorities, seen }, hops) {
  assert.equal(seen.length, hops)
  assert.deepEqual([...new Set(seen.map(({ url }) => new URL(url).host))], authorities)
  for (const { url, method, headers } of seen) assert.ok(isValid(publicKey, method, url, headers), url)
  assert.ok(!isValid(publicKey, 'GET', seen[0].url, seen[2].headers))
  assert.equal(new Set(seen.map(({ headers }) => headers['signature-input'])).size, hops)
}

test('signedFetch verifies at both authorities of a redirect', async (t) => {
  const { pem, publicKey } = key()
  const signer = loopbackSigner(t, pem)
  const sites = await authoritiesOf(t)
  const [first] = sites.authorities
  const response = await signedFetch(signer, `http://${first}/3`, { headers: { authorization: 'Basic x' } })
  assert.equal(await response.text(), 'page')
  checkHops(publicKey, sites, 4)
  assert.deepEqual(sites.seen.map(({ headers }) => headers.authorization), ['Basic x', undefined, undefined, undefined])
  await assert.rejects(signedFetch(signer, `http://${first}/30`), /too many redirects/)
  await assert.rejects(signedFetch(signer, `http://${first}/1`, { redirect: 'error' }), /unexpected redirect/)
  await assert.rejects(signedFetch(signer, `http://${first}/`, { method: 'POST' }), /GET and HEAD/)
})

const hasCrawlee = () => {
  try {
    createRequire(join(HERE, 'x.js')).resolve('crawlee')
    return true
  } catch {
    return false
  }
}

test("Crawlee's client signs each hop", { skip: !hasCrawlee() && 'Crawlee is not here' }, async (t) => {
  const { signingClient } = await import('fetchwise/crawlee')
  const { pem, publicKey } = key()
  const sites = await authoritiesOf(t)
  const client = signingClient(loopbackSigner(t, pem))
  const headers = { 'user-agent': 'ExampleBot' }
  const response = await client.sendRequest({ url: `http://${sites.authorities[0]}/3`, method: 'GET', headers })
  assert.equal(response.statusCode, 200)
  checkHops(publicKey, sites, 4)
  assert.deepEqual(new Set(sites.seen.map(({ headers }) => headers['user-agent'])), new Set(['ExampleBot']))
})
