import { flops } from '../src/measure/product.ts'
import { messageOf } from '../src/util/errors.ts'
import { isCube, matmulTasks, needsGpu } from './compute/task.ts'
import { type ComputePage, type Note, oneLine, peerNames, webgpuPeers } from './compute.ts'
import { failedRow, type PairOptions, type Place, pairRow, type Row } from './row.ts'

/** What our speed is to be of jax-js's at cubes, on the software adapter. */
const cubeGoal = 1.3

/** Products alone, ours beside each peer. */
export async function matmulRows(
  { page }: ComputePage,
  place: Place,
  rounds: number,
  note: Note,
): Promise<Row[]> {
  const rows: Row[] = []
  for (const [index, task] of matmulTasks.entries()) {
    if (place.software && needsGpu(task)) continue
    note(`${task.name}, ${rounds} rounds`)
    const options = (key: (typeof webgpuPeers)[number], variant?: string): PairOptions => ({
      row: task.name,
      peer: peerNames[key],
      goal: key === 'jax' && isCube(task) ? cubeGoal : undefined,
      unit: 'GFLOP/s',
      better: 'higher',
      extra: { variant, flops: flops(task) },
    })
    try {
      const { rounds: results, variant } = await page.evaluate(
        ([given, count]) => window.bench.matmulRounds(given, count),
        [index, rounds] as const,
      )
      const ours = results.tabring
      for (const key of webgpuPeers) {
        const theirs = results[key]
        if (Array.isArray(ours) && Array.isArray(theirs)) {
          rows.push(pairRow(options(key, variant), place, ours, theirs))
          continue
        }
        const failures = { Tabring: ours, [peerNames[key]]: theirs }
        const error = Object.entries(failures)
          .map(([who, one]) => (Array.isArray(one) ? '' : `${who}: ${one.error}`))
          .join(' ')
        const measured = Array.isArray(ours) ? ours : []
        rows.push(failedRow(options(key, variant), place, oneLine(error), measured))
      }
    } catch (thrown) {
      for (const key of webgpuPeers)
        rows.push(failedRow(options(key), place, oneLine(messageOf(thrown))))
    }
  }
  return rows
}
