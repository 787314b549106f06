import type { Detector, End, Selector } from './index.js'

/** How a `Predictor` is made. */
export interface PredictorOptions {
  /** Who decides; one of its own, over `dataDir`, unless said. */
  selector?: Selector
  /** The directory in which what is learned is kept; nothing is kept without one. */
  dataDir?: string
  /** Who judges responses; the shipped rules unless said. */
  detector?: Detector
  /** The name that requests without a browser are recorded under: `direct_access`. */
  static?: string
  /** The name that the browser's are recorded under: `playwright`. */
  browser?: string
  /** Whether hosts are asked at a pace, which is learned. */
  pace?: boolean
  /** How long a request waits for a probe, a pace or a pause before it is given up, in milliseconds: 30 000. Less than Crawlee's own
   * time-out for request handlers. */
  patience?: number
  /** So many requests are kept that Crawlee may still ask for: 10 000. */
  requestsMax?: number
}

/** What the predictor reads of Crawlee's `Request`. */
export interface RequestLike {
  url: string
  id?: string
  uniqueKey?: string
}

/**
 * A predictor of rendering types for Crawlee's `AdaptivePlaywrightCrawler` that asks a selector.
 *
 * As `renderingTypePredictor` alone it replaces Crawlee's own, which learns by asking for pages twice. With `options` each request is a visit,
 * and nothing is asked for twice only to compare.
 */
export declare class Predictor {
  constructor(options?: PredictorOptions)
  /** The selector that it asks; there once `initialize` has ended. */
  readonly selector: Selector
  /** Opens the journal, if there is one. Crawlee calls it when a crawl begins. */
  initialize(): Promise<void>
  /** Which way to ask first. */
  predict(request: RequestLike): { renderingType: 'static' | 'clientOnly'; detectionProbabilityRecommendation: number }
  /** What a comparison has shown. */
  storeResult(requests: RequestLike | RequestLike[], renderingType: 'static' | 'clientOnly'): void
  /** The options of an `AdaptivePlaywrightCrawler` with all that it needs for its requests to be visits. */
  options<T>(options: T): T
  /** Gives back what requests under way hold, and writes down what was learned; closes the journal, if it was opened here. */
  close(): Promise<void>
}

/** A request brought no content, and `failedRequestHandler` gets it: `end` says why. */
export declare class NotDelivered extends Error {
  code: 'ERR_FETCHWISE_NOT_DELIVERED'
  end: End
}
