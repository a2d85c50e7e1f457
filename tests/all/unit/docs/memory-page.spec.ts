import { readFileSync } from 'node:fs'
import { resolve } from 'node:path'
import { expect, test } from 'vitest'
import { pages } from '../../../../scripts/docs/pages.ts'

test('the memory page is what the planner gives; else run `npm run docs`', () => {
  const [[path, page]] = Object.entries(pages).filter(([name]) => name.endsWith('memory.md'))
  const committed = readFileSync(resolve(import.meta.dirname, '../../../..', path), 'utf8')
  expect(committed).toBe(page())
}, 120_000)
