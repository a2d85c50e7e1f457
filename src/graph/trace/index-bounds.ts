import { integerMap } from '../../kernels/integers/integer-map.ts'
import type { HostArray, Op, ScalarSlot } from '../../kernels/op.ts'
import { clipped } from '../../util/clipped.ts'
import { TabringError } from '../../util/errors.ts'
import type { GivenInputs } from '../memory/host-values.ts'
import { elementsOf, isOfInputs, originOf } from './host-elements.ts'
import { type GraphValue, nodesBehind } from './value.ts'

/** Numbers that an op takes as indices: of classes, of rows of a table, or of elements along an axis. */
export interface IndexBound {
  /** The op, as users call it. */
  readonly of: string
  /** The kind of thing that an index stands for. */
  readonly what: 'class' | 'row' | 'index'
  /** Samples first. */
  readonly index: GraphValue
  /** Indices are below it, and 0 at least. */
  readonly end: number
  /** An index that the op takes too. */
  readonly ignored?: number
  /** How many of the first samples count; undefined: all. */
  readonly count?: ScalarSlot
}

/** Returns whether the host can check it before a run: its indices are inputs, or made from them by ops on integers, which are cheap there. */
export const isChecked = ({ index }: IndexBound): boolean =>
  isOfInputs(index) &&
  nodesBehind([index]).every(
    ({ op, outputs }) =>
      op.isView || op === (integerMap as Op) || outputs.every(({ type }) => type.dtype === 'i32'),
  )

/**
 * Checks indices that a run was given on the host, before the device computes NaN from one that is out of range.
 *
 * cost: a comparison for each index, and a copy of those that are part of an input. errors: `graph.misuse`, naming the input, the sample
 * and the index.
 */
export function checkIndices(
  bounds: readonly IndexBound[],
  inputs: GivenInputs,
  countOf: (slot: ScalarSlot) => number,
): void {
  const known = new Map<GraphValue, HostArray>()
  for (const bound of bounds) {
    const { end, ignored, count, index } = bound
    const indices = elementsOf(index, inputs, known)
    if (!indices) continue
    const [samples = 1] = index.type.shape
    const perSample = indices.length / samples
    const last = count ? Math.min(samples, Math.max(0, countOf(count))) * perSample : indices.length
    for (let i = 0; i < last; i++) {
      const number = indices[i]
      if ((number >= 0 && number < end) || number === ignored) continue
      throw outOfRange(bound, number, placeOf(index, i, inputs))
    }
  }
}

/** Says where element `at` of an index comes from: of which sample of which input, and whether something was computed from it. */
function placeOf(index: GraphValue, at: number, inputs: GivenInputs): string {
  const origin = originOf(index, at)
  if (origin?.input.leaf?.kind !== 'input') return `computed from inputs, at element ${at},`
  const { leaf, type } = origin.input
  const given = inputs.get(leaf.name)!
  const [samples = 1] = type.shape
  const sample = Math.floor(origin.at / (given.length / samples))
  const isSame = given[origin.at] === elementsOf(index, inputs)![at]
  const words = `of sample ${sample} in input "${clipped(leaf.name)}"`
  return isSame ? words : `computed from ${given[origin.at]} ${words}`
}

const words = {
  class: {
    range: (end: number) => `there are ${end} classes`,
    remedy: 'Number classes from 0, or give the last layer an output for each class.',
  },
  row: {
    range: (end: number) => `the table has ${end} rows`,
    remedy: 'Number rows from 0, or make the table larger.',
  },
  index: {
    range: (end: number) => `the dimension has ${end} elements`,
    remedy: 'Number them from 0.',
  },
}

function outOfRange({ of, what, end }: IndexBound, number: number, place: string): TabringError {
  const { range, remedy } = words[what]
  return new TabringError(
    'graph.misuse',
    `${of}: ${what} ${number} ${place} is out of range: ${range(end)}, 0 to ${end - 1}. ${remedy}`,
  )
}
