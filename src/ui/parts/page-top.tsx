import type { ComponentChildren } from 'preact'

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
    <p class="tagline">{tagline}</p>
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
