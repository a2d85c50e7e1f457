import { readFileSync } from 'node:fs'
import { resolve } from 'node:path'
import { expect, test } from 'vitest'
import { pages } from '../../../scripts/docs/pages.ts'

test.each(Object.entries(pages))(
  '%s is what the code says; else run `npm run docs`',
  { timeout: 120_000 },
  (path, page) => {
    const committed = readFileSync(resolve(import.meta.dirname, '../../..', path), 'utf8')
    expect(committed).toBe(page())
  },
)
