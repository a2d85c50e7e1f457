import { describe, expect, test } from 'vitest'
import { type Algorithm, algorithms } from '../../../src/peer/algorithms/operations.ts'
import { chunkRange, type Plan } from '../../../src/peer/algorithms/plan.ts'
import { hasAlgorithm, planCollective } from '../../../src/peer/algorithms/plan-collective.ts'
import { layoutsOf, partsByMachine } from '../../support/collective-reference.ts'

const sizes = [1, 2, 3, 4, 5, 6, 7, 8, 9, 13]
const operations = [
  'reduceScatter',
  'allGather',
  'allReduce',
  'broadcast',
  'reduce',
  'barrier',
  'gather',
  'scatter',
  'allToAll',
] as const
type Operation = (typeof operations)[number]
const rooted: readonly string[] = ['broadcast', 'reduce', 'gather', 'scatter']
const all = operations.flatMap((operation) =>
  algorithms
    .filter((algorithm) => hasAlgorithm(operation, algorithm))
    .map((algorithm): [Operation, Algorithm] => [operation, algorithm]),
)

/** Elements as lists of who is in them, walked through plans without bytes or links: the slowest possible interpreter. */
function walk(operation: Operation, plans: readonly Plan[], length: number): string[][] {
  const size = plans.length
  const places = operation === 'allToAll' || operation === 'gather' || operation === 'scatter'
  const count = places ? length * size : length
  const inputs = plans.map((_, rank) => Array.from({ length: count }, (_, i) => `${rank}:${i}`))
  const buffers = inputs.map((input) =>
    operation === 'allToAll' ? input.map(() => '') : [...input],
  )
  const received = plans.map(({ receives }) =>
    receives.map(() => undefined as string[] | undefined),
  )
  const folded = plans.map(({ folds }) => folds.map(() => false))
  const sent = new Set<string>()
  for (let isMoving = true; isMoving; ) {
    isMoving = false
    plans.forEach(({ sends, folds }, rank) => {
      sends.forEach(({ peer, step, range, after }, index) => {
        const isReady =
          !after ||
          ('receive' in after
            ? received[rank]![after.receive] !== undefined
            : folded[rank]![after.fold]!)
        if (!isReady || sent.has(`${rank}/${index}`)) return
        sent.add(`${rank}/${index}`)
        isMoving = true
        const values = (after ? buffers : inputs)[rank]!.slice(range.start, range.end)
        const theirs = plans[peer]!
        const at = theirs.receives.findIndex((one) => one.peer === rank && one.step === step)
        expect(at, `rank ${peer} expects step ${step} of rank ${rank}`).toBeGreaterThanOrEqual(0)
        const receive = theirs.receives[at]!
        expect(receive.range.end - receive.range.start).toBe(values.length)
        expect(received[peer]![at], 'once').toBeUndefined()
        received[peer]![at] = values
        values.forEach((value, i) => {
          const where = receive.range.start + i
          const own = buffers[peer]![where]!
          if (receive.into === 'copy') buffers[peer]![where] = value
          if (receive.into === 'reduce') buffers[peer]![where] = `${value}+${own}`
        })
      })
      folds.forEach(({ range, sources, isPartial }, index) => {
        const parts = sources.map((source) => (source === 'own' ? 'own' : received[rank]![source]))
        if (folded[rank]![index] || parts.includes(undefined)) return
        folded[rank]![index] = true
        isMoving = true
        for (let i = range.start; i < range.end; i++) {
          const sum = sources
            .map((source) => {
              if (source === 'own') return inputs[rank]![i]
              const from = plans[rank]!.receives[source]!.range.start
              return received[rank]![source]![i - from]
            })
            .join('+')
          buffers[rank]![i] = isPartial ? `(${sum})` : sum
        }
      })
    })
  }
  expect(sent.size, 'all sends have gone').toBe(
    plans.reduce((sum, { sends }) => sum + sends.length, 0),
  )
  for (const one of received) expect(one).not.toContain(undefined)
  return buffers
}

describe.each(sizes)('%i ranks', (size) => {
  const ranks = Array.from({ length: size }, (_, rank) => rank)
  const sumInRing = (owner: number, i: number) =>
    ranks.map((hop) => `${(owner + 1 + hop) % size}:${i}`).join('+')
  const sumByMachines = (machines: readonly number[]) => (owner: number, i: number) =>
    partsByMachine(machines, owner)
      .map((part) => part.map((rank) => `${rank}:${i}`).join('+'))
      .map((part) => (part.includes('+') ? `(${part})` : part))
      .join('+')
  const roots = (operation: Operation) =>
    rooted.includes(operation) ? [...new Set([0, size >> 1, size - 1])] : [0]

  test.each(all)(
    '%s by %s: every element ends where it belongs, summed in the order of docs/how-it-works/collectives.md',
    (operation, algorithm) => {
      if (algorithm !== 'hierarchical') {
        check(operation, algorithm, undefined)
        return
      }
      for (const machines of layoutsOf(size)) check(operation, algorithm, machines)
    },
  )

  const check = (
    operation: Operation,
    algorithm: Algorithm,
    machines: readonly number[] | undefined,
  ) => {
    const sumAt = machines ? sumByMachines(machines) : sumInRing
    for (const root of roots(operation))
      for (const length of machines ? [0, size + 1] : [0, 1, size - 1, size + 1, 2 * size]) {
        const isPlaced =
          operation === 'allToAll' || operation === 'gather' || operation === 'scatter'
        const plans = ranks.map((rank) =>
          planCollective(operation, algorithm, {
            rank,
            size,
            root,
            length,
            alignment: 1,
            machines,
          }),
        )
        const buffers = walk(operation, plans, length)
        const owner = (i: number) =>
          ranks.find((rank) => {
            const { start, end } = chunkRange(length, size, rank)
            return i >= start && i < end
          })!
        for (const rank of ranks)
          for (let i = 0; i < length * (isPlaced ? size : 1); i++) {
            const got = buffers[rank]![i]
            const part = Math.floor(i / (length || 1))
            const where = `rank ${rank}, element ${i}, root ${root}`
            if (operation === 'allReduce') expect(got, where).toBe(sumAt(owner(i), i))
            if (operation === 'reduceScatter' && owner(i) === rank)
              expect(got, where).toBe(sumAt(rank, i))
            if (operation === 'allGather' || operation === 'barrier')
              expect(got, where).toBe(`${owner(i)}:${i}`)
            if (operation === 'broadcast') expect(got, where).toBe(`${root}:${i}`)
            if (operation === 'reduce' && rank === root) expect(got, where).toBe(sumAt(root, i))
            if (operation === 'gather' && rank === root && part !== rank)
              expect(got, where).toBe(`${part}:${i % length}`)
            if (operation === 'scatter' && rank !== root && i < length)
              expect(got, where).toBe(`${root}:${rank * length + i}`)
            if (operation === 'allToAll' && part !== rank)
              expect(got, where).toBe(`${part}:${rank * length + (i % length)}`)
          }
      }
  }

  test('between machines travels what docs/how-it-works/collectives.md states', () => {
    for (const machines of layoutsOf(size)) {
      const length = 12 * size
      const given = (rank: number) => ({ rank, size, root: 0, length, alignment: 1, machines })
      const machineCount = new Set(machines).size
      const between = (operation: 'allReduce' | 'reduceScatter' | 'allGather' | 'broadcast') => {
        const out = new Map<number, number>()
        for (const rank of ranks)
          for (const { peer, range } of planCollective(operation, 'hierarchical', given(rank))
            .sends)
            if (machines[peer] !== machines[rank])
              out.set(machines[rank]!, (out.get(machines[rank]!) ?? 0) + range.end - range.start)
        return machines.map((machine) => out.get(machine) ?? 0)
      }
      const membersOf = (machine: number) => machines.filter((one) => one === machine).length
      const scattered = machines.map((machine) => 12 * (size - membersOf(machine)))
      const gathered = machines.map((machine) => 12 * membersOf(machine) * (machineCount - 1))
      expect(between('reduceScatter')).toEqual(scattered)
      expect(between('allGather')).toEqual(gathered)
      expect(between('allReduce')).toEqual(scattered.map((count, at) => count + gathered[at]!))
      expect(between('broadcast')).toEqual(
        machines.map((machine) => (machine === machines[0] ? length * (machineCount - 1) : 0)),
      )
    }
  })

  test('steps and bytes are those that docs/how-it-works/collectives.md states', () => {
    const length = 12 * size
    const elementsSent = (operation: Operation, algorithm: Algorithm) =>
      ranks.map((rank) =>
        planCollective(operation, algorithm, {
          rank,
          size,
          root: 0,
          length,
          alignment: 1,
        }).sends.reduce((sum, { range }) => sum + range.end - range.start, 0),
      )
    const share = (size - 1) * 12
    for (const algorithm of ['ring', 'direct'] as const) {
      expect(elementsSent('allReduce', algorithm)).toEqual(ranks.map(() => 2 * share))
      expect(elementsSent('reduceScatter', algorithm)).toEqual(ranks.map(() => share))
      expect(elementsSent('allGather', algorithm)).toEqual(ranks.map(() => share))
    }
    expect(elementsSent('allReduce', 'oneShot')).toEqual(ranks.map(() => (size - 1) * length))
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
