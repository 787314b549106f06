import type { FetchResult, Attempt, Detector, End, ErrorKind as Kind, Imported, Journal, Selector, Step, VisitOptions } from './binding.js'

export * from './binding.js'

/** Why an attempt delivered no content. */
export type ErrorKind = Kind

/** The kinds by name: `ErrorKind.TIMEOUT` is `'timeout'`. */
export declare const ErrorKind: { readonly [K in Kind as Uppercase<K>]: K }

/**
 * What an error of an HTTP client, of Playwright or of Puppeteer counts as. It knows those of Node, undici (`fetch`), got and axios, and takes
 * any other for a network error.
 */
export declare function errorKind(error: unknown): Kind

/** What a fetcher returns: a `Response` of `fetch`, or an object with a status, headers and a decoded body. */
export type ResponseLike =
  | Response
  | { status: number; headers?: unknown; body?: unknown; data?: unknown; url?: string }
  | { statusCode: number; headers?: unknown; body?: unknown; rawBody?: unknown; url?: string }

/** Makes one request for `url`; aborted by `signal` when `step.deadline` has passed. */
export type Fetch<R extends ResponseLike = ResponseLike> = (url: string, step: Step, signal: AbortSignal) => Promise<R>

/** How `Selector.fetch` goes. */
export interface FetchOptions extends Omit<VisitOptions, 'fetchers'> {
  /** Who judges responses; the shipped rules unless said. */
  detector?: Detector
  /** Ends the visit, and the request that is under way, with its reason. */
  signal?: AbortSignal
}

/** What `Selector.fetch` comes to. */
export interface Fetched<R extends ResponseLike = ResponseLike> {
  /** How the visit ended. */
  end: End
  /** What the last fetcher returned; null when it threw. The body of a `Response` of `fetch` is read already: see `body`. */
  response: R | null
  /** Its body, when there was one. */
  body: Uint8Array | string | null
  /** What it was judged to be; null when the fetcher threw. */
  answer: FetchResult | null
}

/** A line of JSON as text or bytes, an object that is one, or an attempt. */
export type AttemptLine = string | Uint8Array | Attempt | Record<string, unknown>

/**
 * Takes attempts into a journal, each once, as `fetchwise import` does: from an array, a stream of text or bytes, a file's `readLines()`, or
 * anything else that can be iterated over. With `selector`, it learns from them at once, too; others do when they are made. A line that
 * cannot be used is counted, and fails nothing.
 */
export declare function importAttempts(
  lines: Iterable<AttemptLine> | AsyncIterable<AttemptLine>,
  journal: Journal,
  options?: { selector?: Selector },
): Promise<Imported>

/**
 * Writes the attempts of a journal, or of a directory, as JSON lines to a path or a stream, which is not ended; says how many. A directory
 * needs no writer: it can be read beside a running crawler.
 */
export declare function exportAttempts(journal: Journal | string, out: string | URL | NodeJS.WritableStream): Promise<number>

declare module './binding.js' {
  interface Step {
    /** Ends when what is waited for has come, or when it is due; after `atMost` milliseconds in any case. */
    ready(atMost?: number): Promise<void>
  }
  interface Selector {
    /** Drives a visit of `url` with functions, by the names of fetchers. It throws only what `options.signal` is aborted with. */
    fetch<R extends ResponseLike>(url: string | URL, fetchers: Record<string, Fetch<R>>, options?: FetchOptions): Promise<Fetched<R>>
  }
}
