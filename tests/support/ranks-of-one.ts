import { createProcessGroup } from '../../src/distributed/group/process-group.ts'
import type { ProcessGroup } from '../../src/peer/group/group.ts'
import { HashStore } from '../../src/peer/store/hash-store.ts'

/** Runs `work` on ranks of this process that share a group, over real message channels. */
export async function onRanks<T>(
  size: number,
  work: (group: ProcessGroup) => Promise<T>,
): Promise<PromiseSettledResult<T>[]> {
  const store = new HashStore()
  const groups = await Promise.all(
    Array.from({ length: size }, (_, rank) =>
      createProcessGroup({ backend: 'local', store, rank, worldSize: size }),
    ),
  )
  const ended = await Promise.allSettled(groups.map(work))
  await Promise.all(groups.map((group) => group.leave()))
  return ended
}

export const resultOf = <T>(one: PromiseSettledResult<T>): T => {
  if (one.status === 'rejected') throw one.reason
  return one.value
}
