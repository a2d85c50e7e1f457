import type { ScalarSlot } from '../../kernels/op.ts'
import { clipped } from '../../util/clipped.ts'
import { TabringError } from '../../util/errors.ts'
import { countElements } from '../../util/shape.ts'
import type { GivenInputs } from '../memory/host-values.ts'
import { type GraphValue, storageOf } from './value.ts'

/** Numbers that an op takes as indices: of classes, or of rows of a table. */
export interface IndexBound {
  /** The op, as users call it. */
  readonly of: string
  /** What an index stands for. */
  readonly what: 'class' | 'row'
  /** Samples first. */
  readonly index: GraphValue
  /** Indices are below it, and 0 at least. */
  readonly end: number
  /** An index that the op takes too. */
  readonly ignored?: number
  /** How many of the first samples count; undefined: all. */
  readonly count?: ScalarSlot
}

/**
 * Checks indices that a run was given on the host, before the device computes NaN from one that is out of range.
 *
 * cost: a comparison for each index. errors: `graph.misuse`, naming the input, the sample and the index.
 */
export function checkIndices(
  bounds: readonly IndexBound[],
  inputs: GivenInputs,
  countOf: (slot: ScalarSlot) => number,
): void {
  for (const bound of bounds) {
    const { leaf, type } = storageOf(bound.index)
    const given = leaf?.kind === 'input' ? inputs.get(leaf.name) : undefined
    if (leaf?.kind !== 'input' || !given) continue
    const { end, ignored, count } = bound
    // Views are reshapes here: those of a part have another number of elements.
    if (countElements(type.shape) !== countElements(bound.index.type.shape)) continue
    const [samples = 1] = bound.index.type.shape
    const perSample = given.length / samples
    const last = count ? Math.min(samples, Math.max(0, countOf(count))) * perSample : given.length
    for (let i = 0; i < last; i++) {
      const index = given[i]
      if ((index >= 0 && index < end) || index === ignored) continue
      const names = { sample: Math.floor(i / perSample), input: leaf.name, index }
      throw outOfRange(bound, names)
    }
  }
}

function outOfRange(
  { of, what, end }: IndexBound,
  { sample, input, index }: { sample: number; input: string; index: number },
): TabringError {
  const few = what === 'class' ? `there are ${end} classes` : `the table has ${end} rows`
  const remedy =
    what === 'class'
      ? 'Number classes from 0, or give the last layer an output for each class.'
      : 'Number rows from 0, or make the table larger.'
  return new TabringError(
    'graph.misuse',
    `${of}: ${what} ${index} of sample ${sample} in input "${clipped(input)}" is out of range: ${few}, 0 to ${end - 1}. ${remedy}`,
  )
}
