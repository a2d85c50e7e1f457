import { expect, test } from 'vitest'
import { readSafetensors, writeSafetensors } from '../../../src/data/safetensors.ts'
import { loadModel } from '../../../src/ddp/checkpoint/model-file.ts'
import { compile } from '../../../src/graph/compile/compile.ts'
import { tensorType } from '../../../src/util/shape.ts'
import torch from '../../golden/trained-cnn.json'
import fileUrl from '../../golden/trained-cnn.safetensors?url'
import { batchOf, goldenEvaluation } from '../../support/formula-model.ts'
import { models } from '../../support/models.ts'
import { testRuntime } from '../../support/run-op.ts'

// `npm run train -- --model cnn --steps 30 --seed 7 --out tests/golden/trained-cnn.safetensors` made the file, and PyTorch's reading of it
// (check_safetensors.py) made the logits.

const file = new Uint8Array(await (await fetch(fileUrl)).arrayBuffer())

test('weights that were trained and saved here give the logits that PyTorch computes from the file', async () => {
  expect([...readSafetensors(file).tensors.keys()]).toEqual(torch.keys)
  const model = models.cnn.make()
  await loadModel(model, file)
  const { first, count } = goldenEvaluation
  const { x } = batchOf(first, count)
  const forward = await compile(
    (inputs) => ({ logits: model.forward(inputs.x) }),
    { x: tensorType([count, 1, 28, 28]) },
    { runtime: await testRuntime() },
  )
  const { logits } = await forward.run({ x })
  const expected = torch.logits.flat()
  const single = torch.logits32.flat()
  const distance = (got: ArrayLike<number>) =>
    Math.max(...expected.map((value, i) => Math.abs(got[i] - value)))
  expect(logits).toHaveLength(expected.length)
  expect(distance(logits)).toBeLessThanOrEqual(5 * distance(single))
  forward.destroy()
})

test('the writer still makes that file from those tensors', () => {
  const { tensors, metadata } = readSafetensors(file)
  const again = writeSafetensors([...tensors], metadata)
  expect(again).toEqual(file)
})
