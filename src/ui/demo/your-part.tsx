import { canLeaveOut } from '../../trainer/settings/leave-out.ts'
import type { QueryAnswer, Whose } from '../../worker/api.ts'
import { formatCount } from '../parts/format.ts'
import { Words } from '../parts/term.tsx'
import type { Run } from '../state/run.ts'
import { ranksHere } from '../state/run-facts.ts'
import './your-part.css'

/** Returns whether there can be a model without this rank's part: it knows which samples the others had from the first step on. */
const canBeWithout = ({ config, resumed, joins }: Run): boolean =>
  config !== null &&
  canLeaveOut(config) &&
  resumed === null &&
  !(joins && config.partition === 'own-slice')

interface YourPartProps {
  run: Run
  part: QueryAnswer | null
  whose: Whose
  onWhose: (whose: Whose) => void
}

/** This rank's part of the newest step, and the switch to a model without it. */
export function YourPart({ run, part, whose, onWhose }: YourPartProps) {
  return (
    <div class="your-part">
      <p role={whose === 'others' ? 'status' : undefined}>
        <Words text={partWords(run, part, whose)} />
      </p>
      {canBeWithout(run) && run.step > 0 && (
        <button
          type="button"
          aria-pressed={whose === 'others'}
          onClick={() => onWhose(whose === 'all' ? 'others' : 'all')}
        >
          Without {ownerOf(run)} part
        </button>
      )}
    </div>
  )
}

/** A tab's only rank is its person's. */
const ownerOf = (run: Run): string => (ranksHere(run).length > 1 ? `rank ${run.rank}'s` : 'your')

/** Words for the part, or for the samples that the model on show has learned from. */
export function partWords(run: Run, part: QueryAnswer | null, whose: Whose): string {
  const owner = ownerOf(run)
  const name = `${owner[0].toUpperCase()}${owner.slice(1)} part`
  if (part?.count === undefined) return `${name} of each step glows here once training has begun.`
  const { ofStep, count, globalCount, of, step } = part as unknown as Record<
    'ofStep' | 'count' | 'globalCount' | 'step',
    number
  > & { of: string }
  if (whose === 'all') {
    const share = Math.round((100 * count) / globalCount)
    return `${name} of step ${formatCount(ofStep)}, which glows: ${formatCount(count)} of ${formatCount(globalCount)} ${of}, so ${share} % of the [gradient].`
  }
  const behind =
    step < run.step
      ? `step ${formatCount(step)} of ${formatCount(run.step)}`
      : `step ${formatCount(step)}`
  return `Without ${owner} part: a second model, which began as this run's did and learns in this tab from the ${of} of the others alone. It is at ${behind}.`
}
