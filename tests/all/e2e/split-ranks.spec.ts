import { expect, test } from 'vitest'
import { useLauncherFolder } from '../../support/launcher-folder.ts'
import { trainedSplit } from '../../support/split-ranks.ts'

useLauncherFolder()

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
