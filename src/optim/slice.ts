import type { Bucket } from '../graph/trace/bucket.ts'
import type { Trace } from '../graph/trace/trace.ts'
import { emitNode, type GraphNode, type GraphValue } from '../graph/trace/value.ts'
import type { Op, ScalarSlot } from '../kernels/op.ts'
import type { SettingSource, UpdateAttrs } from '../kernels/update/rule.ts'

/** The part of a bucket that this rank updates, and values for it. */
export interface Slice {
  readonly bucket: Bucket
  readonly length: number
  readonly parameter: GraphValue
  readonly gradient: GraphValue
  /** (factor, skip, settled settings ...), where something clips or scales the gradients. */
  readonly control: GraphValue | undefined
  /** True if `control` has the settings that depend on the number of updates made. */
  readonly isSettled: boolean
  /** Updates of these parameters begun so far; 1 during their first. */
  readonly steps: () => number
  /** This rank's part of an optimizer state, named as in PyTorch, holding `initial` at first. */
  state(name: string, initial?: number): GraphValue
}

/** Emits an update kernel over a slice, with the slice's control behind the tensors. */
export function emitUpdate(
  op: Op<UpdateAttrs>,
  slice: Slice,
  states: readonly GraphValue[],
  settings: Readonly<Record<string, SettingSource>>,
): GraphNode {
  const inputs = [slice.parameter, slice.gradient, ...states]
  return emitNode(op as Op, slice.control ? [...inputs, slice.control] : inputs, {
    settings,
    start: 0,
    length: slice.length,
  })
}

/** Step scalars by name, each with what it reads in every step. */
export const slots = <Name extends string>(
  trace: Trace,
  sources: Readonly<Record<Name, () => number>>,
): Record<Name, ScalarSlot> =>
  Object.fromEntries(
    Object.entries<() => number>(sources).map(([name, source]) => [
      name,
      trace.scalars.add(source),
    ]),
  ) as Record<Name, ScalarSlot>
