// Import of attempts as JSON lines from any iterable, and export to a file or a stream. Must not know: what a line
// means.

'use strict'

const { createWriteStream } = require('node:fs')
const { createInterface } = require('node:readline')
const { Readable } = require('node:stream')
const { pipeline } = require('node:stream/promises')

const { Attempt, _exportFrom, _exportNext, _importInto, _importNext } = require('./binding.js')

/** Lines per batch. */
const BATCH = 4096

function misused(message) {
  return Object.assign(new Error(message), { code: 'ERR_FETCHWISE_VALUE' })
}

/** Returns the lines of the input: those of a stream of bytes or text, or the items of anything else. */
function linesOf(given) {
  if (given instanceof Readable && !given.readableObjectMode) return streamed(given)
  if (typeof given !== 'string' && (given?.[Symbol.asyncIterator] || given?.[Symbol.iterator])) return given
  throw misused("invalid lines: expected an iterable (an array, a stream, a file's readLines()); for a string use text.split('\\n')")
}

/** Returns the lines of a stream. Throws an error of the stream, for which `readline` would wait forever. */
async function* streamed(stream) {
  const lines = createInterface({ input: stream, crlfDelay: Infinity })
  let failed
  stream.once('error', (error) => {
    failed = error
    lines.close()
  })
  stream.once('close', () => lines.close())
  yield* lines
  if (failed) throw failed
}

function itemOf(line) {
  if (typeof line === 'string' || line instanceof Attempt) return line
  if (ArrayBuffer.isView(line)) return Buffer.from(line.buffer, line.byteOffset, line.byteLength).toString('utf8')
  // A value without a JSON form cannot be an attempt; as `null` it counts as a failed line.
  return JSON.stringify(line) ?? 'null'
}

async function importAttempts(lines, journal, options) {
  const items = linesOf(lines)
  const target = _importInto(journal, options?.selector ?? undefined)
  let batch = []
  for await (const line of items) {
    batch.push(itemOf(line))
    if (batch.length === BATCH) {
      await _importNext(target, batch)
      batch = []
    }
  }
  return _importNext(target, batch)
}

async function exportAttempts(journal, out) {
  const isPath = typeof out === 'string' || out instanceof URL
  if (!isPath && typeof out?.write !== 'function') throw misused('invalid out: expected a path or a writable stream')
  const source = _exportFrom(journal)
  // An export that cannot begin, such as one of a closed journal, leaves no file.
  let piece = await _exportNext(source)
  async function* text() {
    while (typeof piece !== 'number') {
      yield piece
      piece = await _exportNext(source)
    }
  }
  await pipeline(text, isPath ? createWriteStream(out) : out, { end: isPath })
  return piece
}

module.exports = { exportAttempts, importAttempts }
