import { join, posix } from 'node:path'
import { expect, it } from 'vitest'
import { siteInputs, sitePages } from '../../../node/site-pages.ts'
import { repository } from '../../support/repository.ts'

/** Pages of the site that are in no HTML file. */

const load = sitePages().load as (id: string) => string | undefined
const texts = new Map(siteInputs().map((file) => [file, load(join(repository, file))!]))

it('sitePages links to pages and headings that are there when it renders', () => {
  const broken: string[] = []
  for (const [file, text] of texts)
    for (const [, href] of text.matchAll(/href="([^"]+)"/g)) {
      if (/^[a-z]+:/.test(href)) continue
      const [path, anchor] = href.split('#')
      const target = texts.get(path ? posix.join(posix.dirname(file), path) : file)
      if (!target || (anchor && !target.includes(`id="${anchor}"`))) broken.push(`${file}: ${href}`)
    }
  expect(broken).toEqual([])
})

it('sitePages gives the text of docs, and marks the page in its list, when an HTML file is asked for', () => {
  const page = texts.get('docs/guides/class.html')!
  expect(page).toContain('<title>Train with a class · Tabring</title>')
  expect(page).toContain('<h2 id="how-large-a-room-may-be">')
  expect(page.match(/aria-current/g)).toHaveLength(1)
  expect(load(join(repository, 'docs/guides/class.md'))).toBeUndefined()
})
