// One view for every path: the path is sent to the API, and what comes back is the page.
import { useCallback, useEffect, useState } from 'react'
import Article from './Article.jsx'
import { loadPage } from './api.js'

function usePath() {
  const [path, setPath] = useState(() => window.location.pathname + window.location.search)
  useEffect(() => {
    const onPop = () => setPath(window.location.pathname + window.location.search)
    window.addEventListener('popstate', onPop)
    return () => window.removeEventListener('popstate', onPop)
  }, [])
  const go = useCallback((to) => {
    window.history.pushState(null, '', to)
    setPath(to)
    window.scrollTo(0, 0)
  }, [])
  return [path, go]
}

export default function App() {
  const [path, go] = usePath()
  const [page, setPage] = useState(null)
  const [error, setError] = useState(null)

  useEffect(() => {
    const abort = new AbortController()
    setPage(null)
    setError(null)
    loadPage(path, abort.signal)
      .then((loaded) => {
        document.title = `${loaded.title} - Harbour Almanac`
        setPage(loaded)
      })
      .catch((reason) => {
        if (!abort.signal.aborted) setError(reason.message)
      })
    return () => abort.abort()
  }, [path])

  return (
    <>
      <header>
        <a
          href="/"
          onClick={(event) => {
            event.preventDefault()
            go('/')
          }}
        >
          Harbour Almanac
        </a>
      </header>
      {error && <p role="alert">This page could not be loaded: {error}</p>}
      {!error && !page && <p role="status">Loading</p>}
      {page && <Article page={page} go={go} />}
    </>
  )
}
