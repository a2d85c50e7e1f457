import { CheckpointList } from '../checkpoints/checkpoint-list.tsx'
import { DemoPanel } from '../demo/demo-panel.tsx'
import { Experiment } from '../experiment/experiment.tsx'
import { haveOwnPanel, Members, MembersPanel } from '../members/members.tsx'
import { useLoaded } from '../parts/use-loaded.ts'
import { RingView } from '../ring/ring-view.tsx'
import { LossChart } from '../run/loss-chart.tsx'
import { Readouts } from '../run/readouts.tsx'
import type { ViewProps } from './page-view.ts'

/** Settings and instruments, which keep their places in every state. */
export function Lab({ snapshot, acts, views }: ViewProps) {
  const { stage, run, runs, lobby } = snapshot
  const { part: panels, failure } = useLoaded(
    'the panels of a run',
    () => import('./run-panels.tsx'),
    run !== null || runs.length > 0,
  )
  // Before a run the links are a preview; in one people watch them.
  const links = <RingView key="links" snapshot={snapshot} />
  return (
    <div
      class={`desk ${stage === 'outside' ? 'alone' : ''}`}
      // Panels grow once the room is known; until then nobody sees them move.
      data-is-known={stage === 'outside' || lobby !== null || run !== null}
    >
      {stage !== 'outside' && (
        <div class="side">
          {run && links}
          <Members snapshot={snapshot} acts={acts} />
          <Experiment snapshot={snapshot} acts={acts} />
          <CheckpointList snapshot={snapshot} acts={acts} />
          {!run && links}
        </div>
      )}
      <div class="instruments">
        {haveOwnPanel(snapshot) && <MembersPanel snapshot={snapshot} acts={acts} />}
        <Readouts snapshot={snapshot} />
        <div class="pair seen-together">
          <DemoPanel snapshot={snapshot} acts={acts} views={views} />
          <div class="stack">
            <LossChart snapshot={snapshot} acts={acts} />
            {failure && <p role="alert">{failure}</p>}
            {run && panels && <panels.RunPanels snapshot={snapshot} run={run} acts={acts} />}
          </div>
        </div>
        {panels && <panels.RunTable snapshot={snapshot} acts={acts} />}
      </div>
    </div>
  )
}
