import { expect, test } from 'vitest'
import { autocast } from '../../src/entries/amp.ts'
import { compile } from '../../src/graph/compile/compile.ts'
import { conv2d, convTranspose2d } from '../../src/graph/functions/convolution.ts'
import { mseLoss } from '../../src/graph/functions/losses.ts'
import { ReferenceRuntime } from '../../src/graph/memory/runtime.ts'
import { Parameter } from '../../src/graph/trace/parameter.ts'
import { tensorType } from '../../src/util/shape.ts'
import golden from '../golden/amp.json'
import { checkHalfTraining } from '../support/amp-run.ts'
import { formulaUniform } from '../support/formula-data.ts'
import { allowedDistance, largestDistance } from '../support/golden.ts'
import { testRuntime } from '../support/run-op.ts'

test("training under autocast follows PyTorch's float16 roundings, its loss scale included", async () =>
  checkHalfTraining({ runtime: await testRuntime() }))

const { conv } = golden

test.each(['GPU', 'GPU, naive', 'reference'])(
  "convolutions under autocast follow PyTorch's float16 roundings, on the %s",
  async (where) => {
    const runtime = where === 'reference' ? new ReferenceRuntime() : await testRuntime()
    const given = Object.fromEntries(
      Object.entries(conv.shapes).map(([name, shape], n) => {
        const count = shape.reduce((product, size) => product * size, 1)
        const bound = shape.length === 1 || 'xy'.includes(name) ? 1 : 0.4
        return [name, new Parameter(shape, formulaUniform(300 + n, count, bound))]
      }),
    )
    const { x, w1, b1, w2, b2, w3, b3 } = given
    const program = await compile(
      ({ y }) => {
        const loss = autocast({}, () => {
          const first = conv2d(x, w1, b1, { padding: 1 }).relu()
          const second = conv2d(first, w2, b2, { stride: 2, padding: 1, groups: 2 }).relu()
          const third = convTranspose2d(second, w3, b3, { stride: 2 })
          expect([first.dtype, second.dtype, third.dtype]).toEqual(['f16', 'f16', 'f16'])
          return mseLoss(third, y)
        })
        loss.mul(1024).backward()
        const gradients = Object.keys(conv.gradients).map((name) => [name, given[name].grad!])
        return { loss, ...Object.fromEntries(gradients) }
      },
      { y: tensorType(conv.shapes.y) },
      { runtime, useNaiveKernels: where === 'GPU, naive' },
    )
    const outputs = await program.run({ y: await given.y.read() })
    expect(Math.abs(outputs.loss[0] - conv.loss)).toBeLessThan(
      allowedDistance(conv.distance, [conv.loss]),
    )
    for (const [name, { values, distance }] of Object.entries(conv.gradients)) {
      const got = outputs[name].map((value) => value / 1024)
      expect(largestDistance(got, values), name).toBeLessThan(allowedDistance(distance, values))
    }
    program.destroy()
  },
)
