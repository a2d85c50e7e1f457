import type { HostData } from '../../src/graph/memory/host-values.ts'
import { prepare, type TracedFunction } from '../../src/graph/plan/prepare.ts'
import { Parameter } from '../../src/graph/trace/parameter.ts'
import type { Tensor } from '../../src/graph/trace/tensor.ts'
import type { TensorType } from '../../src/util/shape.ts'
import { type GoldenCase, type GoldenTensor, typeOf, valuesOf } from './golden.ts'
import { planningTarget } from './planning-target.ts'

export type Named = Record<string, Tensor>

/** A golden case as a function to compile, and what to run it with. */
export interface GoldenProgram {
  readonly fn: TracedFunction
  readonly types: Record<string, TensorType>
  readonly data: Record<string, HostData>
}

const dataOf = (tensor: GoldenTensor): HostData =>
  typeOf(tensor).dtype === 'f32'
    ? Float32Array.from(valuesOf(tensor))
    : Int32Array.from(valuesOf(tensor))

/**
 * The program of a case: inputs `x` that have a result `dx` are parameters, and `y` is differentiated by them, times `dy`.
 *
 * `forward` gets the inputs in the case's order, `dy` left out, then those of `more`.
 */
export function goldenProgram(
  { inputs, outputs }: GoldenCase,
  forward: (operands: Named) => Named,
  more: Readonly<Record<string, readonly [TensorType, HostData]>> = {},
): GoldenProgram {
  const all = Object.entries(inputs)
  const parameters = Object.fromEntries(
    all.flatMap(([name, tensor]) =>
      `d${name}` in outputs
        ? [[name, new Parameter(tensor.shape, Float32Array.from(valuesOf(tensor)))]]
        : [],
    ),
  )
  const given = all.filter(([name]) => !(name in parameters))
  const operands = [...Object.keys(inputs), ...Object.keys(more)].filter((name) => name !== 'dy')
  return {
    fn(traced) {
      const named = forward(
        Object.fromEntries(operands.map((name) => [name, parameters[name] ?? traced[name]])),
      )
      if (Object.keys(parameters).length === 0) return named
      named.y.mul(traced.dy).sum().backward()
      const gradients = Object.entries(parameters).map(([name, { grad }]) => [`d${name}`, grad!])
      return { ...named, ...Object.fromEntries(gradients) }
    },
    types: Object.fromEntries([
      ...given.map(([name, tensor]) => [name, typeOf(tensor)]),
      ...Object.entries(more).map(([name, [type]]) => [name, type]),
    ]),
    data: Object.fromEntries([
      ...given.map(([name, tensor]) => [name, dataOf(tensor)]),
      ...Object.entries(more).map(([name, [, data]]) => [name, data]),
    ]),
  }
}

/** The ops that a program is made of after all rewrites, as on an adapter. */
export const opsOf = ({ fn, types }: GoldenProgram): ReadonlySet<string> =>
  new Set(
    prepare(planningTarget, fn, types, { useNaiveKernels: false }).nodes.map(({ op }) => op.name),
  )
