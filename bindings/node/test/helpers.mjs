// Helpers of the tests: temporary directories, processes, a small site.

import { spawn } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { createServer } from 'node:http'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'

export const HERE = dirname(fileURLToPath(import.meta.url))

/** Returns a directory for one test. */
export function folder(t) {
  const path = mkdtempSync(join(tmpdir(), 'fetchwise-test-'))
  // A log that is closing may still write a file.
  t.after(() => rmSync(path, { recursive: true, force: true, maxRetries: 10, retryDelay: 100 }))
  return path
}

/** Runs a program; returns its output and exit status. */
export function run(command, args, { timeout = 120_000, onLine, ...options } = {}) {
  return new Promise((resolve, reject) => {
    const child = spawn(command, args, { cwd: HERE, ...options, stdio: ['ignore', 'pipe', 'pipe'] })
    const timer = setTimeout(() => child.kill('SIGKILL'), timeout)
    let stdout = ''
    let stderr = ''
    child.stdout.on('data', (data) => {
      stdout += data
      onLine?.(stdout, child)
    })
    child.stderr.on('data', (data) => (stderr += data))
    child.on('error', reject)
    child.on('close', (code, signal) => {
      clearTimeout(timer)
      resolve({ code, signal, stdout, stderr, pid: child.pid })
    })
  })
}

/** Runs code as a module in a separate process, in the directory of the tests, so that it finds the same package. */
export function node(code, args = [], options = {}) {
  return run(process.execPath, ['--input-type=module', '-e', code, ...args], options)
}

export const ARTICLE = `<html><head><title>Ferries</title></head><body><h1>Ferries</h1><p>${'The ferry leaves at noon. '.repeat(60)}</p></body></html>`
export const SHELL = '<html><body><div id="root"></div><script src="/app.js"></script></body></html>'
export const BLOCK_PAGE = '<title>Just a moment...</title><script>window._cf_chl_opt={}</script>'

/** A site on loopback: articles, an application under `/app`, blocks under `/block`; it counts the requests. */
export async function site(t) {
  const asked = []
  const server = createServer((request, response) => {
    asked.push(request.url)
    const html = { 'content-type': 'text/html' }
    if (request.url.startsWith('/app.js')) {
      response.writeHead(200, { 'content-type': 'text/javascript' })
      response.end(`document.getElementById('root').innerHTML = ${JSON.stringify(`<h1>App</h1><p>${'The tide turns at six. '.repeat(60)}</p>`)}`)
    } else if (request.url.startsWith('/app')) {
      response.writeHead(200, html).end(SHELL)
    } else if (request.url.startsWith('/block')) {
      response.writeHead(403, html).end(BLOCK_PAGE)
    } else if (request.url.startsWith('/hang')) {
      // No response at all.
    } else if (request.url.startsWith('/reset')) {
      request.socket.destroy()
    } else {
      response.writeHead(200, html).end(ARTICLE)
    }
  })
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve))
  t.after(() => {
    server.closeAllConnections()
    server.close()
  })
  return { url: `http://127.0.0.1:${server.address().port}`, asked }
}
