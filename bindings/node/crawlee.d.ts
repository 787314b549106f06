import type { Detector, End, Selector, Signer } from './index.js'

/** Options of a `Predictor`. */
export interface PredictorOptions {
  /** The selector that decides; defaults to a new one over `dataDir`. */
  selector?: Selector
  /** The directory for the evidence; without one, nothing is stored. */
  dataDir?: string
  /** The detector that judges responses; defaults to one with the shipped rules. */
  detector?: Detector
  /** The fetcher name of requests without a browser; defaults to `direct_access`. */
  static?: string
  /** The fetcher name of the browser's requests; defaults to `playwright`. */
  browser?: string
  /** Whether requests keep a learned pace for each host; defaults to true. */
  pace?: boolean
  /**
   * The longest time that a request waits for a probe, a pace or a pause, in milliseconds; defaults to 30 000. It has
   * to be below Crawlee's timeout for request handlers.
   */
  patience?: number
  /** The maximum number of remembered requests that Crawlee may still make; defaults to 10 000. */
  requestsMax?: number
}

/** The fields of Crawlee's `Request` that the predictor reads. */
export interface RequestLike {
  url: string
  id?: string
  uniqueKey?: string
}

/**
 * A predictor of rendering types for Crawlee's `AdaptivePlaywrightCrawler`, backed by a selector.
 *
 * As `renderingTypePredictor` alone it replaces Crawlee's predictor, which learns by fetching pages twice. With
 * `options` each request is a visit, and nothing is fetched twice only for comparison.
 */
export declare class Predictor {
  constructor(options?: PredictorOptions)
  /** The selector behind the predictor; set once `initialize` has resolved. */
  readonly selector: Selector
  /** Opens the journal, if there is one. Crawlee calls it when a crawl begins. */
  initialize(): Promise<void>
  /** Returns the first way of fetching. */
  predict(request: RequestLike): { renderingType: 'static' | 'clientOnly'; detectionProbabilityRecommendation: number }
  /** Records the result of a comparison. */
  storeResult(requests: RequestLike | RequestLike[], renderingType: 'static' | 'clientOnly'): void
  /** Returns the options of an `AdaptivePlaywrightCrawler` with everything that makes its requests visits. */
  options<T>(options: T): T
  /** Releases what requests in progress hold, and writes what was learned. Closes the journal if it was opened here. */
  close(): Promise<void>
}

/** A request delivered no content, and goes to `failedRequestHandler`: `end` gives the reason. */
export declare class NotDelivered extends Error {
  code: 'ERR_FETCHWISE_NOT_DELIVERED'
  end: End
}

/**
 * Returns an HTTP client of Crawlee that signs each https request, redirects included: the option `httpClient` of a
 * crawler, or of `Predictor.options`. `inner` defaults to Crawlee's `GotScrapingHttpClient`.
 */
export declare function signingClient<C = { sendRequest: (request: any) => Promise<any>; stream: (request: any, onRedirect?: any) => Promise<any> }>(
  signer: Signer,
  inner?: C,
): C
