// A crawl of a few pages with `fetch` and a stand-in for a browser, in TypeScript. `tsc --noEmit` checks the
// declarations against it.

import { AdaptivePlaywrightCrawler } from 'crawlee'
import { type Decision, Detector, type End, ErrorKind, Journal, Selector, Verdict, errorKind } from 'fetchwise'
import { NotDelivered, Predictor } from 'fetchwise/crawlee'

async function crawl(urls: string[]): Promise<End[]> {
  const selector = await Selector.open('fetchwise-data', { fetchers: ['direct_access', { name: 'mine', kind: 'rendering', cost: 30 }] })
  const ends = await Promise.all(
    urls.map(async (url) => {
      const { end, response, body } = await selector.fetch(url, {
        direct_access: (url, step, signal) => fetch(url, { signal, redirect: step.maxRedirects > 0 ? 'follow' : 'manual' }),
        mine: async (url): Promise<Response> => new Response(`<h1>${url}</h1>`),
      })
      if (end.kind === 'paused' && end.pausedUntil) console.log(url, new Date(end.pausedUntil), response?.status, body?.length)
      return end
    }),
  )
  await selector.close()
  return ends
}

function decide(selector: Selector): string | undefined {
  const decision: Decision = selector.select('https://example.org/', { hint: 'blocked', excluded: ['direct_access'] })
  const verdict: Verdict = new Detector().classify(new Uint8Array(), { headers: new Headers(), status: 200 })
  const kind: ErrorKind | null = verdict.errorFor('direct_access')
  if (kind === ErrorKind.WRONG_TOOL || errorKind(new Error()) === 'timeout') return undefined
  return decision.kind === 'take' ? decision.fetcher : undefined
}

async function steps(selector: Selector): Promise<void> {
  const visit = selector.visit(new URL('https://example.org/'), { prefer: 'direct_access' })
  for (let step = visit.next(); step; step = visit.next()) {
    if (step.wait) await step.ready(100)
    else visit.report(step, new Error('no'), 12)
  }
}

const predictor = new Predictor({ dataDir: 'fetchwise-data', patience: 10_000 })
const crawler = new AdaptivePlaywrightCrawler(
  predictor.options({
    async requestHandler({ request, pushData }) {
      await pushData({ url: request.url })
    },
    failedRequestHandler(_context, error) {
      if (error instanceof NotDelivered) console.log(error.end.errorType)
    },
  }),
)
const plain = new AdaptivePlaywrightCrawler({ renderingTypePredictor: predictor })

// @ts-expect-error a hint is one of four
new Selector({ journal: new Journal('fetchwise-data') }).select('https://example.org/', { hint: 'emty' })
export { crawl, crawler, decide, plain, steps }
