import type { StepParts } from '../../trainer/watch/run-events.ts'
import { formatMs } from '../parts/format.ts'
import { Panel } from '../parts/panel.tsx'
import type { Run } from '../state/run.ts'

interface Part {
  readonly key: Exclude<keyof StepParts, 'total'>
  readonly label: string
  readonly title: string
}

const parts: readonly Part[] = [
  { key: 'data', label: 'Data', title: 'Filling the batch, while the GPU is idle' },
  { key: 'forward', label: 'Forward', title: 'From the batch to the loss' },
  { key: 'backward', label: 'Backward', title: 'From the loss to the gradients' },
  { key: 'wait', label: 'Wait', title: 'For slower neighbours' },
  {
    key: 'wire',
    label: 'Wire',
    title: 'Gradients and parameters in flight, not hidden by backward',
  },
  { key: 'optimizer', label: 'Optimizer', title: 'From the gradients to new parameters' },
  { key: 'audit', label: 'Audit', title: "Computing another rank's gradients again" },
]

/** The parts to show: those of audits where there are any, with one rank without those of the ring, and as one where the device does not distinguish them. */
function partsOf(times: StepParts, worldSize: number): readonly Part[] {
  const isReport = times.forward > 0 || times.backward === 0
  return parts.flatMap((part) => {
    if (worldSize === 1 && (part.key === 'wait' || part.key === 'wire')) return []
    if (part.key === 'audit' && times.audit === 0) return []
    if (isReport) return [part]
    if (part.key === 'forward' || (part.key === 'optimizer' && worldSize === 1)) return []
    const title = 'This GPU has no timer for the phases of a step'
    return part.key === 'backward' ? [{ ...part, label: 'Compute', title }] : [part]
  })
}

/** Shows the parts of one step's time on this rank. */
export function StepPartsView({ run }: { run: Run | null }) {
  const times = run?.parts ?? null
  return (
    <Panel
      id="step-parts"
      title="One step, by part"
      aside={times ? `${formatMs(times.total)} in all` : ''}
    >
      {times ? (
        <>
          <ul class="bars">
            {partsOf(times, run!.worldSize).map(({ key, label, title }) => (
              <li key={key} title={title}>
                <span class="bar-label">{label}</span>
                <span class="bar-track">
                  <span style={{ width: `${(100 * times[key]) / (times.total || 1)}%` }} />
                </span>
                <span class="bar-value">{formatMs(times[key])}</span>
              </li>
            ))}
          </ul>
          <p class="quiet">Mean of about ten steps on this rank.</p>
        </>
      ) : (
        <p class="quiet">Data, forward, backward and the rest, once training starts.</p>
      )}
    </Panel>
  )
}
