import { once } from 'node:events'
import { expect } from 'vitest'
import type { TrainFolder } from './train-folder.ts'

/** The last line of `npm run train -- --json`. */
export interface Done {
  worldSize: number
  linksPerRank: string[][]
  steps: number
  loss: number
  trainValue: number
  testAccuracy: number
  paramHashes: string[]
  bytesSentPerRank: number[]
  samplesPerRank: number[]
}

/** Runs to the end with `--json`; returns the losses by step and the last line. */
export async function trainWithJson(
  folder: TrainFolder,
  ...argv: string[]
): Promise<{ losses: number[]; done: Done }> {
  const { child, received } = folder.start({}, '--json', '--adapter', 'software', ...argv)
  const [code] = await once(child, 'close')
  expect(code, received.stderr).toBe(0)
  const lines = received.stdout
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line))
  const steps = lines.filter(({ event }) => event === 'step')
  expect(steps.map(({ step }) => step)).toEqual(steps.map((_, i) => i + 1))
  const done = lines[lines.length - 1]
  expect(done).toMatchObject({ event: 'done', steps: steps.length })
  expect(new Set(done.paramHashes).size).toBe(1)
  return { losses: steps.map(({ loss }) => loss), done }
}

/** Bytes of the digits MLP's parameters. */
export const mlpBytes = 4 * (784 * 256 + 256 + 256 * 10 + 10)
