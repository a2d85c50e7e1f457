import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { start, toldByRank, useLauncherFolder, write } from '../support/launcher-folder.ts'

/** Models that are split over two tabs, joined by WebRTC: `tabring run` on a user's program. */

useLauncherFolder()

interface Told {
  readonly keys: string[]
  readonly allKeys: string[]
  readonly differing: string[]
  readonly losses: number[]
  readonly expected: number[]
  readonly elements: number
  readonly allElements: number
  readonly sentBytes: number
}

async function trained(way: string): Promise<Told[]> {
  await write(
    'split.ts',
    await readFile(join(import.meta.dirname, 'fixtures/split-rank.ts'), 'utf8'),
  )
  const run = start('run', ['--nproc-per-node', '2', 'split.ts', way])
  expect(await run.ended, run.told.stderr).toBe(0)
  return toldByRank(run.told.stdout) as unknown as Told[]
}

test.each(['model', 'pipeline'])(
  '%s parallel over two tabs ends with the bits of one',
  async (way) => {
    const ranks = await trained(way)
    expect(ranks.map(({ differing }) => differing)).toEqual([[], []])
    const [zero, one] = ranks
    expect([...zero.keys, ...one.keys].sort()).toEqual([...zero.allKeys].sort())
    expect(zero.keys.length).toBeGreaterThan(0)
    expect(one.keys.length).toBeGreaterThan(0)
    // The loss is where the last layers are.
    expect(zero.losses).toEqual([])
    expect(one.losses).toEqual(one.expected)
    expect(one.losses).toHaveLength(4)
    expect(zero.elements + one.elements).toBe(zero.allElements)
    for (const { sentBytes } of ranks) expect(sentBytes).toBeGreaterThan(0)
  },
)

test('parameters sharded over two tabs end with the bits of DistributedDataParallel', async () => {
  const ranks = await trained('sharded')
  for (const { differing, keys, allKeys, losses, elements, allElements } of ranks) {
    expect(differing).toEqual([])
    expect(keys).toEqual(allKeys)
    expect(losses).toHaveLength(4)
    expect(elements / allElements).toBeCloseTo(0.5, 1)
  }
})
