import { dirname, posix } from 'node:path'
import { Marked } from 'marked'
import { gfmHeadingId } from 'marked-gfm-heading-id'
import { listPages, type Page, readPage } from './docs.ts'
import { escaped, type SitePage, upFrom } from './site-page.ts'

/** The pages of docs/ as pages of the site, rendered when it is built. */

const index: Page = { name: 'index', path: 'README.md', group: '', description: '' }

/** The address of a file of docs/, relative to that folder. */
const addressOf = (path: string): string =>
  path === 'README.md' ? 'index.html' : path.replace(/\.md$/, '.html')

/** The pages by the HTML file that each would be, from the repository's root. */
export const docsPages = (): [file: string, page: () => SitePage][] =>
  [index, ...listPages()].map(({ path }) => [`docs/${addressOf(path)}`, () => pageOf(path)])

function pageOf(path: string): SitePage {
  const text = readPage(path)
  return {
    title: /^# (.+)/m.exec(text)?.[1].replaceAll('`', '') ?? 'Docs',
    script: 'src/docs.tsx',
    body: `<div class="page">
      <div id="top" data-home="${upFrom(`docs/${path}`)}"></div>
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
    </div>`,
  }
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
