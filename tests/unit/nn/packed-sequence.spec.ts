import { describe, expect, test } from 'vitest'
import { compile } from '../../../src/graph/compile/compile.ts'
import { ReferenceRuntime } from '../../../src/graph/memory/runtime.ts'
import { prepare, type TracedFunction } from '../../../src/graph/plan/prepare.ts'
import type { RunInputs } from '../../../src/graph/plan/step-program.ts'
import { Parameter } from '../../../src/graph/trace/parameter.ts'
import { Linear } from '../../../src/nn/layers.ts'
import {
  type Lengths,
  type PadOptions,
  packPaddedSequence,
  padPackedSequence,
} from '../../../src/nn/packed-sequence.ts'
import { LSTM } from '../../../src/nn/recurrent.ts'
import { tensorType } from '../../../src/util/shape.ts'
import { planningTarget } from '../../support/planning-target.ts'

// Padding of sequences that went through no layer: torch 1.13's pad_packed_sequence has zeros, or padding_value, there.

const runtime = new ReferenceRuntime()
/** [3, 2, 2] of 1 to 12; the second sequence has one step. */
const x = Float32Array.from({ length: 12 }, (_, i) => i + 1)
const given = { lengths: Int32Array.of(3, 1) }

/** Pads, with lengths that are numbers or that the run gives. */
async function padded(isGiven: boolean, options: PadOptions = {}, batchFirst = false) {
  const inputs: RunInputs = isGiven ? { x, ...given } : { x }
  const program = await compile(
    (own) => {
      const lengths: Lengths = own.lengths ?? [3, 1]
      const data = batchFirst ? own['x'].transpose(0, 1) : own['x']
      const packed = packPaddedSequence(data, lengths, { batchFirst })
      return { y: padPackedSequence(packed, options).output }
    },
    {
      x: tensorType([3, 2, 2]),
      ...(isGiven && { lengths: tensorType([2], 'i32') }),
    },
    { runtime },
  )
  return [...(await program.run(inputs)).y]
}

describe.each([
  ['numbers', false],
  ['an input', true],
])('lengths that are %s', (_, isGiven) => {
  test('padding is 0', async () => {
    const expected = [1, 2, 3, 4, 5, 6, 0, 0, 9, 10, 0, 0]
    expect(await padded(isGiven)).toEqual(expected)
    expect(await padded(isGiven, {}, true)).toEqual(expected)
  })

  test('padding is paddingValue, also beyond what went in', async () => {
    const options = { paddingValue: -7, totalLength: 4, batchFirst: true }
    expect(await padded(isGiven, options)).toEqual([
      1, 2, 5, 6, 9, 10, -7, -7, 3, 4, -7, -7, -7, -7, -7, -7,
    ])
  })
})

test('lengths that are numbers belong to the program: it leaves no tensor behind, of any count', async () => {
  const B = 1500
  const lengths = Array.from({ length: B }, (_, i) => 1 + (i % 2))
  const type = tensorType([2, B, 1])
  const pad: TracedFunction = ({ x }) => ({
    y: padPackedSequence(packPaddedSequence(x, lengths)).output,
  })
  const { calls } = prepare(planningTarget, pad, { x: type })
  expect(calls.filter(({ op }) => op.name === 'table')).toHaveLength(2)
  const program = await compile(pad, { x: type }, { runtime })
  const { y } = await program.run({ x: new Float32Array(2 * B).fill(1) })
  expect([...y]).toEqual([...lengths.map(() => 1), ...lengths.map((length) => length - 1)])
})

test('padding is cleared of what a layer for single steps made of it, and gets no gradient', async () => {
  const weight = new Parameter([3, 2, 2], x)
  const linear = new Linear(2, 1)
  linear.weight.assign(Float32Array.of(1, 1))
  linear.bias?.assign(Float32Array.of(0.5))
  const program = await compile(
    () => {
      const packed = packPaddedSequence(weight, [3, 1])
      const { output } = padPackedSequence({ ...packed, data: linear.forward(packed.data) })
      output.sum().backward()
      return { output, gradient: weight.grad! }
    },
    {},
    { runtime },
  )
  const { output, gradient } = await program.run({})
  expect([...output]).toEqual([3.5, 7.5, 11.5, 0, 19.5, 0])
  expect([...gradient]).toEqual([1, 1, 1, 1, 1, 1, 0, 0, 1, 1, 0, 0])
})

test('the output of a recurrent layer is padded without a dispatch, unless paddingValue is another number', async () => {
  const lstm = new LSTM(2, 3)
  const dispatches = async (options: PadOptions) => {
    const program = await compile(
      (own) => {
        const { output } = lstm.withState(packPaddedSequence(own['x'], [3, 1]))
        return { y: padPackedSequence(output, options).output }
      },
      { x: tensorType([3, 2, 2]) },
      { runtime },
    )
    const { y } = await program.run({ x })
    return { count: program.dispatchCount, padding: [...y.slice(9, 12), ...y.slice(15)] }
  }
  const zeros = await dispatches({})
  const fives = await dispatches({ paddingValue: 5 })
  expect(zeros.padding).toEqual([0, 0, 0, 0, 0, 0])
  expect(fives.padding).toEqual([5, 5, 5, 5, 5, 5])
  expect(fives.count).toBeGreaterThan(zeros.count)
})

test('an option that there is not is refused', async () => {
  await expect(padded(false, { padding_value: 1 } as never)).rejects.toThrow(
    /padPackedSequence: expected options among batchFirst, paddingValue, totalLength, got "padding_value"/,
  )
})
