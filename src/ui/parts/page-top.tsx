import type { ComponentChildren } from 'preact'

/** Below the training page's folder. */
const sections = { Demos: 'demos/', Class: 'class/', Docs: 'docs/' }

/** On the training page links open new tabs: leaving it would leave the room. */
export const elsewhere = { target: '_blank', rel: 'noopener' }

interface PageTopProps {
  /** What this page is. */
  readonly tagline: string
  /** The training page, from this one; undefined on it. */
  readonly home?: string
  /** Beside it. */
  readonly children?: ComponentChildren
}

/** The head of each page: the name, and what the page is. */
export const PageTop = ({ tagline, home, children }: PageTopProps) => (
  <header class="top">
    <h1>
      {/* A link where it leads elsewhere. */}
      <a href={home}>
        <Mark />
        Tabring
      </a>
    </h1>
    <nav class="site" aria-label="Site">
      {Object.entries(sections).map(([words, path]) => (
        <a
          key={path}
          href={(home ?? '') + path}
          aria-current={words === tagline ? 'page' : undefined}
          {...(home === undefined && elsewhere)}
        >
          {words}
        </a>
      ))}
    </nav>
    {!(tagline in sections) && <p class="tagline">{tagline}</p>}
    {children}
  </header>
)

/** Three ranks on a ring. */
const Mark = () => (
  <svg class="mark" viewBox="0 0 24 24" aria-hidden="true">
    <circle cx="12" cy="12" r="8" />
    <circle class="dot" cx="12" cy="4" r="3" />
    <circle class="dot" cx="5.1" cy="16" r="3" />
    <circle class="dot" cx="18.9" cy="16" r="3" />
  </svg>
)
