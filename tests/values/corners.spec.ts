import { afterEach, expect, test } from 'vitest'
import { compile } from '../../src/graph/compile/compile.ts'
import { cast } from '../../src/graph/functions/shape.ts'
import { tensorType } from '../../src/util/shape.ts'
import { cornerCalls, cornerCases } from '../support/corner-calls.ts'
import { problemsOfCall } from '../support/golden-call.ts'
import { checkTestRuntime, testRuntime } from '../support/run-op.ts'

// Calls that are easy to leave out, and arithmetic of integers, against PyTorch (tests/golden/corners.py).

afterEach(checkTestRuntime)

for (const golden of cornerCases) {
  test(golden.name, async () => {
    expect(await problemsOfCall(golden, cornerCalls, { runtime: await testRuntime() })).toEqual([])
  })
}

test.each([
  ['i32', Int32Array],
  ['u32', Uint32Array],
] as const)(
  'outputs keep their type when an %s input, views of it and one result twice are returned',
  async (dtype, List) => {
    const runtime = await testRuntime()
    for (const options of [{ runtime }, { device: 'reference' }] as const) {
      const program = await compile(
        ({ x, t }) => {
          const a = x.argmax(1)
          return {
            t,
            view: t.reshape([2, 2]),
            detached: t.detach(),
            same: cast(t, dtype),
            a,
            again: a,
          }
        },
        { x: tensorType([2, 3]), t: tensorType([4], dtype) },
        options,
      )
      const t = List.of(1, 2, 3, 2 ** 30 + 1)
      const outputs = await program.run({ x: Float32Array.of(1, 5, 2, 9, 1, 2), t })
      const a = Int32Array.of(1, 0)
      expect(outputs).toEqual({ t, view: t, detached: t, same: t, a, again: a })
      program.destroy()
    }
  },
)
