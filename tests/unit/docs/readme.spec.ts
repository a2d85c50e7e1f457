import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { repository } from '../../support/repository.ts'

test('README.md is one page: at most 110 lines and 8 kB', () => {
  const bytes = readFileSync(join(repository, 'README.md'))
  expect(bytes.toString().trimEnd().split('\n').length).toBeLessThanOrEqual(110)
  expect(bytes.length).toBeLessThanOrEqual(8000)
})
