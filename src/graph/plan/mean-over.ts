import type { ScalarSlot } from '../../kernels/op.ts'
import { countElements } from '../../util/shape.ts'
import type { GivenInputs } from '../memory/host-values.ts'
import { elementsOf, isOfInputs } from '../trace/host-elements.ts'
import type { MeanOver } from '../trace/trace.ts'
import { storageOf } from '../trace/value.ts'

/** How many there are in a full batch: samples, or class numbers. */
export const fullCount = ({ rows, classes }: MeanOver): number =>
  classes ? countElements(classes.target.type.shape) : rows

/**
 * Returns the one number for each run that can weigh several means: what all are over, else the samples that count in all, else nothing.
 *
 * Ranks begin backward with one number, so losses over other counts cannot each have their own.
 */
export function commonMean(means: readonly MeanOver[]): MeanOver | undefined {
  const [first, ...others] = means
  if (!first) return undefined
  const slotOf = ({ count }: MeanOver) => count?.slot
  const hasSameCount = others.every(
    (other) => slotOf(other) === slotOf(first) && other.rows === first.rows,
  )
  if (!hasSameCount) return undefined
  const isSame = others.every(
    ({ classes }) =>
      classes?.ignoreIndex === first.classes?.ignoreIndex &&
      (classes && storageOf(classes.target)) === (first.classes && storageOf(first.classes.target)),
  )
  const { rows, count } = first
  const common = isSame ? first : count ? { rows, count } : undefined
  // What the host cannot compute, such as labels that a model makes, counts by samples.
  if (!common?.classes || isOfInputs(common.classes.target)) return common
  return count ? { rows, count } : undefined
}

/** How many count in a run. `countOf`: what the run gives for a step scalar. */
export function countIn(
  { rows, count, classes }: MeanOver,
  inputs: GivenInputs,
  countOf: (slot: ScalarSlot) => number,
): number {
  const samples = count ? Math.min(rows, Math.floor(Math.max(0, countOf(count)))) : rows
  const targets = classes && elementsOf(classes.target, inputs)
  if (!classes || !targets) return samples
  const end = rows === 0 ? 0 : (targets.length / rows) * samples
  let used = 0
  for (let i = 0; i < end; i++) if (targets[i] !== classes.ignoreIndex) used++
  return used
}
