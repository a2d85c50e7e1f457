import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { expect } from 'vitest'
import { receivedByRank, start, write } from './launcher-folder.ts'

/** Line that a rank of fixtures/split-rank.ts prints. */
export interface SplitReport {
  /** Keys of its state dict, and of the unsplit model's. */
  readonly keys: string[]
  readonly allKeys: string[]
  /** Those that have other bits than the unsplit model's. */
  readonly differing: string[]
  readonly losses: number[]
  readonly expected: number[]
  /** Of parameters that this rank holds, and of all. */
  readonly elements: number
  readonly allElements: number
  readonly sentBytes: number
  /** Of all buffers that training left on this rank's device, and of those of its program; and of the unsplit model's. */
  readonly heldBytes: number
  readonly stepBytes: number
  readonly allHeldBytes: number
}

/** Trains a model that is split over tabs in one way, and the same model unsplit; returns each rank's report. */
export async function trainedSplit(way: string, tabs: number): Promise<SplitReport[]> {
  const program = join(import.meta.dirname, '../e2e/fixtures/split-rank.ts')
  await write('split.ts', await readFile(program, 'utf8'))
  const run = start('run', ['--nproc-per-node', String(tabs), 'split.ts', way])
  expect(await run.ended, run.received.stderr).toBe(0)
  return receivedByRank(run.received.stdout) as unknown as SplitReport[]
}

/** Trains a GPT in one way over tabs, each of which may hold `cap` bytes; returns the exit code, the losses by rank and what the run prints. */
export async function trainedCapped(way: string, tabs: number, cap?: string) {
  const program = join(import.meta.dirname, '../e2e/fixtures/capped-rank.ts')
  await write('capped.ts', await readFile(program, 'utf8'))
  const capped = cap === undefined ? [] : ['--memory-cap', cap]
  const run = start('run', ['--nproc-per-node', String(tabs), ...capped, 'capped.ts', way])
  const code = await run.ended
  const losses = (receivedByRank(run.received.stdout) as unknown as { losses: number[] }[]).map(
    (received) => received.losses,
  )
  return { code, losses, stderr: run.received.stderr }
}

/** A rank holds its parameters, their gradients and momentum, and its program: nothing of what others have. */
export function expectOwnBytes({
  elements,
  heldBytes,
  stepBytes,
  allHeldBytes,
}: SplitReport): void {
  const ownBytes = 3 * 4 * elements + stepBytes
  expect(heldBytes).toBeGreaterThanOrEqual(ownBytes - stepBytes)
  // Buckets end on a boundary of 256 bytes, each of them three times.
  expect(heldBytes).toBeLessThan(ownBytes + 16 * 1024)
  expect(heldBytes).toBeLessThan(allHeldBytes)
}

/** The two ranks of a model that is split by its layers together have the parameters, losses and bits of one. */
export async function endsAsOne(way: 'model' | 'pipeline'): Promise<void> {
  const ranks = await trainedSplit(way, 2)
  expect(ranks.map(({ differing }) => differing)).toEqual([[], []])
  const [zero, one] = ranks
  for (const { keys, allKeys } of ranks) expect(keys).toEqual(allKeys)
  // The loss is where the last layers are.
  expect(zero.losses).toEqual([])
  expect(one.losses).toEqual(one.expected)
  expect(one.losses).toHaveLength(4)
  expect(zero.elements + one.elements).toBe(zero.allElements)
  for (const { elements } of ranks) expect(elements).toBeGreaterThan(0)
  for (const { sentBytes } of ranks) expect(sentBytes).toBeGreaterThan(0)
  for (const rank of ranks) expectOwnBytes(rank)
}
