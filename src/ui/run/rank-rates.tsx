import { useMemo } from 'preact/hooks'
import { useFewRanks } from '../live/few-ranks.tsx'
import { rankWork, slowestRank } from '../live/rank-work.ts'
import { formatNumber, formatPercent } from '../parts/format.ts'
import { Panel } from '../parts/panel.tsx'
import { sharesOf } from '../state/rates.ts'
import type { Run } from '../state/run.ts'

/** How fast each rank is while it has something to do, and how long it waits for others: a slow one is seen by both. */
export function RankRates({ run, hues }: RankRatesProps) {
  // It changes with the samples, about every second.
  return useMemo(
    () => <Rates run={run} hues={hues} />,
    [run?.id, run?.config, run?.sampledSteps, run?.end, hues.join()],
  )
}

interface RankRatesProps {
  run: Run | null
  /** By rank: the colour of its person. */
  hues: readonly string[]
}

function Rates({ run, hues }: RankRatesProps) {
  const work = run ? rankWork(run) : []
  // Shares of a batch differ, so the slowest are those that wait least.
  const { shown, more } = useFewRanks(
    work.map(({ waitShare }) => -waitShare),
    run?.rank ?? 0,
    'slowest',
  )
  const shares = run ? sharesOf(run) : []
  if (!run || shares.length === 0) {
    return (
      <Panel id="rank-rates" title={title}>
        <p class="quiet">
          How fast each rank is, not counting time it waits for others. Shown once training starts.
        </p>
      </Panel>
    )
  }
  const max = Math.max(1e-9, ...work.map((one) => one.samplesPerSec).filter(Number.isFinite))
  const slowest = slowestRank(work)
  // Ranks without an exchange wait for nobody within a step.
  const canWait = run.worldSize > 1 && run.config?.strategy !== 'alone'
  return (
    <Panel id="rank-rates" title={title} aside="samples/s while busy">
      <ul class="bars">
        {shown.map((rank) => {
          const { samplesPerSec, waitShare } = work[rank]
          const isOwn = rank === run.rank && !run.isWatched
          return (
            // Ranks never change places within a run.
            <li
              key={rank}
              style={{ '--hue': hues[rank] }}
              title={`${run.members[rank].name}: ${shares[rank]} samples of each full batch`}
            >
              <span class="bar-label">
                {rank}
                {isOwn && <span class="badge you">you</span>}
              </span>
              <span class="bar-track">
                <span style={{ width: `${(100 * (samplesPerSec || 0)) / max}%` }} />
              </span>
              <span class="bar-value">{formatNumber(samplesPerSec)}</span>
              <span class="bar-note">{canWait && `${formatPercent(waitShare, 0)} waiting`}</span>
            </li>
          )
        })}
      </ul>
      {more}
      {slowest !== null && (
        <p>
          The others {run.end ? 'waited' : 'wait'} for rank {slowest} ({run.members[slowest].name}).
        </p>
      )}
      <p class="quiet">
        {canWait
          ? 'Samples of each rank per second of its own work; waiting for others does not count.'
          : 'Samples of each rank per second of its steps.'}{' '}
        Mean of the latest sampled steps, by the rank's own clock.
      </p>
    </Panel>
  )
}

const title = 'Speed by rank'
