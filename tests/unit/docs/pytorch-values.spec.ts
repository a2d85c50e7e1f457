import { readFileSync } from 'node:fs'
import { describe, expect, test } from 'vitest'
import { pytorchValues, withoutCounterpart } from '../../../scripts/docs/pytorch-values.ts'
import { ops } from '../../../src/kernels/index.ts'

/** Every name and key that a file of tests/golden has. */
function namesIn(file: string): Set<string> {
  const names = new Set<string>()
  const walk = (value: unknown) => {
    if (typeof value !== 'object' || value === null) return
    for (const [key, inner] of Object.entries(value)) {
      if (key === 'name' && typeof inner === 'string') names.add(inner)
      names.add(key)
      walk(inner)
    }
  }
  walk(JSON.parse(readFileSync(new URL(`../../golden/${file}.json`, import.meta.url), 'utf8')))
  return names
}

test('every op has values of PyTorch, or a reason why there are none', () => {
  const listed = [...Object.keys(pytorchValues), ...Object.keys(withoutCounterpart)]
  expect(listed.sort()).toEqual(ops.map(({ name }) => name).sort())
})

describe('the cases that are named exist', () => {
  const files = new Set(Object.values(pytorchValues).map(([file]) => file))
  test.each([...files])('%s.json', (file) => {
    const names = namesIn(file)
    const wanted = Object.values(pytorchValues).flatMap(([from, sample]) =>
      from === file ? [sample] : [],
    )
    expect(wanted.filter((sample) => !names.has(sample))).toEqual([])
  })
})
