import { SaveAct, SaveNote } from '../checkpoints/save-act.tsx'
import { formatBytes, formatCount } from '../parts/format.ts'
import { Panel } from '../parts/panel.tsx'
import type { Acts } from '../state/acts.ts'
import type { Run, RunEnding } from '../state/run.ts'
import type { Snapshot } from '../state/snapshot.ts'
import { DownloadAct, DownloadNote } from './download-act.tsx'
import { LogAct } from './log-act.tsx'

interface SummaryProps {
  snapshot: Snapshot
  run: Run
  ending: Extract<RunEnding, { kind: 'finished' }>
  acts: Acts
}

/** In all, and from the first step on, without what was sent to begin: parameters, and data to measure the links. */
function sentWords({ bytesSent, firstBytes }: Run, total: number): string {
  const inSteps = firstBytes === null ? Number.NaN : bytesSent - firstBytes
  return inSteps > 0
    ? `${formatBytes(total)}, ${formatBytes(inSteps)} of it in steps`
    : formatBytes(total)
}

/** What a run ended with. */
export function Summary({ snapshot, run, ending, acts }: SummaryProps) {
  const { result, bytesSent } = ending
  const { worldSize, resumed, config } = run
  return (
    <Panel id="summary" title={`Run ${run.epoch}`} aside={`rank ${run.rank} of ${worldSize}`}>
      <dl class="facts wide">
        <div>
          <dt>Steps</dt>
          <dd>{formatCount(result.steps)}</dd>
        </div>
        <div>
          <dt>Sent by this rank</dt>
          <dd>{worldSize > 1 ? sentWords(run, bytesSent) : 'nothing: one rank'}</dd>
        </div>
        <div>
          <dt>Samples of this rank</dt>
          <dd>{formatCount(result.samples)}</dd>
        </div>
        {resumed && (
          <div>
            <dt>Resumed from</dt>
            <dd>step {formatCount(resumed.step)}</dd>
          </div>
        )}
        <div class="long">
          <dt>Parameter hash</dt>
          <dd>
            <code data-testid="param-hash">{result.paramHash}</code>{' '}
            {worldSize > 1 &&
              (config?.strategy === 'alone' ? (
                <span class="quiet">of this rank: each trained its own model</span>
              ) : (
                <span class="agree">
                  ✓ the same on all {worldSize} ranks, compared after the last step
                </span>
              ))}
          </dd>
        </div>
      </dl>
      <p class="acts">
        <SaveAct snapshot={snapshot} acts={acts} />
        <DownloadAct run={run} acts={acts} words="Download weights (.safetensors)" />
        {config?.exact && !run.isWatched && <LogAct acts={acts} />}
        {acts.saveTrace && (
          <button type="button" onClick={acts.saveTrace}>
            Download trace (for Perfetto)
          </button>
        )}
        <DownloadNote run={run} />
      </p>
      <SaveNote run={run} />
    </Panel>
  )
}
