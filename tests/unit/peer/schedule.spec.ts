import { describe, expect, test } from 'vitest'
import { chunkRange, type RingPattern, ringSchedule } from '../../../src/peer/schedule.ts'

const sizes = Array.from({ length: 16 }, (_, index) => index + 1)
const patterns: RingPattern[] = ['reduceScatter', 'allGather', 'allReduce', 'broadcast']

describe.each(sizes)('a ring of %i', (size) => {
  const ranks = Array.from({ length: size }, (_, rank) => rank)

  test.each(patterns)(
    '%s: what a rank sends, the next one receives at the same step',
    (pattern) => {
      for (const root of pattern === 'broadcast' ? ranks : [0]) {
        const schedules = ranks.map((rank) => ringSchedule(pattern, rank, size, root))
        for (const rank of ranks) {
          const next = schedules[(rank + 1) % size]!
          schedules[rank]!.forEach((step, index) => {
            expect(next[index]!.receiveChunk).toBe(step.sendChunk)
          })
        }
      }
    },
  )

  test.each(patterns)('%s: a rank passes on what it received one step before', (pattern) => {
    for (const rank of ranks) {
      const steps = ringSchedule(pattern, rank, size)
      for (let index = 1; index < steps.length; index++)
        if (steps[index - 1]!.receiveChunk >= 0)
          expect(steps[index]!.sendChunk).toBe(steps[index - 1]!.receiveChunk)
    }
  })

  test('reduce-scatter: chunk c goes once round from rank c + 1 and ends, complete, at rank c', () => {
    const added = ranks.map((chunk) => [(chunk + 1) % size])
    for (let index = 0; index < size - 1; index++)
      for (const rank of ranks) {
        const { receiveChunk, combine } = ringSchedule('reduceScatter', rank, size)[index]!
        expect(combine).toBe('add')
        added[receiveChunk]!.push(rank)
      }
    for (const chunk of ranks)
      expect(added[chunk]).toEqual(ranks.map((hop) => (chunk + 1 + hop) % size))
  })

  test('all-gather: every rank receives every chunk but its own, once', () => {
    for (const rank of ranks) {
      const got = ringSchedule('allGather', rank, size).map((step) => step.receiveChunk)
      expect(got.toSorted((a, b) => a - b)).toEqual(ranks.filter((chunk) => chunk !== rank))
    }
  })

  test('all-reduce: the gather begins with the chunk that the reduction left complete', () => {
    for (const rank of ranks) {
      const steps = ringSchedule('allReduce', rank, size)
      expect(steps.length).toBe(2 * (size - 1))
      if (size > 1) expect(steps[size - 1]!.sendChunk).toBe(rank)
    }
  })

  test('broadcast: every rank but the root receives once, every rank but the last sends once', () => {
    for (const root of ranks) {
      for (const rank of ranks) {
        const steps = ringSchedule('broadcast', rank, size, root)
        expect(steps.filter((step) => step.receiveChunk === 0).length).toBe(rank === root ? 0 : 1)
        const isLast = (rank + 1) % size === root
        expect(steps.filter((step) => step.sendChunk === 0).length).toBe(isLast ? 0 : 1)
      }
    }
  })

  test.each([1, 4, 64])('chunks with alignment %i cover the buffer, in order', (alignment) => {
    for (const length of [0, 1, size - 1, size, size + 1, 63, 64, 65, 997, 4096]) {
      const chunks = ranks.map((rank) => chunkRange(length, size, rank, alignment))
      expect(chunks[0]!.start).toBe(0)
      expect(chunks[size - 1]!.end).toBe(length)
      const units = chunks.map(({ start, end }) => Math.ceil((end - start) / alignment))
      expect(Math.max(...units) - Math.min(...units)).toBeLessThanOrEqual(1)
      chunks.forEach(({ start, end }, index) => {
        expect(end).toBeGreaterThanOrEqual(start)
        if (index > 0) expect(start).toBe(chunks[index - 1]!.end)
        if (start < length) expect(start % alignment).toBe(0)
      })
    }
  })
})
