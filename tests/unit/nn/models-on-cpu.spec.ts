import { expect, test } from 'vitest'
import { compile } from '../../../src/graph/compile/compile.ts'
import { crossEntropy } from '../../../src/graph/functions/linear.ts'
import type { Tensor } from '../../../src/graph/trace/tensor.ts'
import { charRnn } from '../../../src/nn/char-rnn.ts'
import { gpt } from '../../../src/nn/gpt.ts'
import { manualSeed } from '../../../src/nn/init.ts'
import type { Module } from '../../../src/nn/module.ts'
import { resnet18 } from '../../../src/nn/resnet.ts'
import { AdamW } from '../../../src/optim/adam.ts'
import { uniform } from '../../../src/util/random.ts'
import { type TensorType, tensorType } from '../../../src/util/shape.ts'

// The large models train on the cpu too, where every op is its plain reference.

const classes = 5
const labels = (count: number, stream: number) =>
  Int32Array.from(uniform(3, stream, count, 0, classes), Math.floor)

/** A model with a batch that it can learn by heart; logits come as [rows, classes]. */
interface Trained {
  make(): Module & { forward(x: Tensor): Tensor }
  readonly x: TensorType
  readonly batch: {
    x: Float32Array<ArrayBuffer> | Int32Array<ArrayBuffer>
    y: Int32Array<ArrayBuffer>
  }
  readonly lr: number
  readonly steps: number
}

const [sequences, length] = [2, 6]
const text = { x: labels(sequences * length, 0), y: labels(sequences * length, 1) }
const tokens = tensorType([sequences, length], 'i32')

const models: Record<string, Trained> = {
  gpt: {
    make: () => gpt({ vocabSize: classes, blockSize: length, layers: 2, heads: 2, width: 8 }),
    x: tokens,
    batch: text,
    lr: 0.02,
    steps: 12,
  },
  charRnn: {
    make: () => charRnn(classes, { embeddingSize: 6, hiddenSize: 8, numLayers: 2 }),
    x: tokens,
    batch: text,
    lr: 0.03,
    steps: 12,
  },
  resnet18: {
    make: () => resnet18({ numClasses: classes, smallInputs: true, width: 4 }),
    x: tensorType([4, 3, 8, 8]),
    batch: { x: uniform(5, 0, 4 * 3 * 8 * 8, -1, 1), y: labels(4, 2) },
    lr: 0.01,
    steps: 4,
  },
}

test.each(Object.entries(models))(
  '%s learns a batch',
  async (_name, { make, x, batch, lr, steps }) => {
    manualSeed(1)
    const model = make()
    const optimizer = new AdamW(model.parameters(), { lr })
    const rows = batch.y.length
    const program = await compile(
      (inputs) => {
        const loss = crossEntropy(model.forward(inputs.x).reshape([rows, classes]), inputs.y)
        optimizer.zeroGrad()
        loss.backward()
        optimizer.step()
        return { loss }
      },
      { x, y: tensorType([rows], 'i32') },
      { device: 'reference' },
    )
    const losses: number[] = []
    for (let step = 0; step < steps; step++) losses.push((await program.run(batch)).loss[0])
    expect(losses.every(Number.isFinite), losses.join(', ')).toBe(true)
    // Nobody knows the labels at first.
    expect(losses[0]).toBeGreaterThan(1)
    expect(losses[steps - 1], losses.join(', ')).toBeLessThan(0.8 * losses[0])
    for (const parameter of model.parameters())
      expect((await parameter.read()).every(Number.isFinite)).toBe(true)
    program.destroy()
  },
)
