import { posix } from 'node:path'
import { expect, test } from 'vitest'
import {
  anchorsOf,
  exists,
  linksOf,
  parsePage,
  readPages,
  userPages,
} from '../../support/markdown.ts'

// Relative links lead to files that exist and headings that exist; links to the local server lead to demos that exist.

const pages = [
  ...userPages(),
  ...readPages('src', 'demos', 'tests', 'bench/README.md').filter(({ path }) =>
    path.endsWith('/README.md'),
  ),
]

/** Returns why a link of `page` leads nowhere; null where it leads somewhere, or to another site. */
function brokenLink(page: string, link: string): string | null {
  const local = /^http:\/\/localhost(?::\d+)?\/([^#?]*)/.exec(link)
  if (local) return exists(local[1] || 'index.html') ? null : `${link}: no such page here`
  if (/^[a-z]+:/.test(link)) return null
  const [path, anchor] = link.split('#')
  const target = path === '' ? page : posix.join(posix.dirname(page), decodeURI(path))
  if (target.startsWith('..') || !exists(target)) return `${link}: no such file`
  if (anchor === undefined) return null
  const [found] = readPages(target)
  return anchorsOf(found).has(anchor) ? null : `${link}: no such heading`
}

test('the pages are there', () => {
  expect(pages.length).toBeGreaterThan(30)
})

test.each(pages)('every link of $path resolves', (page) => {
  const broken = linksOf(page).map((link) => brokenLink(page.path, link))
  expect(broken.filter((reason) => reason !== null)).toEqual([])
})

test('a link that leads nowhere is found', () => {
  const text =
    '[a](gone.md) [b](README.md#no) <img src="c.png"> <http://localhost:1/demos/no/> `[d](e)`'
  const links = linksOf(parsePage('README.md', text))
  expect(links.map((link) => brokenLink('README.md', link))).toEqual([
    'gone.md: no such file',
    'README.md#no: no such heading',
    'c.png: no such file',
    'http://localhost:1/demos/no/: no such page here',
  ])
})
