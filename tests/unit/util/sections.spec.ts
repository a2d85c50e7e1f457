import { expect, test } from 'vitest'
import { Sections } from '../../../src/util/sections.ts'

const notes = new Sections({ count: 1, hash: 3, none: 0, flags: 1 })

test('a block holds sections in their order, and gives each back by its name', () => {
  const block = notes.write(new Float32Array(notes.length), { flags: 9, count: 4, hash: [1, 2, 3] })
  expect([...block]).toEqual([4, 1, 2, 3, 9])
  expect(notes.read(block)).toMatchObject({ count: 4, hash: 1, flags: 9 })
  expect([...notes.of(block, 'hash')]).toEqual([1, 2, 3])
  expect(notes.of(block, 'none')).toHaveLength(0)
})

test('a section of a block is a view, and sections that are not written stay', () => {
  const block = Int32Array.of(1, 2, 3, 4, 5)
  notes.of(block, 'hash').fill(7)
  notes.write(block, { count: -1 })
  expect([...block]).toEqual([-1, 7, 7, 7, 5])
})

test('sums of blocks are read as blocks are, and rows as the blocks of several ranks', () => {
  const ranks = Uint32Array.of(1, 2, 3, 4, 5, 10, 20, 30, 40, 50)
  const [first, second] = notes.rows(ranks)
  expect(notes.read(first.map((one, i) => one + second[i]))).toMatchObject({ count: 11, flags: 55 })
  expect(notes.rows(ranks.subarray(0, 0))).toEqual([])
})
