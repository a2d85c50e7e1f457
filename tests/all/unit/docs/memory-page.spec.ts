import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { pages } from '../../../../scripts/docs/pages.ts'
import { repository } from '../../../support/repository.ts'

test('the memory page is what the planner gives; else run `npm run docs`', () => {
  const [[path, page]] = Object.entries(pages).filter(([name]) => name.endsWith('memory.md'))
  const committed = readFileSync(join(repository, path), 'utf8')
  expect(committed).toBe(page())
}, 120_000)
