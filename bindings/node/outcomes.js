// Outcomes of requests and meanings of client errors: the names of failures, and the only mapping from errors to them.
// It imports no client. It recognises errors by code, name and message, so that it understands whatever is installed.

'use strict'

const { _errorKinds } = require('./binding.js')

/** The kinds by name: `ErrorKind.TIMEOUT` is `'timeout'`. */
const ErrorKind = Object.freeze(Object.fromEntries(_errorKinds().map((kind) => [kind.toUpperCase(), kind])))

// Node's and undici's codes; got and axios pass them on.
const BY_CODE = {
  ENOTFOUND: 'dns_error',
  EAI_NODATA: 'dns_error',
  // No name server answered, or none that knows the name: the next lookup may succeed.
  EAI_AGAIN: 'network_error',
  EAI_FAIL: 'network_error',
  ETIMEDOUT: 'timeout',
  ESOCKETTIMEDOUT: 'timeout',
  ECONNABORTED: 'timeout',
  UND_ERR_CONNECT_TIMEOUT: 'timeout',
  UND_ERR_HEADERS_TIMEOUT: 'timeout',
  UND_ERR_BODY_TIMEOUT: 'timeout',
  UND_ERR_RES_CONTENT_LENGTH_MISMATCH: 'truncated',
  ERR_STREAM_PREMATURE_CLOSE: 'truncated',
  UND_ERR_HEADERS_OVERFLOW: 'too_large',
  HPE_HEADER_OVERFLOW: 'too_large',
  ERR_FR_MAX_BODY_LENGTH_EXCEEDED: 'too_large',
  ERR_TOO_MANY_REDIRECTS: 'redirect_loop',
  ERR_FR_TOO_MANY_REDIRECTS: 'redirect_loop',
  ERR_INVALID_URL: 'invalid_url',
  ERR_UNSUPPORTED_PROTOCOL: 'invalid_url',
  EPROTO: 'tls_error',
  DEPTH_ZERO_SELF_SIGNED_CERT: 'tls_error',
  SELF_SIGNED_CERT_IN_CHAIN: 'tls_error',
  UNABLE_TO_VERIFY_LEAF_SIGNATURE: 'tls_error',
  UNABLE_TO_GET_ISSUER_CERT: 'tls_error',
  UNABLE_TO_GET_ISSUER_CERT_LOCALLY: 'tls_error',
  UND_ERR_PRX_TLS: 'proxy_error',
  // No fetcher causes a shortage of this machine: descriptors, ports, memory, disk, its network.
  EMFILE: 'local_fault',
  ENFILE: 'local_fault',
  ENOMEM: 'local_fault',
  ENOSPC: 'local_fault',
  EADDRNOTAVAIL: 'local_fault',
  ENETDOWN: 'local_fault',
  ENETUNREACH: 'local_fault',
}

const BY_NAME = {
  TimeoutError: 'timeout',
  MaxRedirectsError: 'redirect_loop',
}

// Messages of Chromium and Firefox, which Playwright and Puppeteer pass on in their errors, and those of HTTP clients
// without codes.
const BY_WORDS = [
  ['Download is starting', 'wrong_tool'],
  ['net::ERR_ABORTED', 'wrong_tool'],
  ['ERR_NAME_NOT_RESOLVED', 'dns_error'],
  ['NS_ERROR_UNKNOWN_HOST', 'dns_error'],
  ['ERR_TOO_MANY_REDIRECTS', 'redirect_loop'],
  ['NS_ERROR_REDIRECT_LOOP', 'redirect_loop'],
  ['redirect count exceeded', 'redirect_loop'],
  ['ERR_PROXY', 'proxy_error'],
  ['ERR_TUNNEL', 'proxy_error'],
  ['ERR_CERT', 'tls_error'],
  ['ERR_SSL', 'tls_error'],
  ['ERR_TLS', 'tls_error'],
  ['ERR_TIMED_OUT', 'timeout'],
  ['ERR_CONNECTION_TIMED_OUT', 'timeout'],
  ['timed out', 'timeout'],
  ['ERR_INVALID_URL', 'invalid_url'],
  ['ERR_INSUFFICIENT_RESOURCES', 'local_fault'],
  // A fault of the browser, not of the page: the next browser may succeed.
  ['Target crashed', 'local_fault'],
  ['Page crashed', 'local_fault'],
  ['has been closed', 'local_fault'],
  ["Executable doesn't exist", 'local_fault'],
  ['Failed to launch', 'local_fault'],
]

function kindOf(error) {
  if (error === null || typeof error !== 'object') return undefined
  const code = typeof error.code === 'string' ? error.code : ''
  if (BY_CODE[code]) return BY_CODE[code]
  if (code.startsWith('CERT_') || code.startsWith('ERR_TLS_') || code.startsWith('ERR_SSL_')) return 'tls_error'
  const text = typeof error.message === 'string' ? error.message : ''
  for (const [words, kind] of BY_WORDS) {
    if (text.includes(words)) return kind
  }
  return BY_NAME[error.name]
}

/**
 * Returns the kind of an error of an HTTP client, of Playwright or of Puppeteer. Knows those of Node, undici (`fetch`),
 * got and axios, and treats any other as a network error.
 */
function errorKind(error) {
  // A client's error may wrap a more specific one.
  for (let depth = 0, seen = error; depth < 4 && seen; depth++) {
    const kind = kindOf(seen) ?? (Array.isArray(seen.errors) ? seen.errors.map(kindOf).find(Boolean) : undefined)
    if (kind) return kind
    seen = seen.cause
  }
  return ErrorKind.NETWORK_ERROR
}

/** Recognises an error by its properties, because it may come from another realm. */
function isError(value) {
  return value instanceof Error || Object.prototype.toString.call(value) === '[object Error]'
}

module.exports = { ErrorKind, errorKind, isError }
