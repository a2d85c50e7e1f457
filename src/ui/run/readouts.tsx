import type { ComponentChildren } from 'preact'
import { formatLoss, formatNumber, formatSeconds } from '../parts/format.ts'
import { isApart, metricDirection, metricValue } from '../parts/metric-words.ts'
import { last } from '../parts/series.ts'
import { Term } from '../parts/term.tsx'
import { metaOfDraft } from '../settings/list.ts'
import { ratesOf, stepSamples } from '../state/rates.ts'
import { secondsOf } from '../state/run-time.ts'
import type { Snapshot } from '../state/snapshot.ts'

/** The numbers that people look at first. */
export function Readouts({ snapshot }: { snapshot: Snapshot }) {
  const { run } = snapshot
  const step = stepSamples(snapshot)
  const rates = run && ratesOf(run)
  const nan = Number.NaN
  const isOver = run?.end != null
  const hasTests = run !== null && run.tests.length > 0
  const rateNote = !run ? 'not running' : isOver ? 'mean of the run' : 'last seconds'
  const result = run?.end?.kind === 'finished' ? run.end.result : null
  const testedAt = run?.accuracy.length ? run.accuracy.xs[run.accuracy.length - 1] : null
  const { metric } = metaOfDraft(snapshot.experiments, run?.config ?? snapshot.draft)
  const hasBoth = isApart(metric)
  // Where the metric is the loss itself, it stands beside it.
  const hasTestLoss = metric.ofLoss !== 1 && testedAt !== null
  const testLoss = result?.heldOutLoss ?? (run ? last(run.heldOutLoss) : nan)
  const trainValue = run ? last(run.trainMetric) : nan
  const trained =
    hasBoth && Number.isFinite(trainValue) ? `; training ${metricValue(metric, trainValue)}` : ''
  const unit = metric.unit === 'share' || metric.unit === '' ? '' : `${metric.unit}, `
  return (
    <dl class="readouts" aria-label="Readings">
      <Readout
        label={<Term word="loss">Loss</Term>}
        value={formatLoss(result?.loss ?? (run ? last(run.loss) : nan))}
        note={hasTestLoss ? `last step; test ${formatLoss(testLoss)}` : 'last step'}
      />
      <Readout
        label={`Test ${metric.name}`}
        value={metricValue(metric, result?.value ?? (run ? last(run.accuracy) : nan))}
        note={`${unit}${testedAt === null ? metricDirection(metric).words : `at step ${testedAt}`}${trained}`}
      />
      <Readout
        label="Samples/s"
        value={formatNumber(rates?.totalSamplesPerSec ?? nan)}
        note={`all ranks, ${rateNote}`}
      />
      <Readout
        label="Own samples/s"
        value={formatNumber(rates?.ownSamplesPerSec ?? nan)}
        note={run ? `rank ${run.rank}, ${rateNote}` : rateNote}
      />
      <Readout
        label={
          <>
            Samples per <Term word="step" />
          </>
        }
        value={Number.isNaN(step.total) ? '–' : String(step.total)}
        note={step.words}
      />
      {isOver ? (
        <Readout
          label="Time taken"
          value={formatSeconds(result ? secondsOf(run!) : nan)}
          note={result ? 'training and tests' : 'did not finish'}
        />
      ) : (
        <Readout
          label="Time left"
          value={formatSeconds(rates && run.totalSteps ? rates.secondsLeft : nan)}
          note={
            !run ? 'not running' : hasTests ? 'tests included' : 'without tests: none has run yet'
          }
        />
      )}
      {run?.stateHash && (
        <Readout
          label="State hash"
          value={run.stateHash.slice(0, 8)}
          note={`before step ${run.step}${run.worldSize > 1 ? ', the same on all ranks' : ''}${run.unlike.some(({ isLasting }) => isLasting) ? '; not that of other tabs' : ''}`}
        />
      )}
    </dl>
  )
}

interface ReadoutProps {
  readonly label: ComponentChildren
  readonly value: string
  readonly note: string
}

function Readout({ label, value, note }: ReadoutProps) {
  return (
    <div class="readout">
      <dt>{label}</dt>
      <dd>
        <span class="value">{value}</span>
        <span class="note">{note}</span>
      </dd>
    </div>
  )
}
