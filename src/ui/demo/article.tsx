import type { ComponentChildren } from 'preact'
import './article.css'

interface ArticleProps {
  readonly title: string
  /** Beside the text, or below it on a phone. */
  readonly drawings: ComponentChildren
  readonly children: ComponentChildren
}

/** What one sees in a demo and why, to be read below it. */
export const Article = ({ title, drawings, children }: ArticleProps) => (
  <article class="article" aria-labelledby="article-title">
    <h2 id="article-title">{title}</h2>
    <div>
      <div>{children}</div>
      <div>{drawings}</div>
    </div>
  </article>
)

interface DrawingProps {
  /** What it shows, for those who do not see it. */
  readonly title: string
  /** Below it. */
  readonly caption: string
  /** units: of the drawing, 360 of which are its width. */
  readonly height: number
  readonly children: ComponentChildren
}

/** A small drawing of an article. Its colours are the theme's: `data-is` says what a shape is, `--hue` whose. */
export const Drawing = ({ title, caption, height, children }: DrawingProps) => (
  <figure>
    <svg viewBox={`0 0 360 ${height}`} role="img" aria-label={title}>
      {children}
    </svg>
    <figcaption>{caption}</figcaption>
  </figure>
)

/** Returns the `d` of a line through places. */
export const lineThrough = (places: readonly (readonly [x: number, y: number])[]): string =>
  `M${places.map(([x, y]) => `${x.toFixed(1)} ${y.toFixed(1)}`).join('L')}`
