import { type CompileOptions, compile } from '../../src/graph/compile/compile.ts'
import type { Tensor } from '../../src/graph/trace/tensor.ts'
import { allowedDistance, type GoldenCase, valuesOf } from './golden.ts'
import { type GoldenProgram, goldenProgram, type Named } from './golden-program.ts'

/** A case of the files that tests/golden/elementwise.py's `case` writes: which function is called, with which options. */
export interface CallCase extends GoldenCase {
  readonly call: string
  // biome-ignore lint/suspicious/noExplicitAny: options of whatever function the case calls.
  readonly options: any
}

/** Calls the function on a case's inputs; what it returns is `y`, or outputs by name. */
export type Call = (inputs: Named, options: CallCase['options']) => Tensor | Named

/**
 * Whether the element is where PyTorch's is: `allowed` away; for an edge a few roundings of itself, of the smallest as of the largest
 * where it is a `magnitude`.
 */
function isClose(got: number, expected: number, allowed: number, { call, options }: CallCase) {
  const single = Math.fround(expected)
  if (!Number.isFinite(single)) return Object.is(got, single)
  const distance = Math.abs(got - expected)
  // WGSL's pow is exp2(y * log2(x)), and so as inexact as that makes it (6e-7 on an H100).
  if (options.magnitudes || (call.startsWith('pow') && distance > allowed))
    return distance <= 4e-6 * Math.abs(expected)
  return distance <= (options.edges ? 4e-6 * Math.abs(expected) + 5e-7 : allowed)
}

const finite = (values: ArrayLike<number>): number[] =>
  Array.from(values).map((value) => (Number.isFinite(Math.fround(value)) ? value : 0))

function problemsOf(golden: CallCase, name: string, got: ArrayLike<number>): string[] {
  const result = golden.outputs[name]
  const expected = valuesOf(result)
  if (got.length !== expected.length)
    return [`${name}: ${got.length} elements, PyTorch has ${expected.length}`]
  const allowed = result.dtype === 'f64' ? allowedDistance(result.distance, finite(expected)) : 0
  return Array.from(expected).flatMap((value, at) =>
    isClose(got[at], value, allowed, golden)
      ? []
      : [`${name}[${at}]: expected ${value}, got ${got[at]}, allowed ${allowed}`],
  )
}

type Calls = Readonly<Record<string, Call>>

/** The program that calls a case's function; once it is traced, `shapes` has those of its results. */
export function programOfCall(
  golden: CallCase,
  calls: Calls,
): GoldenProgram & { readonly shapes: Record<string, readonly number[]> } {
  const call = calls[golden.call]
  if (!call) throw new Error(`golden case ${golden.name}: nothing is known as ${golden.call}`)
  const shapes: Record<string, readonly number[]> = {}
  const program = goldenProgram(golden, (operands) => {
    const result = call(operands, golden.options)
    const named: Named = 'shape' in result ? { y: result as Tensor } : (result as Named)
    for (const [name, { shape }] of Object.entries(named)) shapes[name] = shape
    return named
  })
  return { ...program, shapes }
}

/** Where a call, or a gradient through it, is not what PyTorch has; its shapes too. */
export async function problemsOfCall(
  golden: CallCase,
  calls: Calls,
  where: CompileOptions,
): Promise<string[]> {
  const { outputs } = golden
  const { fn, types, data, shapes } = programOfCall(golden, calls)
  const program = await compile(fn, types, where)
  const got = await program.run(data)
  program.destroy()
  const keys = [got, outputs].map((object) => Object.keys(object).sort().join())
  if (keys[0] !== keys[1]) return [`outputs ${keys[0]}, PyTorch has ${keys[1]}`]
  return Object.keys(got).flatMap((name) => {
    const shape = shapes[name] ?? outputs[name].shape
    const areEqual = shape.join() === outputs[name].shape.join()
    return areEqual
      ? problemsOf(golden, name, got[name])
      : [`${name}: shape [${shape}], PyTorch has [${outputs[name].shape}]`]
  })
}
