// The exports of the package: the addon, and the parts that are simpler in JavaScript.

'use strict'

const { inspect } = require('node:util')
const { isMainThread } = require('node:worker_threads')

const binding = require('./binding.js')
const { ErrorKind, errorKind, isError } = require('./outcomes.js')
const { ready, fetchWith } = require('./fetching.js')
const { signedFetch } = require('./signing.js')
const { exportAttempts, importAttempts } = require('./transfer.js')

const { FetchResult, Attempt, Detector, Explanation, Journal, Selector, Signer, Step, Verdict, Visit } = binding

// Records that are still in a queue are written when the process ends, unless a signal ends it. Each record of handlers
// that run after this one is waited for.
process.on('exit', () => binding._settleAll(isMainThread))

Step.prototype.ready = function (atMost) {
  return ready(this, atMost)
}

Selector.prototype.fetch = function (url, fetchers, options) {
  return fetchWith(this, url, fetchers, options)
}

const report = Visit.prototype.report
Visit.prototype.report = function (step, outcome, duration) {
  if (isError(outcome)) {
    const message = `${outcome.name}: ${outcome.message}`.slice(0, 500)
    return report.call(this, step, new FetchResult(errorKind(outcome), { message }), duration)
  }
  return report.call(this, step, outcome, duration)
}

for (const kind of [FetchResult, Attempt, Explanation, Verdict]) {
  Object.defineProperty(kind.prototype, inspect.custom, {
    value(depth, options) {
      return `${kind.name} ${inspect(this.toJSON(), options)}`
    },
  })
}

// `using` and `await using`, where the runtime supports them.
if (Symbol.dispose) Visit.prototype[Symbol.dispose] = Visit.prototype.close
if (Symbol.asyncDispose) {
  Selector.prototype[Symbol.asyncDispose] = Selector.prototype.close
  Journal.prototype[Symbol.asyncDispose] = Journal.prototype.close
}

module.exports = {
  FetchResult,
  Attempt,
  Detector,
  ErrorKind,
  Explanation,
  Journal,
  Selector,
  Signer,
  Step,
  Verdict,
  Visit,
  errorKind,
  exportAttempts,
  importAttempts,
  signedFetch,
}
