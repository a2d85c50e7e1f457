import { describe, expect, test } from 'vitest'
import { type Algorithm, algorithms, type Operation } from '../../src/peer/algorithms/operations.ts'
import { chunkRange } from '../../src/peer/algorithms/plan.ts'
import { hasAlgorithm } from '../../src/peer/algorithms/plan-collective.ts'
import type { ElementArray } from '../../src/peer/collective/element.ts'
import type { ProcessGroup } from '../../src/peer/group/group.ts'
import { bytes, drawnOnRanks, elements, opsOf, reduced } from './collective-reference.ts'

/** Groups of all ranks, and how to wait in their world: a virtual clock has to be turned. */
export interface MatrixWorld {
  groups: ProcessGroup[]
  until<T>(all: Promise<T>): Promise<T>
}

export interface MatrixOptions {
  sizes: readonly number[]
  /** By how ranks are linked, `ring` or `all`: the ranks' groups, new ones for each seed or not. */
  links: Record<string, (size: number, seed: number) => MatrixWorld>
}

/** Bytes as text, which compares at once: the runner compares arrays element by element, most of a matrix's time. */
const bits = (array: ElementArray): string => Buffer.from(bytes(array)).toString('latin1')

/** The long one, a prime, in messages of 1 KB. */
const lengthsFor = (size: number) => [...new Set([0, 1, size - 1, size, size + 1, 997])]

const has = (operation: Exclude<Operation, 'send'>, algorithm: Algorithm | undefined) =>
  algorithm === undefined || hasAlgorithm(operation, algorithm)

/** Those that add in one order; tests/unit/peer/collective-machines.spec.ts has the other. */
const inRingOrder = algorithms.filter((name) => name !== 'hierarchical')

/** Those of collectives that add nothing. */
const ofCopies = inRingOrder.filter((name) => has('broadcast', name) && has('allGather', name))

/** Algorithms that work with such links; undefined: the group chooses. */
const choices = (kind: string, size: number, wanted: readonly Algorithm[]) =>
  kind === 'ring' && size > 3 ? [undefined] : [undefined, ...wanted]

/** Every collective of every element type, in a ring and linked to all, against what plain loops say. */
export function collectiveMatrix({ sizes, links }: MatrixOptions): void {
  describe.each(sizes)('%i ranks', (size) => {
    describe.each(Object.keys(links))('linked: %s', (kind) => {
      const ranks = Array.from({ length: size }, (_, rank) => rank)
      const open = (seed: number) => links[kind]!(size, seed)
      // How elements are combined does not depend on how many ranks there are: all types with few, float32 with all.
      const types = Object.entries(elements).filter(([name]) => name === 'float32' || size <= 4)
      describe.each(types)('%s', (name, element) => {
        const fill = (length: number, seed: number) => drawnOnRanks(element, size, length, seed)

        test('allReduce, reduceScatter and reduce', async () => {
          for (const length of lengthsFor(size))
            for (const op of length > 100 ? (['sum'] as const) : opsOf(name)) {
              const inputs = fill(length, 7 * length + size)
              const expected = (first: (i: number) => number) => {
                const out = element.make(length)
                for (let i = 0; i < length; i++) out[i] = reduced(element, inputs, op, first(i), i)
                return out
              }
              const owner = (i: number) =>
                ranks.findIndex((rank) => i < chunkRange(length, size, rank).end)
              const total = expected((i) => owner(i) + 1)
              for (const algorithm of choices(kind, size, op === 'sum' ? inRingOrder : [])) {
                const { until, groups } = open(length + 1)
                const given = algorithm && { algorithm }
                const all = inputs.map((input) => input.slice())
                await until(
                  Promise.all(groups.map((group, r) => group.allReduce(all[r]!, { op, ...given }))),
                )
                for (const buffer of all)
                  expect(bits(buffer), `allReduce ${op} of ${length} by ${algorithm}`).toEqual(
                    bits(total),
                  )
                if (!has('reduceScatter', algorithm) || !has('reduce', algorithm)) continue
                const parts = inputs.map((input) => input.slice())
                await until(
                  Promise.all(
                    groups.map((group, r) => group.reduceScatter(parts[r]!, { op, ...given })),
                  ),
                )
                parts.forEach((buffer, rank) => {
                  const { start, end } = chunkRange(length, size, rank)
                  expect(bits(buffer.slice(start, end))).toEqual(bits(total.slice(start, end)))
                })
                const root = length % size
                const toRoot = inputs.map((input) => input.slice())
                await until(
                  Promise.all(
                    groups.map((group, r) => group.reduce(toRoot[r]!, root, { op, ...given })),
                  ),
                )
                expect(bits(toRoot[root]!), `reduce ${op} to ${root}`).toEqual(
                  bits(expected(() => root + 1)),
                )
              }
            }
        })

        test('broadcast, allGather, gather, scatter and allToAll', async () => {
          for (const length of lengthsFor(size)) {
            const root = (length + 1) % size
            const joined = (arrays: readonly ElementArray[]) => {
              const out = element.make(length * size)
              for (const [rank, array] of arrays.entries()) out.set(array, rank * length)
              return out
            }
            for (const algorithm of choices(kind, size, ofCopies)) {
              const { until, groups } = open(length + 2)
              const given = algorithm ? { algorithm } : {}
              const run = (call: (group: ProcessGroup, rank: number) => Promise<void>) =>
                until(Promise.all(groups.map(call)))

              const copies = fill(length, length + 3)
              const expected = copies[root]!.slice()
              await run((group, rank) => group.broadcast(copies[rank]!, root, given))
              for (const copy of copies) expect(bits(copy)).toEqual(bits(expected))

              const inputs = fill(length, length + 4)
              const all = joined(inputs)
              const gathered = inputs.map((input, rank) => {
                const buffer = element.make(length * size)
                buffer.set(input, rank * length)
                return buffer
              })
              await run((group, rank) => group.allGather(gathered[rank]!, given))
              for (const buffer of gathered) expect(bits(buffer)).toEqual(bits(all))
            }
            const { until, groups } = open(length + 5)
            const run = (call: (group: ProcessGroup, rank: number) => Promise<void>) =>
              until(Promise.all(groups.map(call)))
            const inputs = fill(length, length + 6)
            const all = joined(inputs)
            const atRoot = element.make(length * size)
            await run((group, rank) =>
              group.gather(inputs[rank]!, rank === root ? atRoot : undefined, root),
            )
            expect(bits(atRoot)).toEqual(bits(all))

            const outputs = inputs.map(() => element.make(length))
            await run((group, rank) =>
              group.scatter(rank === root ? all : undefined, outputs[rank]!, root),
            )
            for (const [rank, output] of outputs.entries())
              expect(bits(output)).toEqual(bits(inputs[rank]!))

            const tables = fill(length * size, length + 7)
            const turned = tables.map(() => element.make(length * size))
            await run((group, rank) => group.allToAll(tables[rank]!, turned[rank]!))
            for (const [rank, output] of turned.entries()) {
              const parts = tables.map((table) => table.slice(rank * length, (rank + 1) * length))
              expect(bits(output)).toEqual(bits(joined(parts)))
            }
          }
        })
      })
    })
  })
}
