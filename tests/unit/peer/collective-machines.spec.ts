import { describe, expect, test } from 'vitest'
import { chunkRange } from '../../../src/peer/algorithms/plan.ts'
import type { ProcessGroup } from '../../../src/peer/group/group.ts'
import { VirtualEnv } from '../../../src/util/virtual-env.ts'
import {
  bytes,
  drawnOnRanks,
  elements,
  layoutsOf,
  opsOf,
  reducedByMachines,
} from '../../support/collective-reference.ts'
import { memoryMesh } from '../../support/memory-mesh.ts'

// Hierarchical collectives of every element type, on 3 to 9 ranks of several machines, against what plain loops say.

/** The long one, a prime, in messages of 1 KB. */
const lengthsFor = (size: number) => [...new Set([0, 1, size - 1, size, size + 1, 997])]

describe.each([3, 4, 5, 6, 7, 8, 9])('%i ranks', (size) => {
  const ranks = Array.from({ length: size }, (_, rank) => rank)
  const types = Object.entries(elements).filter(([name]) => name === 'float32' || size <= 4)
  test.each(types)('%s', async (name, element) => {
    const layouts = layoutsOf(size)
    for (const [at, length] of lengthsFor(size).entries())
      for (const op of length > 100 ? (['sum'] as const) : opsOf(name)) {
        const machines = layouts[(at + size) % layouts.length]!
        const inputs = drawnOnRanks(element, size, length, 5 * length + size)
        const env = new VirtualEnv(length + 1)
        const edge = () => ({ delayMs: () => env.chance() * 9, maxMessageBytes: 1024 })
        const groups = memoryMesh(env, size, edge, { machines })
        const run = (call: (group: ProcessGroup, rank: number) => Promise<void>) =>
          env.until(Promise.all(groups.map(call)))
        const given = { op, algorithm: 'hierarchical' } as const
        const expected = (owner: (i: number) => number) => {
          const out = element.make(length)
          for (let i = 0; i < length; i++)
            out[i] = reducedByMachines(element, inputs, op, machines, owner(i), i)
          return out
        }
        const total = expected((i) =>
          ranks.findIndex((rank) => i < chunkRange(length, size, rank).end),
        )
        const where = `${op} of ${length} on machines ${machines}`

        const all = inputs.map((input) => input.slice())
        await run((group, rank) => group.allReduce(all[rank]!, given))
        for (const buffer of all) expect(bytes(buffer), where).toEqual(bytes(total))

        const parts = inputs.map((input) => input.slice())
        await run((group, rank) => group.reduceScatter(parts[rank]!, given))
        parts.forEach((buffer, rank) => {
          const { start, end } = chunkRange(length, size, rank)
          expect(bytes(buffer.slice(start, end)), where).toEqual(bytes(total.slice(start, end)))
        })
        // Each has its own chunk; the others' come.
        await run((group, rank) => group.allGather(parts[rank]!, { algorithm: 'hierarchical' }))
        for (const buffer of parts) expect(bytes(buffer), where).toEqual(bytes(total))

        const root = length % size
        const toRoot = inputs.map((input) => input.slice())
        await run((group, rank) => group.reduce(toRoot[rank]!, root, given))
        expect(bytes(toRoot[root]!), where).toEqual(bytes(expected(() => root)))
        const copies = inputs.map((input) => input.slice())
        await run((group, rank) =>
          group.broadcast(copies[rank]!, root, { algorithm: 'hierarchical' }),
        )
        for (const copy of copies) expect(bytes(copy), where).toEqual(bytes(inputs[root]!))
      }
  })
})
