import type { ComponentType } from 'preact'
import { useEffect, useState } from 'preact/hooks'
import { adapterLine } from '../../util/adapter-words.ts'
import { CheckpointList } from '../checkpoints/checkpoint-list.tsx'
import { DemoPanel } from '../demo/demo-panel.tsx'
import type { ViewLoaders } from '../demo/view-props.ts'
import { Experiment } from '../experiment/experiment.tsx'
import { Invite } from '../members/invite.tsx'
import { haveOwnPanel, Members, MembersPanel } from '../members/members.tsx'
import { PageFoot } from '../parts/page-foot.tsx'
import { useLoaded } from '../parts/use-loaded.ts'
import { RingView } from '../ring/ring-view.tsx'
import { LossChart } from '../run/loss-chart.tsx'
import { Readouts } from '../run/readouts.tsx'
import type { Acts } from '../state/acts.ts'
import { canStart } from '../state/room-facts.ts'
import type { Snapshot } from '../state/snapshot.ts'
import { StatusStrip } from '../status/status-strip.tsx'
import type { FirstScreenProps } from './first-screen.tsx'
import { Header } from './header.tsx'

interface AppProps {
  snapshot: Snapshot
  acts: Acts
  /** What demos show. */
  views?: ViewLoaders
  /** Loads the first screen, where the address names nothing. Default: there is none. */
  loadFirst?: () => Promise<ComponentType<Omit<FirstScreenProps, 'picture' | 'cards'>>>
}

/** The page as a function of the snapshot. */
export function App({ snapshot, acts, views = {}, loadFirst }: AppProps) {
  const { stage, run, invite, server, adapter } = snapshot
  const [isFirst, setFirst] = useState(loadFirst !== undefined)
  const isOver = hasBegun(snapshot)
  const leave = () => {
    setFirst(false)
    // A reload shows what there is now.
    history.replaceState(null, '')
  }
  useEffect(() => {
    if (isFirst && isOver) leave()
  }, [isOver])
  const isFirstShown = isFirst && !isOver
  // What was focused is gone.
  const [hasLeft, setLeft] = useState(false)
  useEffect(() => {
    if (hasLeft) document.querySelector<HTMLElement>('.status h2')?.focus()
  }, [hasLeft])
  const { part: First, failure } = useLoaded(
    'the first screen',
    async () => loadFirst!(),
    isFirstShown,
  )
  return (
    <div class="page" data-stage={stage} data-has-run={run !== null}>
      <Header snapshot={snapshot} acts={acts} />
      <main>
        {isFirstShown && !failure ? (
          First && (
            <First
              canStart={canStart(snapshot)}
              onStart={acts.start}
              link={invite}
              device={adapterLine(adapter)}
              invite={<Invite invite={invite} server={server} isAlone />}
              onLeave={() => {
                leave()
                setLeft(true)
              }}
            />
          )
        ) : (
          <Lab snapshot={snapshot} acts={acts} views={views} />
        )}
      </main>
      <PageFoot />
    </div>
  )
}

/** Settings and instruments, which keep their places in every state. */
function Lab({ snapshot, acts, views }: Required<Omit<AppProps, 'loadFirst'>>) {
  const { stage, trouble, run, runs } = snapshot
  const { part: panels, failure } = useLoaded(
    'the panels of a run',
    () => import('./run-panels.tsx'),
    run !== null || runs.length > 0,
  )
  const { part: notice, failure: noNotice } = useLoaded(
    'the notice',
    () => import('../status/notice.tsx'),
    trouble !== null,
  )
  const isShut = stage === 'outside' && run === null
  // Before a run the links are a preview; in one they are what is looked at.
  const links = <RingView key="links" snapshot={snapshot} />
  return (
    <>
      {!trouble && <StatusStrip snapshot={snapshot} acts={acts} />}
      {trouble && notice && <notice.Notice trouble={trouble} acts={acts} />}
      {trouble && noNotice && <p role="alert">{trouble.text}</p>}
      {!isShut && (
        <div class={`desk ${stage === 'outside' ? 'alone' : ''}`}>
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
      )}
    </>
  )
}

/** Something is on, or somebody is here: it is what the page is for now. */
const hasBegun = ({ stage, run, lobby, asks, serverLost, refusal }: Snapshot): boolean =>
  stage === 'outside' ||
  run !== null ||
  serverLost !== null ||
  refusal !== null ||
  asks.length > 0 ||
  (lobby?.members.length ?? 0) > 1
