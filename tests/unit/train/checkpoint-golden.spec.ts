import { readFileSync } from 'node:fs'
import { expect, test } from 'vitest'
import { unpackCheckpoint } from '../../../src/ddp/checkpoint/checkpoint-file.ts'
import { getRngState } from '../../../src/nn/init.ts'
import torch from '../../golden/checkpoint.json' with { type: 'json' }
import {
  allowedDistance,
  type GoldenResult,
  largestDistance,
  valuesOf,
} from '../../support/golden.ts'
import { batch, goldenParts, makeGoldenCheckpoint } from '../../support/golden-checkpoint.ts'

// PyTorch has read the file into its own model, optimizer and scheduler (checkpoint.py) and made the next step.

const file = new Uint8Array(
  readFileSync(new URL('../../golden/checkpoint.safetensors', import.meta.url)),
)

test('the file is still what a run here saves', async () => {
  expect(Buffer.compare(await makeGoldenCheckpoint(), file)).toBe(0)
})

test('a run that loads it makes the step that PyTorch makes of it', async () => {
  const { parts, train } = goldenParts()
  const { step, epoch, bestAccuracy, next } = await unpackCheckpoint(file, parts)
  expect({ step, epoch, bestAccuracy, next }).toEqual({
    step: torch.step,
    epoch: 1,
    bestAccuracy: 0.5,
    next: batch(torch.step),
  })
  expect(getRngState().seed).toBe(7)
  const before = await parts.model.stateDict()
  expect(Object.keys(before).sort()).toEqual(torch.keys)

  const loss = await train(torch.step, torch.step + 1)
  const got = new Map<string, ArrayLike<number>>([['loss', [loss]]])
  for (const [key, { data }] of Object.entries(await parts.model.stateDict())) {
    got.set(`model.${key}`, data)
  }
  const { state } = await parts.optimizer.stateDict()
  for (const [index, entry] of Object.entries(state)) {
    for (const [name, value] of Object.entries(entry)) {
      got.set(
        `optimizer.${index}.${name}`,
        value !== null && typeof value === 'object' ? value.data : [Number(value)],
      )
    }
  }
  const results = Object.entries(torch.results as Record<string, GoldenResult>)
  expect([...got.keys()].sort()).toEqual(results.map(([name]) => name).sort())
  for (const [name, result] of results) {
    const expected = valuesOf(result)
    expect(largestDistance(got.get(name)!, expected), name).toBeLessThanOrEqual(
      allowedDistance(result.distance, expected),
    )
  }
  expect(parts.optimizer.paramGroups.map(({ lr }) => lr)).toEqual(torch.rates)
  // The step has changed what PyTorch's step has changed.
  expect(got.get('model.0.weight')).not.toEqual(before['0.weight'].data)
})
