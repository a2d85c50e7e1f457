import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { expect } from 'vitest'
import { start, toldByRank, write } from './launcher-folder.ts'

/** What a rank of fixtures/split-rank.ts tells. */
export interface ToldSplit {
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

/** Trains a model that is split over tabs in one way, and the same model unsplit; returns what each rank tells. */
export async function trainedSplit(way: string, tabs: number): Promise<ToldSplit[]> {
  const program = join(import.meta.dirname, '../e2e/fixtures/split-rank.ts')
  await write('split.ts', await readFile(program, 'utf8'))
  const run = start('run', ['--nproc-per-node', String(tabs), 'split.ts', way])
  expect(await run.ended, run.told.stderr).toBe(0)
  return toldByRank(run.told.stdout) as unknown as ToldSplit[]
}

/** Trains a GPT in one way over tabs, each of which may hold `cap` bytes; returns the exit code, the losses by rank and what the run tells. */
export async function trainedCapped(way: string, tabs: number, cap?: string) {
  const program = join(import.meta.dirname, '../e2e/fixtures/capped-rank.ts')
  await write('capped.ts', await readFile(program, 'utf8'))
  const capped = cap === undefined ? [] : ['--memory-cap', cap]
  const run = start('run', ['--nproc-per-node', String(tabs), ...capped, 'capped.ts', way])
  const code = await run.ended
  const losses = (toldByRank(run.told.stdout) as unknown as { losses: number[] }[]).map(
    (told) => told.losses,
  )
  return { code, losses, stderr: run.told.stderr }
}
