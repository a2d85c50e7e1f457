import { describe, expect, test } from 'vitest'
import { conv2d } from '../../../src/kernels/conv2d/conv2d.ts'
import { conv2dGradInput } from '../../../src/kernels/conv2d/conv2d-grad-input.ts'
import { conv2dGradWeight } from '../../../src/kernels/conv2d/conv2d-grad-weight.ts'
import { maxPool2d, maxPool2dGrad } from '../../../src/kernels/max-pool2d/max-pool2d.ts'
import type { HostArray, Op, OpCall } from '../../../src/kernels/op.ts'
import { countElements, type TensorType, tensorType } from '../../../src/util/shape.ts'
import golden from '../../golden/conv.json'
import { difference } from '../../support/op-check.ts'
import { runOp, testRuntime } from '../../support/run-op.ts'

// Values by PyTorch: tests/golden/conv.py writes them. Ours may be 5 times as far from float64 as PyTorch's own float32.

const { limits } = await testRuntime()

type Numbers = readonly (number | string | null)[]
const toNumbers = (values: Numbers) =>
  Float64Array.from(values, (v) =>
    v === null ? Number.NaN : Number(String(v).replace('inf', 'Infinity')),
  )

interface Expected {
  readonly values: HostArray
  readonly absolute: number
}

/** Checks every variant of an op that can run the call. */
function checkAll<A>(
  op: Op<A>,
  types: readonly TensorType[],
  inputs: readonly HostArray[],
  attrs: A,
  expected: readonly Expected[],
) {
  const call: OpCall<A> = { inputs: types, outputs: op.infer(types, attrs), attrs }
  for (const variant of op.variants) {
    if (!(variant.when?.(call, limits) ?? true)) continue
    test(`${op.name} ${variant.name}`, async () => {
      const run = await runOp(op, variant, call, inputs)
      expected.forEach(({ values, absolute }, n) => {
        expect(values.length).toBe(countElements(call.outputs[n].shape))
        const tolerance = { absolute, relative: 0, because: '5 times the distance of PyTorch' }
        const wrong = difference(run.outputs[n], values, call.outputs[n], tolerance)
        if (wrong) expect.fail(`output ${n}: ${wrong}`)
      })
      expect(run.guardsIntact && run.inputsIntact).toBe(true)
    })
  }
}

type Pair = readonly [number, number]

for (const example of golden.conv) {
  describe(`conv: ${example.name}`, () => {
    const { x, w, b, dy, expected } = example
    const stride = example.stride as unknown as Pair
    const padding = example.padding as unknown as Pair
    const [xs, ws, bs, dys] = [x, w, b, dy].map(({ values }) => toNumbers(values))
    const [xt, wt, dyt] = [x, w, dy].map(({ shape }) => tensorType(shape))
    // One rounding of the largest result is allowed even where PyTorch happened to be exact.
    const want = ({ values, distance, scale }: typeof expected.y): Expected => ({
      values: toNumbers(values),
      absolute: 5 * Math.max(distance, scale * 2 ** -24),
    })
    const kernel = w.shape.slice(2) as unknown as Pair
    const biasType = tensorType([...b.shape, 1, 1])
    checkAll(
      conv2d,
      [xt, wt, biasType],
      [xs, ws, bs],
      { stride, padding, epilogue: [{ fn: 'add', args: [{ input: 0 }, { input: 1 }] }] },
      [want(expected.y)],
    )
    checkAll(
      conv2dGradInput,
      [dyt, wt],
      [dys, ws],
      { stride, padding, inputShape: x.shape, epilogue: [] },
      [want(expected.dx)],
    )
    checkAll(conv2dGradWeight, [dyt, xt], [dys, xs], { stride, padding, kernel, rowSums: true }, [
      want(expected.dw),
      want(expected.db),
    ])
  })
}

for (const example of golden.pool) {
  describe(`pool: ${example.name}`, () => {
    const { x, dy } = example
    const attrs = {
      kernel: example.kernel as unknown as Pair,
      stride: example.stride as unknown as Pair,
      padding: example.padding as unknown as Pair,
    }
    const index = Int32Array.from(example.index)
    const dx = toNumbers(example.dx)
    checkAll(maxPool2d, [tensorType(x.shape)], [toNumbers(x.values)], attrs, [
      { values: toNumbers(example.y).map(Math.fround), absolute: 0 },
      { values: index, absolute: 0 },
    ])
    checkAll(
      maxPool2dGrad,
      [tensorType(dy.shape), tensorType(dy.shape, 'i32')],
      [toNumbers(dy.values), index],
      { ...attrs, inputShape: x.shape, epilogue: [] },
      [{ values: dx, absolute: 1e-6 }],
    )
  })
}
