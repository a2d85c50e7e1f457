import { tensorType } from '../util/shape.ts'
import { naiveOr } from './naive-or.ts'
import type { KernelLimits, Lowering, Op, OpCall } from './op.ts'
import { type Join, type RowKernel, rowKernel } from './rows.ts'
import { ceilDiv, type dispatch, reads, type ShaderBinding, writes } from './shader.ts'

/** Threads of a workgroup that join their parts in a tree. */
export const treeThreads = 256

const hasThreads = ({ maxInvocations }: KernelLimits): boolean => maxInvocations >= treeThreads

/** The two variants of an op whose workgroups join their threads' parts: of one thread each, and of `treeThreads`, which is better where they fit. */
export const naiveOrTree = <A>(
  naive: (call: OpCall<A>) => Lowering,
  tree: (call: OpCall<A>) => Lowering,
): Pick<Op<A>, 'variants' | 'preferred'> =>
  naiveOr<A>(
    'tree',
    (_call, limits) => hasThreads(limits),
    (call, isTree) => (isTree ? tree : naive)(call),
  )

/** A total over `length` elements. */
export interface TotalKernel {
  readonly label: string
  readonly bindings: readonly ShaderBinding[]
  readonly constants?: Parameters<typeof dispatch>[0]['constants']
  /** WGSL with `fn term(i: u32)`, what element i adds. */
  readonly functions: string
  readonly join: Join & { readonly type: Element }
  readonly length: number
  readonly threads: number
  /** Elements that each of a workgroup's threads takes. */
  readonly perThread: number
  /** The output, and the line that stores `total` in it; by default as it is in output 0. */
  readonly output: ShaderBinding
  readonly store: string
}

type Element = 'f32' | 'u32' | 'vec2<f32>' | 'vec2<u32>'

/** Each workgroup joins its elements; where there are several, one more dispatch joins what they made, in order. */
export function total({
  functions,
  join,
  length,
  threads,
  perThread,
  output,
  store,
  ...kernel
}: TotalKernel): Lowering {
  const perGroup = threads * perThread
  const groups = Math.max(1, ceilDiv(length, perGroup))
  const pass = (
    count: number,
    reduced: number,
    of: string,
  ): Omit<RowKernel, 'label' | 'bindings'> => ({
    rows: { outer: count, reduced, inner: 1 },
    lanes: threads,
    range: ['first', `first + min(${length}u - first, ${reduced}u)`],
    at: 'c',
    reductions: [{ name: 'total', join, of }],
    once: [store],
  })
  if (groups === 1) {
    return {
      dispatches: rowKernel({
        ...kernel,
        ...pass(1, perGroup, 'term(at)'),
        functions,
        bindings: [...kernel.bindings, output],
      }),
    }
  }
  const partials = { scratch: 0 }
  const isPair = join.type.startsWith('vec2')
  return {
    dispatches: [
      ...rowKernel({
        ...kernel,
        ...pass(groups, perGroup, 'term(at)'),
        functions,
        once: ['partials[row] = total;'],
        bindings: [...kernel.bindings, writes('partials', partials, join.type)],
      }),
      ...rowKernel({
        ...pass(1, groups, 'partials[at]'),
        range: ['0u', `${groups}u`],
        label: `${kernel.label} total`,
        bindings: [reads('partials', partials, join.type), output],
      }),
    ],
    scratch: [
      tensorType(isPair ? [groups, 2] : [groups], join.type.includes('u32') ? 'u32' : 'f32'),
    ],
  }
}
