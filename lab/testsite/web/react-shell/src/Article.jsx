// Renders one page of the API as an article with its sections and the links to other pages.
export default function Article({ page, go }) {
  return (
    <main>
      <article>
        <h1>{page.title}</h1>
        <p className="lead">{page.summary}</p>
        {page.sections.map((section) => (
          <section key={section.heading}>
            <h2>{section.heading}</h2>
            {section.paragraphs.map((text, index) => (
              <p key={index}>{text}</p>
            ))}
          </section>
        ))}
      </article>
      <nav aria-label="Read on">
        <h2>Read on</h2>
        <ul>
          {page.links.map((link) => (
            <li key={link.href}>
              <a
                href={link.href}
                onClick={(event) => {
                  event.preventDefault()
                  go(link.href)
                }}
              >
                {link.text}
              </a>
            </li>
          ))}
        </ul>
      </nav>
    </main>
  )
}
