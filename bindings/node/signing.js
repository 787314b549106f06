// Signed requests. A signature is for one request, so a client must not send it to the target of a redirect.

'use strict'

const NAMES = ['signature', 'signature-agent', 'signature-input']
const REDIRECTS = new Set([301, 302, 303, 307, 308])
const MAX_REDIRECTS = 20

/** Sets the signature of a request in its headers, an object, in place of an earlier one. */
function signInto(signer, headers, url, method) {
  for (const name of Object.keys(headers)) {
    if (NAMES.includes(name.toLowerCase())) delete headers[name]
  }
  // Clients in JavaScript name headers in lower case.
  for (const [name, value] of Object.entries(signer.headers(url, method))) headers[name.toLowerCase()] = value
}

/**
 * Fetches `url` with `fetch`, GET or HEAD, and signs each request, those of redirects included. `init.fetch` is another
 * `fetch`.
 */
async function signedFetch(signer, url, { fetch = globalThis.fetch, ...init } = {}) {
  const method = (init.method ?? 'GET').toUpperCase()
  if (method !== 'GET' && method !== 'HEAD') {
    throw new TypeError(`signedFetch makes GET and HEAD requests, not ${method}: use signer.headers(url, method)`)
  }
  const headers = Object.fromEntries(new Headers(init.headers))
  let target = new URL(url)
  for (let hops = 0; ; hops += 1) {
    signInto(signer, headers, target, method)
    const response = await fetch(target, { ...init, method, headers, redirect: 'manual' })
    signer.observe(target, [...response.headers.keys()])
    const location = REDIRECTS.has(response.status) ? response.headers.get('location') : null
    if (location === null || init.redirect === 'manual') return response
    await response.body?.cancel()
    if (init.redirect === 'error' || hops === MAX_REDIRECTS) {
      throw new TypeError(init.redirect === 'error' ? `unexpected redirect of ${target}` : `too many redirects of ${url}`)
    }
    const next = new URL(location, target)
    // As `fetch` does: another origin gets no credentials.
    if (next.origin !== target.origin) for (const name of ['authorization', 'cookie', 'host']) delete headers[name]
    target = next
  }
}

module.exports = { signInto, signedFetch }
