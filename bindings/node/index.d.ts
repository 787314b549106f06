import type { FetchResult, Attempt, Detector, End, ErrorKind as Kind, Imported, Journal, Selector, Signer, Step, VisitOptions } from './binding.js'

export * from './binding.js'

/** The reason why an attempt delivered no content. */
export type ErrorKind = Kind

/** The kinds by name: `ErrorKind.TIMEOUT` is `'timeout'`. */
export declare const ErrorKind: { readonly [K in Kind as Uppercase<K>]: K }

/**
 * Returns the kind of an error of an HTTP client, of Playwright or of Puppeteer. Knows those of Node, undici (`fetch`),
 * got and axios, and treats any other as a network error.
 */
export declare function errorKind(error: unknown): Kind

/** The return value of a fetcher: a `Response` of `fetch`, or an object with a status, headers and a decoded body. */
export type ResponseLike =
  | Response
  | { status: number; headers?: unknown; body?: unknown; data?: unknown; url?: string }
  | { statusCode: number; headers?: unknown; body?: unknown; rawBody?: unknown; url?: string }

/** Makes one request for `url`. `signal` aborts it after `step.deadline`. */
export type Fetch<R extends ResponseLike = ResponseLike> = (url: string, step: Step, signal: AbortSignal) => Promise<R>

/** Options of `Selector.fetch`. */
export interface FetchOptions extends Omit<VisitOptions, 'fetchers'> {
  /** The detector that judges responses; defaults to one with the shipped rules. */
  detector?: Detector
  /** Ends the visit, and the request in progress, with the reason of the signal. */
  signal?: AbortSignal
}

/** The result of `Selector.fetch`. */
export interface Fetched<R extends ResponseLike = ResponseLike> {
  /** The end of the visit. */
  end: End
  /**
   * The return value of the last fetcher; null when it threw. The body of a `Response` of `fetch` has already been
   * read: see `body`.
   */
  response: R | null
  /** The body, if there was one. */
  body: Uint8Array | string | null
  /** The judgement of the response; null when the fetcher threw. */
  answer: FetchResult | null
}

/** A line of JSON as text or bytes, the object of such a line, or an attempt. */
export type AttemptLine = string | Uint8Array | Attempt | Record<string, unknown>

/**
 * Imports attempts into a journal, each once, like `fetchwise import`: from an array, a stream of text or bytes, a
 * file's `readLines()`, or any other iterable. `selector` observes them at once; selectors made later replay them from
 * the journal. An unusable line is counted and does not fail the import.
 */
export declare function importAttempts(
  lines: Iterable<AttemptLine> | AsyncIterable<AttemptLine>,
  journal: Journal,
  options?: { selector?: Selector },
): Promise<Imported>

/**
 * Exports the attempts of a journal, or of a directory, as JSON lines to a path or a stream, which is not ended.
 * Resolves to their number. A directory needs no writer, so it can be read alongside a running crawler.
 */
export declare function exportAttempts(journal: Journal | string, out: string | URL | NodeJS.WritableStream): Promise<number>

/**
 * Fetches `url` with `fetch`, GET or HEAD, and signs each request, those of redirects included. `init.fetch` is another
 * `fetch`.
 */
export declare function signedFetch(
  signer: Signer,
  url: string | URL,
  init?: RequestInit & { fetch?: typeof fetch },
): Promise<Response>

declare module './binding.js' {
  interface Step {
    /**
     * Resolves when the event that is waited for happens, or when the step is due, and after at most `atMost`
     * milliseconds.
     */
    ready(atMost?: number): Promise<void>
  }
  interface Selector {
    /**
     * Drives a visit of `url` with functions, by the names of fetchers. Throws only the reason of an aborted
     * `options.signal`.
     */
    fetch<R extends ResponseLike>(url: string | URL, fetchers: Record<string, Fetch<R>>, options?: FetchOptions): Promise<Fetched<R>>
  }
}
