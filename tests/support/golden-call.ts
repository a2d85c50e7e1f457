import { type CompileOptions, compile } from '../../src/graph/compile.ts'
import { Parameter } from '../../src/graph/parameter.ts'
import type { Tensor } from '../../src/graph/tensor.ts'
import type { TensorType } from '../../src/util/shape.ts'
import { allowedDistance, type GoldenCase, typeOf, valuesOf } from './golden.ts'

/** A case of the files that tests/golden/elementwise.py's `case` writes: which function is called, with which options. */
export interface CallCase extends GoldenCase {
  readonly call: string
  // biome-ignore lint/suspicious/noExplicitAny: options of whatever function the case calls.
  readonly options: any
}

type Named = Record<string, Tensor>

/** Calls the function on a case's inputs; what it returns is `y`, or outputs by name. */
export type Call = (inputs: Named, options: CallCase['options']) => Tensor | Named

/**
 * Whether the element is where PyTorch's is: `allowed` away; for an edge a few roundings of itself, of the smallest as of the largest
 * where it is a `magnitude`.
 */
function isClose(got: number, expected: number, allowed: number, options: CallCase['options']) {
  const single = Math.fround(expected)
  if (!Number.isFinite(single)) return Object.is(got, single)
  const distance = Math.abs(got - expected)
  if (options.magnitudes) return distance <= 4e-6 * Math.abs(expected)
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
    isClose(got[at], value, allowed, golden.options)
      ? []
      : [`${name}[${at}]: expected ${value}, got ${got[at]}, allowed ${allowed}`],
  )
}

/** Ops that the programs of `problemsOfCall` were made of, by the case's name. */
export const opsOfCalls = new Map<string, ReadonlySet<string>>()

/** Where a call, or a gradient through it, is not what PyTorch has; its shapes too. */
export async function problemsOfCall(
  golden: CallCase,
  calls: Readonly<Record<string, Call>>,
  where: CompileOptions,
): Promise<string[]> {
  const { inputs, outputs, options } = golden
  const parameters = new Map<string, Parameter>()
  const given: Record<string, TensorType> = {}
  for (const [name, tensor] of Object.entries(inputs)) {
    if (`d${name}` in outputs) {
      parameters.set(name, new Parameter(tensor.shape, Float32Array.from(valuesOf(tensor))))
    } else given[name] = typeOf(tensor)
  }
  const call = calls[golden.call]
  if (!call) throw new Error(`golden case ${golden.name}: nothing is known as ${golden.call}`)
  const shapes: Record<string, readonly number[]> = {}
  const program = await compile(
    ({ dy, ...others }) => {
      const result = call({ ...others, ...Object.fromEntries(parameters) }, options)
      const named: Named = 'shape' in result ? { y: result as Tensor } : (result as Named)
      for (const [name, { shape }] of Object.entries(named)) shapes[name] = shape
      if (parameters.size === 0) return named
      named.y.mul(dy).sum().backward()
      const gradients = [...parameters].map(([name, parameter]) => [`d${name}`, parameter.grad!])
      return { ...named, ...Object.fromEntries(gradients) }
    },
    given,
    where,
  )
  opsOfCalls.set(golden.name, new Set(program.prepared.calls.map(({ op }) => op.name)))
  const contents = Object.keys(given).map((name) => {
    const values = valuesOf(inputs[name])
    return [name, given[name].dtype === 'f32' ? Float32Array.from(values) : Int32Array.from(values)]
  })
  const got = await program.run(Object.fromEntries(contents))
  program.destroy()
  const keys = [got, outputs].map((object) => Object.keys(object).sort().join())
  if (keys[0] !== keys[1]) return [`outputs ${keys[0]}, PyTorch has ${keys[1]}`]
  return Object.keys(got).flatMap((name) => {
    const shape = shapes[name] ?? outputs[name].shape
    const isAlike = shape.join() === outputs[name].shape.join()
    return isAlike
      ? problemsOf(golden, name, got[name])
      : [`${name}: shape [${shape}], PyTorch has [${outputs[name].shape}]`]
  })
}
