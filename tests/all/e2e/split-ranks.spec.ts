import { expect, test } from 'vitest'
import { useLauncherFolder } from '../../support/launcher-folder.ts'
import {
  endsAsOne,
  expectOwnBytes,
  trainedCapped,
  trainedSplit,
} from '../../support/split-ranks.ts'

/** Models that are split over tabs, joined by WebRTC: `tabring run` on a user's program. */

useLauncherFolder()

test('a pipeline over two tabs ends with the bits of one', () => endsAsOne('pipeline'))

test('parameters sharded over two tabs end with the bits of DistributedDataParallel', async () => {
  const ranks = await trainedSplit('sharded', 2)
  for (const { differing, keys, allKeys, losses, elements, allElements } of ranks) {
    expect(differing).toEqual([])
    expect(keys).toEqual(allKeys)
    expect(losses).toHaveLength(4)
    expect(elements / allElements).toBeCloseTo(0.5, 1)
  }
  for (const rank of ranks) expectOwnBytes(rank)
})

test('layers on two tabs end with the bits of one', () => endsAsOne('model'))

test('layers divided over two tabs train as undivided ones do', async () => {
  const ranks = await trainedSplit('tensor', 2)
  for (const { keys, allKeys, losses, expected, elements, allElements } of ranks) {
    expect(keys).toEqual(allKeys)
    expect(losses).toEqual(ranks[0].losses)
    for (const [i, loss] of losses.entries()) expect(loss).toBeCloseTo(expected[i], 5)
    expect(elements).toBeLessThan(0.75 * allElements)
  }
})

test('two pipelines over four tabs end with the bits of two tabs with the whole model each', async () => {
  const ranks = await trainedSplit('grid', 4)
  expect(ranks.map(({ differing }) => differing)).toEqual([[], [], [], []])
  expect(ranks.map(({ losses }) => losses.length)).toEqual([0, 4, 0, 4])
  for (const { losses, expected } of [ranks[1], ranks[3]]) expect(losses).toEqual(expected)
  expect(ranks[1].losses).not.toEqual(ranks[3].losses)
  const [first, last, ...others] = ranks.map(({ elements }) => elements)
  expect(others).toEqual([first, last])
  expect(first + last).toBe(ranks[0].allElements)
})

test('a model over the memory cap of a tab trains in two stages, and sharded over four', async () => {
  const cap = '4MB'
  const refused = await trainedCapped('whole', 1, cap)
  expect(refused.code).toBe(1)
  expect(refused.stderr).toMatch(
    /device: ".+ of bucket 0: .*" needs [\d.]+MB, and [\d.]+MB of the memory cap of 4MB are taken\. Split the model over more ranks \(pipeline or fullyShard; in the built-in training --parallel pp=2 or fsdp\), use a smaller batch, free models and programs that are no longer used with destroy\(\), or raise memoryCap\./,
  )
  const whole = await trainedCapped('whole', 1)
  expect(whole.code, whole.stderr).toBe(0)
  const [expected] = whole.losses
  expect(expected).toHaveLength(4)
  const staged = await trainedCapped('pipeline', 2, cap)
  expect(staged.code, staged.stderr).toBe(0)
  const sharded = await trainedCapped('sharded', 4, cap)
  expect(sharded.code, sharded.stderr).toBe(0)
  for (const [i, loss] of expected.entries()) {
    expect(Math.abs(staged.losses[1][i] - loss)).toBeLessThan(1e-4)
    const mean = sharded.losses.reduce((sum, own) => sum + own[i] / 4, 0)
    expect(Math.abs(mean - loss)).toBeLessThan(1e-4)
  }
})
