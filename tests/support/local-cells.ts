import { expect, test } from 'vitest'
import { createProcessGroup } from '../../src/distributed/group/process-group.ts'
import { HashStore } from '../../src/peer/store/hash-store.ts'
import { cells, runCells } from './collective-cells.ts'

/** The row of docs/reference/backends.md for ranks of one context, over real message channels; tests/e2e has the others. */
export const localCells = (sizes: readonly number[]): void =>
  test.each(sizes)(
    'every function on %i ranks of one context gives what plain loops give',
    { timeout: 120_000 },
    async (size) => {
      const store = new HashStore()
      const ranks = Array.from({ length: size }, (_, rank) => rank)
      const groups = await Promise.all(
        ranks.map((rank) => createProcessGroup({ backend: 'local', store, rank, worldSize: size })),
      )
      const ran = await Promise.all(groups.map((group) => runCells(group)))
      for (const done of ran) expect(done).toEqual(cells)
      for (const group of groups) {
        const kinds = [...group.stats().links.values()].map(({ kind }) => kind)
        expect(kinds).toEqual(Array.from({ length: size - 1 }, () => 'port'))
      }
      await Promise.all(groups.map((group) => group.leave()))
    },
  )
