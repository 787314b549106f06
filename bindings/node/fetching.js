// The loop that drives a visit with functions. Must not know: what to do next; the visit decides.

'use strict'

const { Detector } = require('./binding.js')
const { isError } = require('./outcomes.js')

let shared

function detectorOf(given) {
  if (given) return given
  shared ??= new Detector()
  return shared
}

/**
 * Resolves when the event that the step waits for happens, or when the step is due, and after at most `atMost`
 * milliseconds.
 */
function ready(step, atMost = Infinity) {
  return new Promise((resolve) => {
    let timer
    const come = () => {
      clearTimeout(timer)
      step._letGo()
      resolve()
    }
    if (step._listen(come)) {
      resolve()
      return
    }
    timer = setTimeout(come, Math.max(0, Math.min(step.delay, atMost)))
  })
}

/**
 * The status, headers and decoded body of a client's response: one of `fetch`, got, axios or undici, or an object with
 * those names.
 */
async function parts(response) {
  if (typeof response.arrayBuffer === 'function' && typeof response.status === 'number') {
    return [response.status, response.headers, new Uint8Array(await response.arrayBuffer())]
  }
  const status = response.statusCode ?? response.status
  const body = response.rawBody ?? response.body ?? response.data ?? ''
  if (typeof body === 'string' || ArrayBuffer.isView(body)) return [status, response.headers, body]
  if (body instanceof ArrayBuffer) return [status, response.headers, new Uint8Array(body)]
  // undici's `request`. Otherwise the body is an object that a client has parsed from JSON.
  if (typeof body.arrayBuffer === 'function') return [status, response.headers, new Uint8Array(await body.arrayBuffer())]
  return [status, response.headers, JSON.stringify(body)]
}

/** Settles like `work`, or rejects with a timeout. */
async function within(ms, work, signal) {
  const controller = new AbortController()
  const signals = signal ? AbortSignal.any([signal, controller.signal]) : controller.signal
  let timer
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => {
      const error = new Error(`no answer within ${ms} ms`)
      error.name = 'TimeoutError'
      controller.abort(error)
      reject(error)
    }, ms)
  })
  try {
    return await Promise.race([work(signals), late])
  } finally {
    clearTimeout(timer)
  }
}

/** Drives a visit of `url` by `fetchers`: see `index.d.ts`. */
async function fetchWith(selector, url, fetchers, options = {}) {
  const { detector, signal, ...begin } = options
  const reader = detectorOf(detector)
  const visit = selector.visit(url, { ...begin, fetchers: Object.keys(fetchers) })
  const out = { end: null, response: null, body: null, answer: null }
  try {
    for (let step = visit.next(); step; step = visit.next()) {
      signal?.throwIfAborted()
      if (step.wait) {
        await ready(step)
        continue
      }
      const begun = performance.now()
      Object.assign(out, { response: null, body: null, answer: null })
      const request = async (cancelled) => {
        const response = await fetchers[step.fetcher](step.url, step, cancelled)
        return [response, await parts(response)]
      }
      let came
      try {
        came = await within(step.deadline, request, signal)
      } catch (error) {
        signal?.throwIfAborted()
        visit.report(step, isError(error) ? error : new Error(String(error)), performance.now() - begun)
        continue
      }
      const [response, [status, headers, body]] = came
      const finalUrl = typeof response.url === 'string' && response.url ? response.url : undefined
      const answer = reader.judge(status, headers, body, { url: step.url, finalUrl })
      Object.assign(out, { response, body, answer })
      visit.report(step, answer, performance.now() - begun)
    }
    out.end = visit.end
    return out
  } finally {
    visit.close()
  }
}

module.exports = { ready, fetchWith }
