import { expect, test } from 'vitest'
import { autocast } from '../../../src/entries/amp.ts'
import { compile } from '../../../src/graph/compile/compile.ts'
import { batchNorm } from '../../../src/graph/functions/batch-norm.ts'
import { conv2d } from '../../../src/graph/functions/convolution.ts'
import { linear } from '../../../src/graph/functions/linear.ts'
import { mseLoss } from '../../../src/graph/functions/losses.ts'
import { groupNorm } from '../../../src/graph/functions/normalization.ts'
import { adaptiveAvgPool2d, avgPool2d, maxPool2d } from '../../../src/graph/functions/pooling.ts'
import { ReferenceRuntime } from '../../../src/graph/memory/runtime.ts'
import type { Outputs } from '../../../src/graph/plan/prepare.ts'
import { ModuleBuffer } from '../../../src/graph/trace/module-buffer.ts'
import { Parameter } from '../../../src/graph/trace/parameter.ts'
import type { Tensor } from '../../../src/graph/trace/tensor.ts'
import { countElements, tensorType } from '../../../src/util/shape.ts'
import golden from '../../golden/amp-layers.json'
import { formulaUniform } from '../../support/formula-data.ts'
import { allowedDistance, largestDistance } from '../../support/golden.ts'
import { testRuntime } from '../../support/run-op.ts'

const { shapes } = golden
const names = Object.keys(shapes) as (keyof typeof shapes)[]

/** The numbers of tests/golden/amp_layers.py. */
function drawn(name: keyof typeof shapes): Float32Array<ArrayBuffer> {
  const shape = shapes[name]
  const bound = shape.length === 1 || 'xy'.includes(name) ? 1 : 0.5
  const values = formulaUniform(golden.seed + names.indexOf(name), countElements(shape), bound)
  return name[0] === 'g' && name !== 'gb' ? values.map((value) => 1 + value / 2) : values
}

const filled = (count: number, value: number) =>
  new ModuleBuffer([count], new Float32Array(count).fill(value))

const statistics = () => ({
  mean: filled(6, 0),
  variance: filled(6, 1),
  batches: new ModuleBuffer([], Int32Array.of(0)),
})

test.each(['GPU', 'GPU, naive', 'reference'])(
  "normalization and pooling under autocast follow PyTorch's float16 roundings, on the %s",
  async (where) => {
    const runtime = where === 'reference' ? new ReferenceRuntime() : await testRuntime()
    const parameters = Object.fromEntries(
      names.map((name) => [name, new Parameter(shapes[name], drawn(name))]),
    )
    const { x, w1, g1, b1, w2, g2, b2, gg, gb, w3, g3, b3, w4, b4 } = parameters
    const [first, second] = [statistics(), statistics()]
    const fixed = {
      mean: filled(5, 0.125),
      variance: filled(5, 0.75),
      batches: new ModuleBuffer([], Int32Array.of(1)),
    }
    const dtypes: string[] = []
    const seen = (value: Tensor): Tensor => {
      dtypes.push(value.dtype)
      return value
    }
    const program = await compile(
      ({ y }): Outputs => {
        dtypes.length = 0
        const loss = autocast({}, () => {
          const inner = conv2d(x, w1, undefined, { padding: 1 })
          const h1 = seen(batchNorm(inner, g1, b1, { training: true, running: first })).relu()
          const pooled = seen(maxPool2d(h1, 3, { stride: 2, padding: 1 }))
          const outer = conv2d(pooled, w2, undefined, { padding: 1 })
          const h2 = seen(batchNorm(outer, g2, b2, { training: true, running: second }))
          const h3 = seen(avgPool2d(seen(h2.add(pooled)).relu(), 2, { stride: 1 }))
          const h4 = seen(groupNorm(h3, 3, gg, gb))
          const h5 = seen(batchNorm(conv2d(h4, w3), g3, b3, { running: fixed }))
          const h6 = seen(adaptiveAvgPool2d(h5, 1))
          return mseLoss(linear(h6.reshape([4, 5]), w4, b4), y)
        })
        loss.mul(golden.scale).backward()
        const gradients = names.filter((name) => name !== 'y')
        return {
          loss,
          ...Object.fromEntries(gradients.map((name) => [`d${name}`, parameters[name].grad!])),
        }
      },
      { y: tensorType(shapes.y) },
      { runtime, useNaiveKernels: where === 'GPU, naive' },
    )
    expect(dtypes).toEqual(['f16', 'f16', 'f16', 'f16', 'f16', 'f32', 'f16', 'f16'])
    const inputs = { y: drawn('y') }
    const outputs = await program.run(inputs)
    const moved = async ({ mean, variance }: typeof first) =>
      Float32Array.of(...(await mean.read()), ...(await variance.read()))
    const kept: Record<string, Float32Array> = {
      running1: await moved(first),
      running2: await moved(second),
    }
    for (const [name, { values, distance }] of Object.entries(golden.results)) {
      const scale = name === 'loss' ? 1 : golden.scale
      const got = kept[name] ?? outputs[name].map((value) => value / scale)
      expect(largestDistance(got, values), name).toBeLessThan(allowedDistance(distance, values))
    }
    const again = await program.run(inputs)
    for (const name in outputs) {
      const bits = (data: ArrayLike<number>) => [...new Uint32Array(Float32Array.from(data).buffer)]
      expect(bits(again[name]), `${name}, once more`).toEqual(bits(outputs[name]))
    }
    program.destroy()
  },
)
