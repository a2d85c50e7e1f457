import { readFileSync } from 'node:fs'
import { dirname, join, posix, relative } from 'node:path'
import { Marked } from 'marked'
import { gfmHeadingId } from 'marked-gfm-heading-id'
import type { Plugin } from 'vite'
import { listPages, type Page, readPage } from './docs.ts'

/** The pages of docs/ as pages of the site, rendered when it is built. */

const repository = join(import.meta.dirname, '..')

const index: Page = { name: 'index', path: 'README.md', group: '', description: '' }

/** The address of a file of docs/, relative to that folder. */
const addressOf = (path: string): string =>
  path === 'README.md' ? 'index.html' : path.replace(/\.md$/, '.html')

/** By the HTML file that each would be, from the repository's root. */
const pagesByFile = (): Map<string, Page> =>
  new Map([index, ...listPages()].map((page) => [`docs/${addressOf(page.path)}`, page]))

/** The pages' files for the bundler: none of them exists, the plugin renders them. */
export const docsInputs = (): string[] => [...pagesByFile().keys()]

/** Returns the plugin that renders pages of docs/ where a build or the development server asks for them. */
export function docsPages(): Plugin {
  const pages = pagesByFile()
  const pageAt = (file: string) => pages.get(relative(repository, file).replaceAll('\\', '/'))
  return {
    name: 'tabring:docs',
    resolveId: (id) => {
      const file = join(repository, id)
      return pages.has(id) ? file : pageAt(id) ? id : undefined
    },
    load: (id) => {
      const page = pageAt(id)
      return page && html(page)
    },
    configureServer({ middlewares, transformIndexHtml }) {
      middlewares.use(({ url = '' }, response, next) => {
        const path = url
          .replace(/[?#].*/, '')
          .replace(/^\//, '')
          .replace(/\/$/, '/index.html')
        const page = pages.get(path)
        if (!page) return next()
        transformIndexHtml(`/${path}`, html(page)).then((text) => {
          response.setHeader('Content-Type', 'text/html')
          response.end(text)
        }, next)
      })
    },
  }
}

/** The training page's. */
const [icon] = /<link\s+rel="icon"[^>]*>/.exec(
  readFileSync(join(repository, 'index.html'), 'utf8'),
)!

function html({ path }: Page): string {
  const text = readPage(path)
  const title = /^# (.+)/m.exec(text)?.[1].replaceAll('`', '') ?? 'Docs'
  const up = '../'.repeat(path.split('/').length)
  return `<!doctype html>
<html lang="en">
  <head>
    <meta charset="utf-8" />
    <meta name="viewport" content="width=device-width, initial-scale=1" />
    <meta name="color-scheme" content="light dark" />
    <title>${escaped(title)} · Tabring</title>
    ${icon}
  </head>
  <body>
    <div class="page">
      <div id="top" data-home="${up}"></div>
      <div class="docs">
        <details class="docs-list" open>
          <summary>Pages</summary>
          <nav aria-label="Documentation">${navigation(path)}</nav>
        </details>
        <main class="docs-text">
${rendered(path, text)}
        </main>
      </div>
      <div id="foot"></div>
    </div>
    <script type="module" src="${up}src/docs.tsx"></script>
  </body>
</html>`
}

function navigation(own: string): string {
  let group = ''
  return listPages()
    .map(({ name, path, group: of, description }) => {
      const heading = of === group ? '' : `<h2>${escaped(of)}</h2>`
      group = of
      const href = posix.relative(dirname(own), addressOf(path))
      const current = path === own ? ' aria-current="page"' : ''
      return `${heading}<a href="${href}" title="${escaped(description)}"${current}>${name}</a>`
    })
    .join('\n')
}

/** A page's text: links to other pages lead to their HTML, those to the repository's other files are plain words. */
function rendered(path: string, text: string): string {
  const marked = new Marked(gfmHeadingId(), {
    renderer: {
      link({ href, tokens }) {
        const words = this.parser.parseInline(tokens)
        const [target, anchor] = href.split('#')
        if (/^[a-z]+:/.test(href) || target === '') return `<a href="${escaped(href)}">${words}</a>`
        const found = posix.join(dirname(path), target)
        if (found.startsWith('..') || !found.endsWith('.md')) return words
        const to = posix.relative(dirname(path), addressOf(found))
        return `<a href="${escaped(to)}${anchor ? `#${escaped(anchor)}` : ''}">${words}</a>`
      },
      // Wide ones scroll in their place.
      table({ header, rows }) {
        const cell = (tag: string, tokens: Parameters<typeof this.parser.parseInline>[0]) =>
          `<${tag}>${this.parser.parseInline(tokens)}</${tag}>`
        const row = (tag: string, cells: typeof header) =>
          `<tr>${cells.map(({ tokens }) => cell(tag, tokens)).join('')}</tr>`
        return `<div class="scroll" tabindex="0"><table><thead>${row('th', header)}</thead><tbody>${rows
          .map((cells) => row('td', cells))
          .join('')}</tbody></table></div>`
      },
    },
  })
  return marked.parse(text.replace(/^<!--.*?-->\s*/s, ''), { async: false })
}

const escaped = (text: string): string =>
  text
    .replaceAll('&', '&amp;')
    .replaceAll('<', '&lt;')
    .replaceAll('>', '&gt;')
    .replaceAll('"', '&quot;')
