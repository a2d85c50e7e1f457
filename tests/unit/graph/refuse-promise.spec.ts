import { expect, test } from 'vitest'
import { compile } from '../../../src/graph/compile/compile.ts'
import { compileAccumulated } from '../../../src/graph/compile/compile-accumulated.ts'
import { runEagerly } from '../../../src/graph/compile/eager.ts'
import { checkpoint } from '../../../src/graph/functions/checkpoint.ts'
import { ReferenceRuntime } from '../../../src/graph/memory/runtime.ts'
import type { TracedFunction } from '../../../src/graph/plan/prepare.ts'
import { autocast } from '../../../src/graph/trace/autocast.ts'
import type { Tensor } from '../../../src/graph/trace/tensor.ts'
import { tensorType } from '../../../src/util/shape.ts'

// Tracing is synchronous: what an async function does after its first await would be in no program.

const runtime = new ReferenceRuntime()
const inputs = { x: tensorType([2]) }
const doubled = async ({ x }: Record<string, Tensor>) => ({ y: x.mul(2) })
const asyncStep = doubled as unknown as TracedFunction

const refusal = (where: string) => ({
  code: 'graph.misuse',
  message: `${where}: the function returned a promise, but tracing is synchronous. Remove async and await, wait for data before compile, and pass values that change with each run as inputs.`,
})

test('an async function is refused, and not compiled to a program without outputs', async () => {
  await expect(compile(asyncStep, inputs, { runtime })).rejects.toMatchObject(refusal('compile'))
  await expect(compileAccumulated(asyncStep, inputs, { runtime, steps: 2 })).rejects.toMatchObject(
    refusal('compileAccumulated'),
  )
  await expect(
    runEagerly(runtime, asyncStep, inputs, { x: new Float32Array(2) }),
  ).rejects.toMatchObject(refusal('runEagerly'))
})

test('one that throws is refused by the same words, and leaves no unhandled rejection', async () => {
  const throwing = async () => {
    throw new Error('mine')
  }
  await expect(
    compile(throwing as unknown as TracedFunction, inputs, { runtime }),
  ).rejects.toMatchObject(refusal('compile'))
})

test.each<[string, TracedFunction]>([
  ['checkpoint', ({ x }) => ({ y: checkpoint((async () => x) as never, x) as Tensor })],
  ['autocast', ({ x }) => ({ y: autocast({}, async () => x) as unknown as Tensor })],
])('%s takes no async function either', async (where, fn) => {
  await expect(compile(fn, inputs, { runtime })).rejects.toMatchObject(refusal(where))
})
