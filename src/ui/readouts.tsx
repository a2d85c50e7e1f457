import { formatLoss, formatNumber, formatSeconds } from './format.ts'
import { metricDirection, metricValue } from './metric-words.ts'
import { ratesOf, stepSamples } from './rates.ts'
import { last } from './series.ts'
import { metaOfDraft } from './settings.ts'
import type { Snapshot } from './state.ts'

/** The numbers that people look at first. */
export function Readouts({ snapshot }: { snapshot: Snapshot }) {
  const { run } = snapshot
  const step = stepSamples(snapshot)
  const rates = run && ratesOf(run)
  const nan = Number.NaN
  const isOver = run?.end != null
  const result = run?.end?.kind === 'finished' ? run.end.result : null
  const testedAt = run?.accuracy.length ? run.accuracy.xs[run.accuracy.length - 1] : null
  const { metric } = metaOfDraft(run?.config ?? snapshot.draft)
  const unit = metric.unit === 'share' || metric.unit === '' ? '' : `${metric.unit}, `
  return (
    <dl class="readouts" aria-label="Readings">
      <Readout
        label="Loss"
        value={formatLoss(result?.loss ?? (run ? last(run.loss) : nan))}
        note="last step, all ranks"
      />
      <Readout
        label={`Test ${metric.name}`}
        value={metricValue(metric, result?.value ?? (run ? last(run.accuracy) : nan))}
        note={`${unit}${testedAt === null ? metricDirection(metric).words : `at step ${testedAt}`}`}
      />
      <Readout
        label="Samples/s, all ranks"
        value={formatNumber(rates?.totalSamplesPerSec ?? nan)}
        note={run ? 'by their shares' : 'not running'}
      />
      <Readout
        label="Samples/s, this rank"
        value={formatNumber(rates?.ownSamplesPerSec ?? nan)}
        note={run ? `rank ${run.rank}, measured` : 'not running'}
      />
      <Readout
        label="Samples per step"
        value={Number.isNaN(step.total) ? '–' : String(step.total)}
        note={step.words}
      />
      {isOver ? (
        <Readout
          label="Time taken"
          value={formatSeconds(result?.seconds ?? nan)}
          note={result ? 'training and tests' : 'did not finish'}
        />
      ) : (
        <Readout
          label="Time left"
          value={formatSeconds(rates && run.totalSteps ? rates.secondsLeft : nan)}
          note="without the tests"
        />
      )}
    </dl>
  )
}

function Readout({ label, value, note }: { label: string; value: string; note: string }) {
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
