import { expect } from 'vitest'
import { compile } from '../../src/graph/compile/compile.ts'
import { gather } from '../../src/graph/functions/index-ops.ts'
import { crossEntropy } from '../../src/graph/functions/losses.ts'
import { ones } from '../../src/graph/functions/shape.ts'
import type { AnyRuntime } from '../../src/graph/memory/runtime.ts'
import type { Tensor } from '../../src/graph/trace/tensor.ts'
import { Tanh } from '../../src/nn/activations.ts'
import { Conv2d } from '../../src/nn/convolution.ts'
import { Flatten, Linear } from '../../src/nn/layers.ts'
import { Sequential } from '../../src/nn/module.ts'
import { AvgPool2d } from '../../src/nn/pooling.ts'
import { countElements, tensorType } from '../../src/util/shape.ts'
import golden from '../golden/input-gradients.json'
import { formulaUniform } from './formula-data.ts'
import { allowedDistance, type GoldenResult, largestDistance, valuesOf } from './golden.ts'

const { images, labels, epsilon, weights } = golden
const inputs = {
  x: formulaUniform(images.seed, countElements(images.shape), 1),
  y: Int32Array.from(labels),
}
const types = { x: tensorType(images.shape), y: tensorType([labels.length], 'i32') }

function cnn() {
  const below = new Sequential(new Conv2d(1, 4, 3, { padding: 1 }), new Tanh())
  const above = new Sequential(new AvgPool2d(2), new Flatten(), new Linear(64, 5))
  const parameters = [...below.parameters(), ...above.parameters()]
  weights.forEach(({ seed, bound }, i) => {
    parameters[i].assign(formulaUniform(seed, parameters[i].count, bound))
  })
  const forward = (x: Tensor) => above.forward(below.forward(x))
  return { below, above, forward, parameters }
}

function hold(key: keyof typeof golden.outputs, got: ArrayLike<number>): void {
  const result = golden.outputs[key] as GoldenResult
  const expected = valuesOf(result)
  expect(largestDistance(got, expected), key).toBeLessThanOrEqual(
    allowedDistance(result.distance, expected),
  )
}

/** The magnitude of a score's gradient by each pixel, and the gradient by a hidden layer (Grad-CAM's), of an input that asks for one. */
export async function checkSaliency(runtime: AnyRuntime): Promise<void> {
  const { below, above } = cnn()
  const program = await compile(
    ({ x, y }) => {
      x.requiresGrad_()
      const hidden = below.forward(x)
      hidden.retainGrad()
      gather(above.forward(hidden), 1, y.unsqueeze(1)).sum().backward()
      return { saliency: x.grad!.abs(), hidden: hidden.grad! }
    },
    types,
    { runtime },
  )
  const { saliency, hidden } = await program.run(inputs)
  hold('saliency', saliency)
  hold('hidden', hidden)
  program.destroy()
}

/** One step of adversarial training: inputs moved along the sign of their gradient, then the parameters' gradients on those. */
export async function checkAdversarial(runtime: AnyRuntime): Promise<void> {
  const { forward, parameters } = cnn()
  const program = await compile(
    ({ x, y }) => {
      const loss = crossEntropy(forward(x.requiresGrad_()), y)
      loss.backward()
      const adversarial = x.add(x.grad!.sign().mul(epsilon)).detach()
      for (const parameter of parameters) parameter.grad = undefined
      const second = crossEntropy(forward(adversarial), y)
      second.backward()
      const gradients = parameters.map((parameter, i) => [`d:${weights[i].key}`, parameter.grad!])
      return { loss, adversarial, second, ...Object.fromEntries(gradients) }
    },
    types,
    { runtime },
  )
  const outputs = await program.run(inputs)
  expect(Object.keys(outputs)).toHaveLength(7)
  for (const [key, values] of Object.entries(outputs)) {
    hold(key as keyof typeof golden.outputs, values)
  }
  program.destroy()
}

/** A gradient is a constant for what comes after it, several backwards add up, and a run's weight leaves it as it is. */
export async function checkAdded(runtime: AnyRuntime): Promise<void> {
  const program = await compile(
    ({ x }) => {
      x.requiresGrad_()
      x.mul(x).mul(x).mul(ones(images.shape)).sum().backward()
      x.grad!.mul(x).sum().backward()
      return { added: x.grad! }
    },
    { x: types.x },
    { runtime },
  )
  hold('added', (await program.run({ x: inputs.x })).added)
  const weighted = await program.run({ x: inputs.x }, { gradientWeight: 0.25 })
  hold('added', weighted.added)
  program.destroy()
}
