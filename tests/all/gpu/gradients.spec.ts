import { expect, test } from 'vitest'
import { compile } from '../../../src/graph/compile/compile.ts'
import { Parameter } from '../../../src/graph/trace/parameter.ts'
import { emitAll, type Tensor } from '../../../src/graph/trace/tensor.ts'
import { activeTrace } from '../../../src/graph/trace/trace.ts'
import { ops } from '../../../src/kernels/index.ts'
import type { Case, HostArray, Op } from '../../../src/kernels/op.ts'
import { RandomStream } from '../../../src/util/random.ts'
import { countElements } from '../../../src/util/shape.ts'
import { testRuntime } from '../../support/run-op.ts'

/**
 * Every op that has a gradient, against central differences of its f64 reference: sum(dy * op(x)) for a fixed dy.
 * The device computes the gradient through autograd, so the rule and the ops it emits are in it; their kernels are the
 * plain ones, since every-op.spec.ts holds every other variant against the same references.
 */
const epsilon = 1e-4
const maxProbes = 40

function draw(sample: Case, seed: number): HostArray[] {
  const stream = new RandomStream(seed, 1)
  return sample.inputs.map(({ shape, dtype }, input) => {
    const count = countElements(shape)
    if (dtype !== 'f32') {
      const below = sample.integerBelow?.[input] ?? 2
      return Int32Array.from({ length: count }, () => stream.below(below))
    }
    // Distinct values at least 1e-3 apart and 0.5 from 0, so that no kink (max, relu) and no pole (div) is near.
    const order = Array.from({ length: count }, (_, i) => i)
    for (let i = count - 1; i > 0; i--) {
      const j = stream.below(i + 1)
      ;[order[i], order[j]] = [order[j], order[i]]
    }
    const step = Math.max(2 / Math.max(count, 1), 1e-3)
    return Float64Array.from(order, (rank) => {
      const value = (rank - count / 2 + 0.25) * step
      const apart = Math.fround(value + 0.5 * Math.sign(value))
      return sample.fill === 'positive' ? Math.abs(apart) : apart
    })
  })
}

const isSuitable = (op: Op, sample: Case) => {
  const elements = sample.inputs.reduce((sum, { shape }) => sum + countElements(shape), 0)
  const { epilogue, rowSums, colSums, a, b, store } = sample.attrs as Record<string, unknown>
  // What rewrites link in comes after gradients are taken.
  const isPlain =
    !(epilogue as unknown[] | undefined)?.length && !rowSums && !colSums && !a && !b && !store
  const isChain = ((sample.attrs as { steps?: unknown[] }).steps?.length ?? 0) > 1
  // Nothing flows through integers.
  const isOfFloats =
    sample.inputs.some(({ dtype }) => dtype === 'f32') &&
    // What is rounded has steps, no differences: amp.spec.ts has those gradients.
    sample.inputs.every(({ dtype }) => dtype !== 'f16') &&
    op.infer(sample.inputs, sample.attrs)[0]?.dtype === 'f32'
  return (
    op.gradient &&
    elements > 0 &&
    elements < 20_000 &&
    isPlain &&
    isOfFloats &&
    !isChain &&
    sample.fill !== 'huge' &&
    sample.fill !== 'ties' &&
    !marksErrors(op, sample)
  )
}

/** Whether a case's result is a NaN on purpose (labels out of range): it has no differences. */
function marksErrors(op: Op, sample: Case): boolean {
  if (!sample.integerBelow) return false
  const { inputs, attrs, scalars = [] } = sample
  const call = { inputs, outputs: op.infer(inputs, attrs), attrs }
  return op.reference(draw(sample, 11), call, scalars)[0].some((value) => Number.isNaN(value))
}

for (const op of ops) {
  const cases = op.cases.filter((sample) => isSuitable(op, sample))
  // What is detached, and the vectors of a power iteration, are constants for backward, which is their purpose.
  if (!op.gradient || op.name === 'detach' || op.name === 'powerIteration') continue
  // It needs two devices: tests/gpu/split.spec.ts trains through it.
  if (op.name === 'transfer') continue
  test(`${op.name}: has cases for its gradient`, () => {
    expect(cases.length).toBeGreaterThan(0)
  })
  for (const sample of cases) {
    test(`${op.name}: ${sample.name}`, async () => {
      const { gpu } = await testRuntime()
      const inputs = draw(sample, 11)
      const call = {
        inputs: sample.inputs,
        outputs: op.infer(sample.inputs, sample.attrs),
        attrs: sample.attrs,
      }
      const reference = (values: readonly HostArray[]) =>
        op.reference(values, call, sample.scalars ?? [])
      const first = call.outputs[0]
      const stream = new RandomStream(5, 2)
      const dy = Float64Array.from({ length: countElements(first.shape) }, () =>
        Math.fround(stream.between(-1, 1)),
      )
      const total = (values: readonly HostArray[]) => {
        const y = reference(values)[0]
        let sum = 0
        for (let i = 0; i < dy.length; i++) sum += dy[i] * y[i]
        return sum
      }
      const parameters = inputs.map((values, i) =>
        sample.inputs[i].dtype === 'f32'
          ? new Parameter(sample.inputs[i].shape, Float32Array.from(values))
          : undefined,
      )
      const program = await compile(
        (given: Record<string, Tensor>) => {
          // First of all, so that the case's scalars have the slots that its attrs name.
          for (const scalar of sample.scalars ?? []) activeTrace('test').scalars.add(() => scalar)
          const tensors = inputs.map((_, i): Tensor => parameters[i] ?? given[`in${i}`])
          const y = emitAll(op, tensors, sample.attrs)[0]
          const loss = y.mul(given.dy).sum()
          loss.backward()
          return Object.fromEntries(
            parameters.flatMap((parameter, i) =>
              parameter?.grad ? [[`d${i}`, parameter.grad]] : [],
            ),
          )
        },
        {
          dy: first,
          ...Object.fromEntries(
            sample.inputs.flatMap((type, i) => (type.dtype === 'f32' ? [] : [[`in${i}`, type]])),
          ),
        },
        { runtime: await testRuntime(), useNaiveKernels: true },
      )
      const gradients = await program.run({
        dy: Float32Array.from(dy),
        ...Object.fromEntries(
          inputs.flatMap((values, i) =>
            values instanceof Int32Array ? [[`in${i}`, Int32Array.from(values)]] : [],
          ),
        ),
      })
      expect(Object.keys(gradients).length).toBeGreaterThan(0)
      for (const [key, gradient] of Object.entries(gradients)) {
        const input = Number(key.slice(1))
        const values = inputs[input]
        const probes: { at: number; got: number; expected: number }[] = []
        const stride = Math.max(1, Math.floor(values.length / maxProbes))
        for (let at = 0; at < values.length; at += stride) {
          const moved = (by: number) => {
            const copy = inputs.map((array) => array.slice() as HostArray)
            copy[input][at] += by
            return total(copy)
          }
          const expected = (moved(epsilon) - moved(-epsilon)) / (2 * epsilon)
          probes.push({ at, got: gradient[at], expected })
        }
        const largest = Math.max(...probes.map((probe) => Math.abs(probe.expected)))
        for (const { at, got, expected } of probes) {
          expect(
            Math.abs(got - expected),
            `d${input}[${at}]: got ${got}, expected ${expected}, the largest is ${largest}`,
          ).toBeLessThan(2e-4 * Math.abs(expected) + 1e-5 * largest + 1e-7)
        }
      }
      program.destroy()
      gpu.check()
    })
  }
}
