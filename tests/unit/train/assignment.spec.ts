import { describe, expect, test } from 'vitest'
import { Assignment, type MeasuredTime } from '../../../src/ddp/exact/assignment.ts'
import { seededRandom } from '../../../src/util/virtual-env.ts'

// Ranks are simulated devices: each takes a stated time for a virtual worker.

/** Takes steps; returns what each one costs, the time of the rank that finishes last. */
function play(
  assignment: Assignment,
  steps: number,
  usOf: (rank: number, step: number) => number,
): number[] {
  return Array.from({ length: steps }, (_, step) => {
    const us = assignment.counts.map((_, rank) => usOf(rank, step))
    const workers = assignment.counts.reduce((sum, count) => sum + count, 0)
    const took = Array.from({ length: workers }, (_, worker) => us[assignment.rankOf(worker)])
    const cost = Math.max(...assignment.counts.map((count, rank) => count * us[rank]))
    assignment.take(took)
    return cost
  })
}

/** Times that ranks report when they form a group with others. */
const receivedFrom = (assignment: Assignment): MeasuredTime[] =>
  assignment.counts.map((_, rank) => ({ us: assignment.usOf(rank)!, isOfProof: false }))

const mean = (values: readonly number[]) =>
  values.reduce((sum, value) => sum + value, 0) / values.length

const best = (workers: number, us: readonly number[]): number => {
  let max = 0
  while (us.reduce((sum, one) => sum + Math.floor(max / one), 0) < workers) max++
  return max
}

const evenly = (workers: number, ranks: number): number[] =>
  Array.from(
    { length: ranks },
    (_, rank) => Math.floor(((rank + 1) * workers) / ranks) - Math.floor((rank * workers) / ranks),
  )

describe('Assignment', () => {
  test('gives ranks virtual workers by their speed', () => {
    const assignment = new Assignment([3, 3, 2])
    play(assignment, 19, (rank) => [100, 200, 100][rank])
    expect(assignment.counts).toEqual([3, 3, 2])
    play(assignment, 1, (rank) => [100, 200, 100][rank])
    expect(assignment.counts).toEqual([4, 1, 3])
    expect([0, 1, 2].map((rank) => assignment.firstOf(rank))).toEqual([0, 4, 5])
    expect([0, 3, 4, 5, 7].map((worker) => assignment.rankOf(worker))).toEqual([0, 0, 1, 2, 2])
  })

  test.each([8, 16, 32])(
    'a rank ten times slower than three others costs at most 15 %% over the ideal split of %i',
    (workers) => {
      const us = [100, 100, 1000, 100]
      const assignment = new Assignment(us.map(() => workers / us.length))
      const costs = play(assignment, 2000, (rank) => us[rank])
      expect(mean(costs.slice(20)) / best(workers, us)).toBeLessThan(1.15)
      expect(mean(costs.slice(0, 20)) / best(workers, us)).toBeGreaterThan(2)
    },
  )

  test.each([8, 16, 32])(
    'ranks that form a group again share %i by their speeds from the first step on, as do those that join them',
    (workers) => {
      const us = [100, 100, 1000, 100]
      const before = new Assignment(us.map(() => workers / us.length))
      play(before, 30, (rank) => us[rank])
      const received = receivedFrom(before)
      const again = new Assignment(before.counts.map(() => workers / us.length))
      again.begin(received)
      expect(mean(play(again, 20, (rank) => us[rank])) / best(workers, us)).toBeLessThan(1.15)

      // Rank 0 is lost. Of those that join one has computed its proof, slowly, and one has reported nothing.
      const others = [...us.slice(1), 1000, 100]
      const joined = new Assignment(evenly(workers, others.length))
      joined.begin([...received.slice(1), { us: 900, isOfProof: true }, undefined])
      const costs = play(joined, 20, (rank) => others[rank])
      expect(mean(costs) / best(workers, others)).toBeLessThan(1.15)
    },
  )

  test('begins evenly when ranks have reported proofs alone, or about the same times', () => {
    const assignment = new Assignment([3, 3, 2])
    assignment.begin([{ us: 10, isOfProof: true }, { us: 1000, isOfProof: true }, undefined])
    expect(assignment.counts).toEqual([3, 3, 2])
    const other = new Assignment([2, 2, 2])
    other.begin([100, 115, 95].map((us) => ({ us, isOfProof: false })))
    expect(other.counts).toEqual([2, 2, 2])
  })

  test('a rank that gets none for its slow proof is tried after 20 steps', () => {
    const assignment = new Assignment([2, 2, 2, 2])
    const known = { us: 100, isOfProof: false }
    const slow = { us: 1000, isOfProof: false }
    assignment.begin([known, known, slow, { us: 1000, isOfProof: true }])
    expect(assignment.counts).toEqual([4, 4, 0, 0])
    play(assignment, 22, (rank) => (rank === 2 ? 1000 : 100))
    expect(assignment.counts).toEqual([3, 3, 0, 2])
  })

  test('stays as it is where steps differ by chance', () => {
    const random = seededRandom(4)
    const assignment = new Assignment([2, 2, 2, 2])
    play(assignment, 500, () => Math.round(100 * (random() < 0.1 ? 8 : 0.95 + 0.1 * random())))
    expect(assignment.counts).toEqual([2, 2, 2, 2])
  })

  test('a slow rank that becomes as fast as the others gets its share back', () => {
    const assignment = new Assignment([4, 4])
    play(assignment, 100, (rank) => (rank === 1 ? 1000 : 100))
    expect(assignment.counts).toEqual([8, 0])
    play(assignment, 202, () => 100)
    expect(assignment.counts).toEqual([4, 4])
  })

  test('ranks without virtual workers are tried one after the other, and the fast one keeps some', () => {
    // More ranks than virtual workers.
    const assignment = new Assignment([0, 1, 1, 0])
    play(assignment, 700, (rank) => [900, 100, 800, 100][rank])
    expect(assignment.counts).toEqual([0, 1, 0, 1])
  })

  test('virtual workers without rows in a short step measure nothing', () => {
    const assignment = new Assignment([1, 1])
    for (let step = 0; step < 40; step++) assignment.take(step % 2 === 0 ? [100, 100] : [100, 0])
    expect(assignment.counts).toEqual([1, 1])
  })

  test('all assignments add up to all virtual workers', () => {
    const random = seededRandom(7)
    for (let trial = 0; trial < 50; trial++) {
      const counts = [1, 0, 0, 0, 0].map((min) => min + Math.floor(5 * random()))
      const assignment = new Assignment(counts)
      const us = counts.map(() => 1 + Math.floor(1000 * random()))
      for (let step = 0; step < 300; step++) {
        play(assignment, 1, (rank) => Math.round(us[rank] * (0.5 + random())))
        expect(mean([...assignment.counts]) * counts.length).toBeCloseTo(
          mean(counts) * counts.length,
        )
        expect(Math.min(...assignment.counts)).toBeGreaterThanOrEqual(0)
      }
    }
  })
})
