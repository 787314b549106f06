// The Crawlee integration: the adaptive crawler decides by the evidence of fetchwise, which survives the process.
//
//     const predictor = new Predictor({ dataDir: 'fetchwise-data' })
//     const crawler = new AdaptivePlaywrightCrawler(predictor.options({ requestHandler }))
//     await crawler.run(urls)
//     await predictor.close()
//
// Each request is a visit. `options` puts the steps of the visit into Crawlee's hooks. The predictor chooses the first
// way of fetching. The HTTP client and a hook after navigation judge each response before a request handler sees it.
// Blocked sessions are retired. The crawler follows the visit: a shell goes to the browser in the same try, a short
// pause is waited for, and a long pause ends the request. Nothing is fetched twice only for comparison.
//
// `signingClient` returns an HTTP client that signs each https request, redirects included.
//
// Crawlee is loaded on demand, and is not a dependency of the package.

'use strict'

const { Attempt, Detector, Selector } = require('./index.js')
const { signInto } = require('./signing.js')

// The time within which a rendered page that is still empty has to show something, in milliseconds.
const SETTLE_MS = 5000
const LOOK_MS = 100

/** A request delivered no content, and this crawl does not retry it: `end` gives the reason. */
class NotDelivered extends Error {
  constructor(url, end) {
    const until = end.pausedUntil ? `; paused until ${new Date(end.pausedUntil).toISOString()}` : ''
    super(`${url}: ${end.message || end.kind}${until}`)
    this.name = 'NotDelivered'
    this.code = 'ERR_FETCHWISE_NOT_DELIVERED'
    this.end = end
  }
}

/** The response without a browser is not content, or no such request is needed. Crawlee then uses the browser. */
class AskBrowser extends Error {
  constructor(url) {
    super(`the browser is asked for ${url}`)
    this.name = 'AskBrowser'
    // This is not a failure: a stack trace would only fill the log.
    this.stack = `${this.name}: ${this.message}`
  }
}

/** Loads Crawlee from any of its packages that is installed. */
function crawlee() {
  const tried = []
  for (const name of ['crawlee', '@crawlee/playwright']) {
    try {
      return require(name)
    } catch (error) {
      if (error.code !== 'MODULE_NOT_FOUND') throw error
      tried.push(name)
    }
  }
  throw new Error(`fetchwise/crawlee needs one of ${tried.join(', ')}: npm install crawlee playwright`)
}

const keyOf = (request) => request.id ?? request.uniqueKey ?? request.url
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms))

/** Returns the headers of a body that is text now, whatever its encoding was. */
function asText(headers) {
  const out = { ...headers }
  for (const name of Object.keys(out)) {
    if (name.toLowerCase() === 'content-type') out[name] = String(out[name]).split(';')[0]
  }
  return out
}

/**
 * Returns the page of a hook's context. There is none when Crawlee fetches without a browser: the getter throws then.
 */
function pageOf(context) {
  try {
    return context.page
  } catch {
    return undefined
  }
}

/** A predictor of rendering types for `AdaptivePlaywrightCrawler`: see `crawlee.d.ts`. */
class Predictor {
  #given
  #selector
  #owns = false
  #detector
  #attached = false
  /** Requests in progress, by Crawlee's name for them. */
  #states = new Map()
  /** Requests that are about to be made without a browser, by address. */
  #plain = new Map()
  /** Requests whose plain response went to the request handler, until it is known that the response was accepted. */
  #delivered = new Set()

  constructor(options = {}) {
    const { selector, dataDir, detector, pace, patience = 30_000, requestsMax = 10_000 } = options
    this.static = options.static ?? 'direct_access'
    this.browser = options.browser ?? 'playwright'
    this.patience = patience
    this.requestsMax = requestsMax
    this.#given = { dataDir, pace }
    this.#selector = selector
    this.#detector = detector ?? new Detector()
  }

  /** The selector behind the predictor; set once `initialize` has resolved. */
  get selector() {
    if (!this.#selector) throw new Error('the predictor is not initialized yet: Crawlee initializes it when a crawl begins')
    return this.#selector
  }

  /** Opens the journal, if there is one. Crawlee calls it when a crawl begins. */
  async initialize() {
    if (this.#selector) return
    const { dataDir, pace } = this.#given
    const options = { fetchers: [this.static, this.browser], pace }
    this.#selector = dataDir === undefined ? new Selector(options) : await Selector.open(dataDir, options)
    this.#owns = true
  }

  /** Returns the first way of fetching. */
  predict(request) {
    if (!this.#attached) return this.#alone(request)
    this.#delivered.delete(keyOf(request))
    const { step } = this.#state(request)
    // A request that has to wait, or has ended, takes the plain way, because that way has a hook before the network.
    const renders = step !== null && !step.wait && step.fetcher === this.browser
    return { renderingType: renders ? 'clientOnly' : 'static', detectionProbabilityRecommendation: 0 }
  }

  /**
   * Without `options` nothing is judged. Unknown pages are then resolved by Crawlee's own method: fetch both ways and
   * compare.
   */
  #alone(request) {
    const decision = this.selector.select(request.url, { link: request.uniqueKey })
    const known = decision.source === 'learned' || decision.source === 'inferred'
    return {
      renderingType: decision.fetcher === this.static ? 'static' : 'clientOnly',
      detectionProbabilityRecommendation: known ? 0 : 1,
    }
  }

  /** Records the result of a comparison. */
  storeResult(requests, renderingType) {
    for (const { url } of Array.isArray(requests) ? requests : [requests]) {
      const plain = new Attempt(url, this.static)
      if (renderingType === 'static') {
        this.selector.record(plain.delivered())
      } else {
        this.selector.recordBatch([plain.failed('wrong_tool'), new Attempt(url, this.browser).delivered()])
      }
    }
  }

  /** Returns the crawler's options with everything that makes its requests visits. */
  options(given = {}) {
    this.#attached = true
    const { GotScrapingHttpClient, RetryRequestError } = crawlee()
    const inner = given.httpClient ?? new GotScrapingHttpClient()
    const client = {
      sendRequest: (request) => {
        const state = this.#taken(new URL(request.url).href)
        return state ? this.#plainly(state, request, inner) : inner.sendRequest(request)
      },
      stream: (...args) => inner.stream(...args),
    }
    return {
      ...given,
      renderingTypePredictor: this,
      httpClient: client,
      preNavigationHooks: [...(given.preNavigationHooks ?? []), (context) => this.#navigates(context)],
      postNavigationHooks: [(context) => this.#navigated(context, RetryRequestError), ...(given.postNavigationHooks ?? [])],
      shouldPropagateError: async (error, context) =>
        error instanceof NotDelivered || ((await given.shouldPropagateError?.(error, context)) ?? false),
      errorHandler: async (context, error) => {
        this.#failed(context.request, error)
        await given.errorHandler?.(context, error)
      },
      failedRequestHandler: async (context, error) => {
        this.#failed(context.request, error)
        this.#drop(keyOf(context.request))
        await given.failedRequestHandler?.(context, error)
      },
    }
  }

  /** Releases what requests in progress hold, and writes what was learned. Closes the journal if it was opened here. */
  async close() {
    for (const key of [...this.#states.keys()]) this.#drop(key)
    this.#plain.clear()
    this.#delivered.clear()
    if (!this.#selector) return
    await (this.#owns ? this.#selector.close() : this.#selector.flush())
  }

  /** Returns the visit of a request, and begins it unless it is in progress. */
  #state(request) {
    const key = keyOf(request)
    let state = this.#states.get(key)
    if (!state) {
      state = { key, request, visit: null, step: null, pending: null, begun: null }
      this.#begin(state)
      this.#states.set(key, state)
      // Crawlee does not report that it has given up a request without a failure.
      for (const oldest of this.#states.keys()) {
        if (this.#states.size <= this.requestsMax) break
        this.#drop(oldest)
      }
    }
    return state
  }

  #begin(state, fetchers) {
    const { url, uniqueKey } = state.request
    state.visit?.close()
    state.visit = this.selector.visit(url, { link: uniqueKey, fetchers })
    state.step = state.visit.next()
  }

  #report(state, outcome, begun) {
    state.visit.report(state.step, outcome, performance.now() - begun)
    state.step = state.visit.next()
  }

  #drop(key) {
    this.#states.get(key)?.visit.close()
    this.#states.delete(key)
  }

  /** The visit is over, but Crawlee may still reject its result. */
  #wasDelivered(key) {
    this.#drop(key)
    this.#delivered.add(key)
    if (this.#delivered.size > this.requestsMax) this.#delivered.delete(this.#delivered.values().next().value)
  }

  #taken(href) {
    const waiting = this.#plain.get(href)
    const state = waiting?.shift()
    if (waiting?.length === 0) this.#plain.delete(href)
    // A request that was given up meanwhile has no visit.
    return state && this.#states.get(state.key) === state ? state : undefined
  }

  /** Runs before a request, plain or by the browser. */
  async #navigates(context) {
    const key = keyOf(context.request)
    const state = this.#states.get(key)
    if (!pageOf(context)) {
      if (!state) return
      const { href } = new URL(context.request.url)
      this.#plain.set(href, [...(this.#plain.get(href) ?? []), state])
      return
    }
    if (state) return this.#browserIsNext(state)
    if (!this.#delivered.delete(key)) return
    // The crawler's `resultChecker` has rejected the handler's result for the plain page.
    this.selector.record(new Attempt(context.request.url, this.static).failed('wrong_tool'))
    const again = this.#state(context.request)
    this.#begin(again, [this.browser])
    await this.#browserIsNext(again)
  }

  /** The plain side of a visit: its requests, one after the other, until content arrives or another fetcher is next. */
  async #plainly(state, request, inner) {
    const until = performance.now() + this.patience
    for (;;) {
      const { step } = state
      if (!step || step.wait) {
        await this.#passes(state, until)
        continue
      }
      if (step.fetcher !== this.static) throw new AskBrowser(step.url)
      const begun = performance.now()
      let response
      try {
        response = await inner.sendRequest({ ...request, url: new URL(step.url), timeout: { request: Math.ceil(step.deadline) } })
      } catch (error) {
        this.#report(state, error, begun)
        continue
      }
      const page = { url: step.url, finalUrl: String(response.url ?? step.url) }
      const answer = this.#detector.judge(response.statusCode, asText(response.headers), response.body ?? '', page)
      if (answer.isContent) {
        // It is not known yet whether the request handler accepts it.
        state.pending = { answer, begun, duration: performance.now() - begun }
        return response
      }
      if (answer.isBlocked) request.sessionToken?.retire?.()
      this.#report(state, answer, begun)
      if (!state.step && state.visit.end.isDelivered) {
        // The page is short, and complete.
        this.#wasDelivered(state.key)
        return response
      }
    }
  }

  /** Waits for the event of the step, or for the end of a short pause. Throws when the visit has ended otherwise. */
  async #passes(state, until) {
    const left = until - performance.now()
    if (state.step) {
      if (left > 0) {
        await state.step.ready(left)
        state.step = state.visit.next()
      } else {
        state.visit.giveUp(state.step)
        state.step = null
      }
      return
    }
    const { end } = state.visit
    if (['paused', 'paced'].includes(end?.kind) && end.pausedUntil - Date.now() < left) {
      await sleep(Math.max(0, end.pausedUntil - Date.now()) + 1)
      this.#begin(state)
      return
    }
    throw this.#ended(state)
  }

  /** Returns the error that ends a request: for good unless its pause is short. */
  #ended(state) {
    const { end } = state.visit
    this.#drop(state.key)
    // Crawlee's own retries would repeat a request that the visit has ruled out.
    const soon = end.pausedUntil !== undefined && end.pausedUntil !== null && end.pausedUntil - Date.now() < this.patience
    if (!soon) state.request.noRetry = true
    return new NotDelivered(state.request.url, end)
  }

  /** Makes the browser the next fetcher of the visit, because Crawlee uses it now. */
  async #browserIsNext(state) {
    if (state.pending) {
      // Content arrived without a browser, and the request handler rejected it.
      const { duration } = state.pending
      state.visit.report(state.step, 'wrong_tool', duration)
      Object.assign(state, { pending: null, step: state.visit.next() })
    }
    const until = performance.now() + this.patience
    for (;;) {
      if (!state.step || state.step.wait) {
        await this.#passes(state, until)
      } else if (state.step.fetcher === this.browser) {
        state.begun = performance.now()
        return
      } else {
        this.#begin(state, [this.browser])
      }
    }
  }

  /** Runs after a request: accepts the plain response, or judges the page in the browser. */
  async #navigated(context, RetryRequestError) {
    const key = keyOf(context.request)
    const state = this.#states.get(key)
    if (!state) return
    const page = pageOf(context)
    if (!page) {
      if (!state.pending) return
      state.visit.report(state.step, state.pending.answer, state.pending.duration)
      state.visit.next()
      this.#wasDelivered(key)
      return
    }
    const { step } = state
    if (!step || step.wait || step.fetcher !== this.browser) return
    const answer = await this.#settled(page, context.response, step)
    this.#report(state, answer, state.begun ?? performance.now())
    state.begun = null
    if (answer.isBlocked) context.session?.retire()
    if (state.step) throw new RetryRequestError(`${context.request.url} is retried: ${answer.message}`)
    if (!state.visit.end.isDelivered) throw this.#ended(state)
    this.#drop(key)
  }

  /** Returns the result for a page, after its scripts had time to fill it. */
  async #settled(page, response, step) {
    const until = Date.now() + SETTLE_MS
    let quiet = false
    const idle = page.waitForLoadState('networkidle', { timeout: SETTLE_MS })
    idle.then(
      () => (quiet = true),
      () => {},
    )
    for (;;) {
      const last = quiet || Date.now() >= until
      const answer = await this.#shown(page, response, step, last)
      if (answer && (last || !['shell', 'empty', 'redirect'].includes(answer.outcome))) return answer
      await sleep(LOOK_MS)
    }
  }

  /** Returns the result for the current page; null while it navigates. */
  async #shown(page, response, step, last) {
    let html
    try {
      html = await page.content()
    } catch (error) {
      if (last) throw error
      return null
    }
    const headers = asText(response?.headers() ?? {})
    return this.#detector.judge(response?.status() ?? 200, headers, html, { url: step.url, finalUrl: page.url() })
  }

  /** Handles a failed navigation, which no hook sees. */
  #failed(request, error) {
    const state = this.#states.get(keyOf(request))
    if (!state) return
    if (state.pending) {
      // The request handler failed by itself, which says nothing about the page.
      this.#drop(state.key)
      return
    }
    const { step, begun } = state
    if (begun === null || !step || step.wait || step.fetcher !== this.browser || error instanceof NotDelivered) return
    state.begun = null
    this.#report(state, error, begun)
    if (!state.step) this.#ended(state)
  }
}

/**
 * Returns an HTTP client of Crawlee that signs each https request: `inner`, by default Crawlee's own, with a hook of got
 * that runs for each hop.
 */
function signingClient(signer, inner = new (crawlee().GotScrapingHttpClient)()) {
  const sign = (options) => signInto(signer, options.headers, options.url, options.method)
  const observe = (response) => {
    signer.observe(response.requestUrl ?? response.url, Object.keys(response.headers))
    return response
  }
  const signed = (request) => {
    const { beforeRequest = [], afterResponse = [] } = request.hooks ?? {}
    const hooks = { ...request.hooks, beforeRequest: [...beforeRequest, sign], afterResponse: [observe, ...afterResponse] }
    // A crawler that signs says what it is, so its headers are not those of a browser.
    return { useHeaderGenerator: false, ...request, hooks }
  }
  return {
    sendRequest: (request) => inner.sendRequest(signed(request)),
    stream: (request, ...rest) => inner.stream(signed(request), ...rest),
  }
}

module.exports = { NotDelivered, Predictor, signingClient }
