import { tensorType } from '../util/shape.ts'
import type { KernelLimits, Lowering, Op, OpCall } from './op.ts'
import { ceilDiv, dispatch, linearGroups, reads, type ShaderBinding, writes } from './shader.ts'

/** Threads of a workgroup that join their parts in a tree. */
export const treeThreads = 256

const hasThreads = ({ maxInvocations }: KernelLimits): boolean => maxInvocations >= treeThreads

/** The two variants of an op whose workgroups join their threads' parts: of one thread each, and of `treeThreads`, which is better where they fit. */
export const naiveOrTree = <A>(
  naive: (call: OpCall<A>) => Lowering,
  tree: (call: OpCall<A>) => Lowering,
): Pick<Op<A>, 'variants' | 'preferred'> => ({
  variants: [
    { name: 'naive', lower: naive },
    { name: 'tree', when: (_call, limits) => hasThreads(limits), lower: tree },
  ],
  preferred: (_call, limits) => (hasThreads(limits) ? 'tree' : 'naive'),
})

/** A sum of two words, or what is like it, over `length` elements of input 0. */
export interface PairReduction {
  readonly label: string
  readonly input: ShaderBinding
  /** Name of the output in the shader. shape: [2] */
  readonly result: string
  readonly dtype: 'f32' | 'u32'
  readonly length: number
  readonly threads: number
  readonly perThread: number
  /** Of the first pass, beside `LENGTH`, `PER_GROUP`, `THREADS`, `GROUPS` and `GROUPS_X`. */
  readonly constants?: Readonly<Record<string, number>>
  /** The first pass, which leaves group g's pair at 2 g and 2 g + 1 of the storage variable `target`. */
  readonly body: (target: string) => string
  /** The second pass, which joins the `N` pairs of `partials`. */
  readonly totalBody: string
}

/** Each workgroup reduces its elements to a pair; where there are several, one more dispatch joins their pairs in order. */
export function inTwoPasses({
  label,
  input,
  result,
  dtype,
  length,
  threads,
  perThread,
  constants,
  body,
  totalBody,
}: PairReduction): Lowering {
  const perGroup = threads * perThread
  const groupCount = Math.max(1, ceilDiv(length, perGroup))
  const groups = linearGroups(groupCount)
  const isWhole = groupCount === 1
  const target = isWhole
    ? writes(result, { out: 0 }, dtype)
    : writes('partials', { scratch: 0 }, dtype)
  const main = dispatch({
    label,
    bindings: [input, target],
    constants: {
      ...constants,
      LENGTH: length,
      PER_GROUP: perGroup,
      THREADS: threads,
      GROUPS: groupCount,
      GROUPS_X: groups[0],
    },
    body: body(target.name),
    groups,
  })
  if (isWhole) return { dispatches: [main] }
  const total = dispatch({
    label: `${label} total`,
    bindings: [reads('partials', { scratch: 0 }, dtype), writes(result, { out: 0 }, dtype)],
    constants: { N: groupCount, THREADS: threads },
    body: totalBody,
    groups: [1, 1, 1],
  })
  return { dispatches: [main, total], scratch: [tensorType([2 * groupCount], dtype)] }
}
