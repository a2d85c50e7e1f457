import { formatNumber } from './format.ts'
import { Panel } from './panel.tsx'
import { ratesOf, sharesOf } from './rates.ts'
import type { Run } from './state.ts'

/** Samples/s of each rank: measured here, derived for the others, and labelled so. */
export function RankRates({ run }: { run: Run | null }) {
  const rates = run && ratesOf(run)
  const shares = run ? sharesOf(run) : []
  const most = Math.max(1e-9, ...(rates?.samplesPerSec ?? []).filter(Number.isFinite))
  return (
    <Panel id="rank-rates" title="Samples/s by rank">
      {run && shares.length > 0 ? (
        <>
          <ul class="bars">
            {shares.map((rows, rank) => {
              const rate = rates!.samplesPerSec[rank]
              const isOwn = rank === run.rank
              return (
                // Ranks never change places within a run.
                <li key={rank} data-own={isOwn}>
                  <span class="bar-label">
                    {rank}
                    {isOwn && <span class="badge you">you</span>}
                  </span>
                  <span class="bar-track">
                    <span style={{ width: `${(100 * (rate || 0)) / most}%` }} />
                  </span>
                  <span class="bar-value">{formatNumber(rate)}</span>
                  <span class="bar-note">{rows} a step</span>
                </li>
              )
            })}
          </ul>
          <p class="quiet">
            Rank {run.rank} is measured in this tab.
            {run.worldSize > 1 &&
              ' All ranks step together, so the others are their share of the batch times the step rate.'}
          </p>
        </>
      ) : (
        <p class="quiet">Each rank takes an equal share of every batch.</p>
      )}
    </Panel>
  )
}
