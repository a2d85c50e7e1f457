import { expect } from 'vitest'
import { compile } from '../../src/graph/compile/compile.ts'
import type { AnyRuntime } from '../../src/graph/memory/runtime.ts'
import { Parameter } from '../../src/graph/trace/parameter.ts'
import type { Tensor } from '../../src/graph/trace/tensor.ts'
import { Module } from '../../src/nn/module.ts'
import { clipGradNorm } from '../../src/optim/clip.ts'
import { SGD } from '../../src/optim/sgd.ts'
import golden from '../golden/clip-norms.json'
import {
  allowedDistance,
  type GoldenResult,
  type GoldenTensor,
  largestDistance,
  valuesOf,
} from './golden.ts'

interface NormCase {
  readonly normType: string
  readonly most: number
  readonly inputs: GoldenTensor[]
  readonly norm: GoldenResult
  readonly clipped: GoldenResult[]
}

const normTypes: Record<string, number> = { '-inf': Number.NEGATIVE_INFINITY }

/** The cases of clip-norms.json by the norm's name. */
export const normCases = (golden.cases as NormCase[]).map((one) => [one.normType, one] as const)

class Zeros extends Module {
  readonly all: Parameter[]
  constructor(shapes: readonly number[][]) {
    super()
    this.all = shapes.map((shape) => {
      const count = shape.reduce((product, size) => product * size, 1)
      return new Parameter(shape, new Float32Array(count))
    })
    Object.assign(this, this.all)
  }
  forward(x: Tensor): Tensor {
    return x
  }
}

/** Parameters of zeros whose gradients are the case's inputs, after a step of SGD at 1: minus the clipped gradients. */
export async function checkClippedNorm(
  { normType, most, inputs, norm, clipped }: NormCase,
  runtime: AnyRuntime,
  wrap: (model: Module) => void = () => undefined,
): Promise<void> {
  const model = new Zeros(inputs.map(({ shape }) => shape))
  wrap(model)
  const optimizer = new SGD(
    model.all.map((one) => ({ params: [one] })),
    { lr: 1 },
  )
  const types = Object.fromEntries(
    inputs.map(({ shape }, i) => [`g${i}`, { shape, dtype: 'f32' as const }]),
  )
  const program = await compile(
    (given) => {
      const losses = model.all.map((one, i) => one.mul(given[`g${i}`]).sum())
      losses.reduce((sum, loss) => sum.add(loss)).backward()
      const total = clipGradNorm(model.all, most, {
        normType: normTypes[normType] ?? Number(normType),
      })
      optimizer.step()
      return { total }
    },
    types,
    { runtime },
  )
  const given = inputs.map((input, i) => [`g${i}`, Float32Array.from(valuesOf(input))])
  const { total } = await program.run(Object.fromEntries(given))
  const results = [total, ...(await Promise.all(model.all.map((one) => one.read())))]
  for (const [i, wanted] of [norm, ...clipped].entries()) {
    const expected = valuesOf(wanted).map((value) => (i === 0 ? value : -value))
    const far = largestDistance(results[i] as Float32Array, expected)
    expect(far, `tensor ${i}`).toBeLessThanOrEqual(allowedDistance(wanted.distance, expected))
  }
  program.destroy()
}
