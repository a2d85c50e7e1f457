import { countElements, type TensorType } from '../util/shape.ts'
import { floatElement, halfWords } from './half-bindings.ts'
import type { Dispatch, Lowering, Op, OpCall, Operand } from './op.ts'
import { ceilDiv, dispatch, linearGroups, type ShaderBinding, writes } from './shader.ts'

// Kernels of one invocation an element: the frame around what it does.

export interface ElementKernel {
  readonly label: string
  /** Invocations. */
  readonly count: number
  readonly bindings: readonly ShaderBinding[]
  readonly constants?: Parameters<typeof dispatch>[0]['constants']
  /** WGSL functions that `main` calls. */
  readonly functions?: string
  /** WGSL lines that invocation `i` of `count` runs. */
  readonly main: readonly string[]
}

/** The dispatch of such a kernel; none where there is nothing to compute. */
export function eachElement({
  label,
  count,
  bindings,
  constants,
  functions,
  main,
}: ElementKernel): Dispatch[] {
  if (count === 0) return []
  const groups = linearGroups(ceilDiv(count, 64))
  const body = `${functions ? `${functions}\n` : ''}@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let i = (group.y * ${groups[0]}u + group.x) * 64u + lane;
  if (i >= ${count}u) { return; }
${main.map((line) => `  ${line}`).join('\n')}
}
`
  return [dispatch({ label, bindings, constants, body, groups })]
}

/** A kernel that makes floats of `output` one by one. */
export interface FloatKernel extends Pick<ElementKernel, 'label' | 'bindings' | 'constants'> {
  readonly output: { readonly name: string; readonly type: TensorType; readonly operand?: Operand }
  /** WGSL with `fn element(at: u32) -> f32`. */
  readonly functions: string
}

/** The dispatch that stores `element(at)` for every element of the output (by default output 0), two to a word where they are f16. */
export function eachFloat({ output, bindings, ...kernel }: FloatKernel): Dispatch[] {
  const { name, type, operand = { out: 0 } } = output
  const count = countElements(type.shape)
  const isHalf = type.dtype === 'f16'
  return eachElement({
    ...kernel,
    count: isHalf ? halfWords(count) : count,
    bindings: [...bindings, writes(name, operand, floatElement(type))],
    main: isHalf
      ? [
          'var pair = vec2<f32>(0.0, 0.0);',
          // Behind an odd number of elements comes the last one once more.
          `for (var k = 0u; k < 2u; k++) { pair[k] = element(min(i * 2u + k, ${count - 1}u)); }`,
          `${name}[i] = pack_half(pair.x, pair.y);`,
        ]
      : [`${name}[i] = element(i);`],
  })
}

/** The variants of an op that has one: its dispatches. */
export const oneVariant = <A>(dispatches: (call: OpCall<A>) => Dispatch[]): Op<A>['variants'] => [
  { name: 'naive', lower: (call): Lowering => ({ dispatches: dispatches(call) }) },
]
