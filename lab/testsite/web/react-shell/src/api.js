// The only place that talks to the server.

// The page at `path`, as JSON: { title, summary, sections: [{ heading, paragraphs }], links: [{ href, text }] }.
export async function loadPage(path, signal) {
  const response = await fetch(`/api/page?path=${encodeURIComponent(path)}`, { signal })
  if (!response.ok) throw new Error(`the server answered ${response.status}`)
  return response.json()
}
