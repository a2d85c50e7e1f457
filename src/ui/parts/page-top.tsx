import type { ComponentChildren } from 'preact'

interface PageTopProps {
  /** What this page is. */
  readonly tagline: string
  /** Beside it. */
  readonly children?: ComponentChildren
}

/** The head of each page: the name, and what the page is. */
export const PageTop = ({ tagline, children }: PageTopProps) => (
  <header class="top">
    <h1>
      <Mark />
      Tabring
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
