import { formatMs } from './format.ts'
import { Panel } from './panel.tsx'
import type { Run, StepParts } from './state.ts'

const parts: readonly { key: Exclude<keyof StepParts, 'total'>; label: string; title: string }[] = [
  { key: 'data', label: 'Data', title: 'Filling the batch' },
  { key: 'encode', label: 'Encode', title: "The step's JavaScript: commands for the GPU" },
  { key: 'compute', label: 'Compute', title: 'The GPU at work' },
  { key: 'ring', label: 'Ring', title: 'Gradients and parameters on their way round' },
]

/** Smaller rests than this share of the step are rounding and overlap. */
const visibleRest = 0.05

/** Where the time of one step goes on this rank. */
export function StepPartsView({ run }: { run: Run | null }) {
  const times = run?.parts ?? null
  const rows = times ? parts.map((part) => ({ ...part, ms: times[part.key] })) : []
  const rest = times ? times.total - rows.reduce((sum, { ms }) => sum + ms, 0) : 0
  const all =
    times && rest > visibleRest * times.total
      ? [...rows, { key: 'rest', label: 'Rest', title: 'Waiting, counted in no part', ms: rest }]
      : rows
  const most = times ? Math.max(times.total, ...all.map(({ ms }) => ms)) || 1 : 1
  return (
    <Panel
      id="step-parts"
      title="One step, by part"
      aside={times ? `${formatMs(times.total)} in all` : ''}
    >
      {times ? (
        <>
          <ul class="bars">
            {all.map(({ key, label, title, ms }) => (
              <li key={key} title={title}>
                <span class="bar-label">{label}</span>
                <span class="bar-track">
                  <span style={{ width: `${(100 * ms) / most}%` }} />
                </span>
                <span class="bar-value">{formatMs(ms)}</span>
              </li>
            ))}
          </ul>
          <p class="quiet">
            Mean of about ten steps of this rank.
            {run!.worldSize > 1 &&
              ' Ring and compute overlap, so parts can add up to more than the whole.'}
          </p>
        </>
      ) : (
        <p class="quiet">Data, compute and ring, once steps are made.</p>
      )}
    </Panel>
  )
}
