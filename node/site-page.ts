import { readFileSync } from 'node:fs'
import { join } from 'node:path'

/** A page of the site but for what all pages share. */
export interface SitePage {
  readonly title: string
  /** For search engines. Default: none. */
  readonly description?: string
  /** Its module, from the repository's root. */
  readonly script: string
  /** HTML. */
  readonly body: string
}

/** The training page's. */
const [icon] = /<link\s+rel="icon"[^>]*>/.exec(
  readFileSync(join(import.meta.dirname, '..', 'index.html'), 'utf8'),
)!

/** The HTML of the page at `file`, from the repository's root. */
export function htmlOf(file: string, { title, description, script, body }: SitePage): string {
  const about = description && `<meta name="description" content="${escaped(description)}" />`
  return `<!doctype html>
<html lang="en">
  <head>
    <meta charset="utf-8" />
    <meta name="viewport" content="width=device-width, initial-scale=1" />
    <meta name="color-scheme" content="light dark" />
    ${about ?? ''}
    <title>${escaped(title)} · Tabring</title>
    ${icon}
  </head>
  <body>
    ${body}
    <script type="module" src="${upFrom(file)}${script}"></script>
  </body>
</html>`
}

/** From the page at `file` to the repository's root. */
export const upFrom = (file: string): string => '../'.repeat(file.split('/').length - 1)

export const escaped = (text: string): string =>
  text
    .replaceAll('&', '&amp;')
    .replaceAll('<', '&lt;')
    .replaceAll('>', '&gt;')
    .replaceAll('"', '&quot;')
