import { readdirSync } from 'node:fs'
import { join, posix } from 'node:path'
import { expect, test } from 'vitest'
import {
  anchorsOf,
  exists,
  linksOf,
  type MarkdownPage,
  parsePage,
  readPages,
  userPages,
} from '../../support/markdown.ts'
import { repository } from '../../support/repository.ts'

// Relative links lead to files that exist and headings that exist; links to the local server lead to demos that exist. Paths in code spans
// exist too.

const pages = [...userPages(), ...readPages('src', 'demos', 'tests', 'bench/README.md')]

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

const folders = ['src', 'node', 'demos', 'tests', 'scripts', 'bench', 'docs']
const names = folders.flatMap((folder) =>
  readdirSync(join(repository, folder), { recursive: true, encoding: 'utf8' }).map(
    (name) => `${folder}/${name.replaceAll('\\', '/')}`,
  ),
)

/** Whether a file or folder has this path, in which `*` and `<name>` stand for any part of a name. */
function isPath(path: string): boolean {
  if (!/[*<]/.test(path)) return exists(path)
  const pattern = path
    .replace(/\/$/, '')
    .replaceAll('.', '\\.')
    .replaceAll(/\*|<\w+>/g, '[^/]+')
  return names.some((name) => new RegExp(`^${pattern}$`).test(name))
}

/** Returns the paths in code spans of `page` that do not exist. */
const stalePaths = ({ prose }: MarkdownPage): string[] =>
  prose
    .flatMap((line) => [...line.matchAll(/`([^`]+)`/g)].map(([, text]) => text))
    .filter((text) => /^(?:src|node|demos|tests|scripts|bench|docs)\/[\w./*<>-]*$/.test(text))
    .filter((path) => !isPath(path))

test('the pages are there', () => {
  expect(pages.length).toBeGreaterThan(30)
})

test.each(pages)('every link of $path resolves', (page) => {
  const broken = linksOf(page).map((link) => brokenLink(page.path, link))
  expect(broken.filter((reason) => reason !== null)).toEqual([])
})

test.each(pages)('every path in a code span of $path exists', (page) => {
  expect(stalePaths(page)).toEqual([])
})

test('a path that does not exist is found', () => {
  const text =
    '`src/gone.ts` `src/gone/*.ts` `demos/<name>/gone.ts` `src/ui/` `src/*/README.md` `demos/<name>/meta.ts` `own/gone.ts`'
  expect(stalePaths(parsePage('README.md', text))).toEqual([
    'src/gone.ts',
    'src/gone/*.ts',
    'demos/<name>/gone.ts',
  ])
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
