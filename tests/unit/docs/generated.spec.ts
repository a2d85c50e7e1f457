import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { pages } from '../../../scripts/docs/pages.ts'
import { repository } from '../../support/repository.ts'

// Planning every model takes 10 s: tests/all/unit/docs/memory-page.spec.ts.
const quick = Object.entries(pages).filter(([path]) => !path.endsWith('memory.md'))

test.each(quick)('%s is what the code says; else run `npm run docs`', (path, page) => {
  const committed = readFileSync(join(repository, path), 'utf8')
  expect(committed).toBe(page())
})
