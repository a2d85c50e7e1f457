import { expect, test } from 'vitest'
import { ReferenceRuntime } from '../../../../src/graph/memory/runtime.ts'
import type { TrainConfigInput } from '../../../../src/trainer/settings/config.ts'
import { startTask, type TaskRank } from '../../../support/task-ranks.ts'

/** Samples of the boundary along each edge. */
const side = 65

/** Shares of the training points that a rank's boundary has right: in its own sector, and in the others'. */
async function rightShares({ trainer }: TaskRank): Promise<{ own: number; others: number }> {
  const boundary = await trainer.query('boundary', { side })
  const points = await trainer.query('points', null)
  const probabilities = boundary.probabilities as Float32Array
  const at = points.train as Float32Array
  const classes = points.trainClasses as Int32Array
  const isOwn = (i: number) => i >= Number(points.start) && i < Number(points.end)
  const nearest = (coordinate: number) => Math.round(((coordinate + 1) / 2) * (side - 1))
  const shareOf = (isCounted: (i: number) => boolean) => {
    const counted = [...classes.keys()].filter(isCounted)
    const right = counted.filter((i) => {
      const p = probabilities[nearest(at[2 * i + 1]) * side + nearest(at[2 * i])]
      return p > 0.5 === (classes[i] === 1)
    })
    return right.length / counted.length
  }
  return { own: shareOf(isOwn), others: shareOf((i) => !isOwn(i)) }
}

async function threeRanks(input: TrainConfigInput) {
  const config = { demo: 'playground', partition: 'own-slice', bucketCapMb: 1, ...input } as const
  const { ranks, close } = await startTask(
    3,
    { ...config, evaluateEvery: config.steps },
    () => new ReferenceRuntime(),
  )
  await Promise.all(ranks.map(({ end }) => end))
  const shares = await Promise.all(ranks.map(rightShares))
  close()
  return shares
}

test.each([
  { data: 'spiral', steps: 500 },
  { data: 'circles', steps: 150 },
  { data: 'xor', steps: 60 },
  { data: 'moons', steps: 60 },
])(
  '$data: without an exchange each rank has its sector right, and much of the others wrong',
  async (shape) => {
    const alone = await threeRanks({ ...shape, strategy: 'alone' })
    for (const { own, others } of alone) {
      expect(own).toBeGreaterThan(0.95)
      expect(others).toBeLessThan(0.8)
    }
  },
  60_000,
)

test('with the exchange each rank has all sectors right', async () => {
  for (const { own, others } of await threeRanks({ data: 'xor', steps: 60 })) {
    expect(own).toBeGreaterThan(0.95)
    expect(others).toBeGreaterThan(0.95)
  }
}, 60_000)
