import { expect, test } from 'vitest'
import { crossEntropy } from '../../../src/graph/functions/linear.ts'
import { ReferenceRuntime } from '../../../src/graph/memory/runtime.ts'
import { prepare, type TracedFunction } from '../../../src/graph/plan/prepare.ts'
import { formatCall } from '../../../src/graph/trace/format-call.ts'
import { Parameter } from '../../../src/graph/trace/parameter.ts'
import { tensorType } from '../../../src/util/shape.ts'

// What errors and debug=5 call an op: elementwise functions by their own names, gradients by what they are gradients of.

const types = { x: tensorType([2, 3]), y: tensorType([2], 'i32') }

/** The calls of a function's ops, in order. */
function callsOf(fn: TracedFunction, useNaiveKernels: boolean): string[] {
  const { nodes, trace } = prepare(new ReferenceRuntime(), fn, types, { useNaiveKernels })
  return nodes.filter(({ op }) => !op.isView).map((node) => formatCall(node, trace))
}

test('an elementwise op has the name of its function', () => {
  const weight = new Parameter([3], new Float32Array(3))
  expect(callsOf(({ x }) => ({ out: x.add(weight).log() }), true)).toEqual([
    'add(f32[2, 3], f32[3])',
    'log(f32[2, 3])',
  ])
})

test('a chain that was joined has all names, a long one the first and a count', () => {
  const short: TracedFunction = ({ x }) => ({ out: x.add(1).relu() })
  expect(callsOf(short, false)).toEqual(['add+relu(f32[2, 3])'])
  const long: TracedFunction = ({ x }) => {
    let out = x
    for (let i = 0; i < 5; i++) out = out.exp().tanh()
    return { out }
  }
  expect(callsOf(long, false)).toEqual(['exp+tanh+exp+tanh+exp+tanh+4 more(f32[2, 3])'])
})

test('what is linked into the store of a product is named with it', () => {
  const weight = new Parameter([3, 4], new Float32Array(12))
  const fn: TracedFunction = ({ x }) => ({ out: x.matmul(weight).tanh() })
  expect(callsOf(fn, false)).toEqual(['matmul+tanh(f32[2, 3], f32[3, 4])'])
})

test('an op of backward names the op whose gradient it computes', () => {
  const weight = new Parameter([3, 4], new Float32Array(12))
  const calls = callsOf(({ x, y }) => {
    const loss = crossEntropy(x.matmul(weight).sigmoid().log(), y)
    loss.backward()
    return { loss, gradient: weight.grad! }
  }, true)
  expect(calls.slice(0, 3)).toEqual([
    'matmul(f32[2, 3], f32[3, 4])',
    'sigmoid(f32[2, 4])',
    'log(f32[2, 4])',
  ])
  const behind = (text: string) => calls.filter((call) => call.endsWith(text))
  expect(behind('in the backward of log(f32[2, 4])')).toEqual([
    'div(f32[2, 4], f32[2, 4]) in the backward of log(f32[2, 4])',
  ])
  expect(behind('in the backward of matmul(f32[2, 3], f32[3, 4])')).toHaveLength(1)
  expect(calls.filter((call) => call.includes('map'))).toEqual([])
})
