import { useMemo, useState } from 'preact/hooks'
import { Panel } from '../parts/panel.tsx'
import { useLoaded } from '../parts/use-loaded.ts'
import type { Acts } from '../state/acts.ts'
import { huesOf } from '../state/hues.ts'
import {
  canChange,
  canSet,
  checkedDraft,
  hasRun,
  settingsOfRoom,
  shownDemo,
} from '../state/room-facts.ts'
import { hasPart, isRunning, ranksApart } from '../state/run-facts.ts'
import type { Snapshot } from '../state/snapshot.ts'
import { useQuery } from './use-query.ts'
import type { Query, ViewLoaders } from './view-props.ts'

interface DemoPanelProps {
  snapshot: Snapshot
  acts: Acts
  views: ViewLoaders
}

/** What the demo of the run shows, and takes from people; its view is loaded when it is first wanted. */
export function DemoPanel(props: DemoPanelProps) {
  const { snapshot, views } = props
  const name = shownDemo(snapshot)
  if (!Object.hasOwn(views, name)) return null
  return <Demo key={name} {...props} name={name} />
}

interface DemoProps extends DemoPanelProps {
  name: string
}

function Demo({ snapshot, acts, views, name }: DemoProps) {
  const isSetting = canSet(snapshot)
  const config = isSetting ? checkedDraft(snapshot).known : settingsOfRoom(snapshot)
  const { givenInLink, resets } = snapshot
  const { part: View, failure } = useLoaded('this view', views[name]!, true)
  // A run of another demo is not this view's.
  const run = snapshot.run?.config?.demo === name ? snapshot.run : null
  const isShared = run !== null && hasPart(run)
  const yours = useLoaded('your part', () => import('./your-part.tsx'), isShared)
  /** The run whose model is shown without this rank's part. */
  const [without, setWithout] = useState('')
  const whose = isShared && without === run.id ? 'others' : 'all'
  const query: Query = (query, input) => acts.query(query, input, undefined, whose)
  const { answer } = useQuery({ run, query, whose }, 'part', null, { isIdle: !isShared })
  const part = isShared ? answer : null
  const hues = useMemo(
    () => run?.members.map(huesOf(snapshot)) ?? [],
    [snapshot.lobby, run?.members],
  )
  const { title, sentence } = snapshot.experiments.metaOf(name)
  return (
    <Panel id="demo" title={title}>
      <p class="quiet">{sentence}</p>
      {failure && <p role="alert">{failure}</p>}
      {isShared && yours.part && (
        <yours.part.YourPart
          {...{ run, part, whose }}
          onWhose={(next) => setWithout(next === 'others' ? run.id : '')}
        />
      )}
      {View && (
        <View
          key={resets}
          {...{ config, run, query, whose, part }}
          canSet={isSetting}
          canChange={canChange(snapshot)}
          isOthers={!isSetting && !isRunning(snapshot) && hasRun(snapshot)}
          set={acts.set}
          apart={ranksApart(snapshot.run)}
          hues={hues}
          queryOn={(rank) => (query, input) => acts.query(query, input, rank)}
          give={(bytes, text, samples) => acts.give(name, bytes, text, samples)}
          refuseLink={() => acts.damagedInLink(name)}
          givenInLink={givenInLink?.demo === name ? givenInLink.text : null}
        />
      )}
    </Panel>
  )
}
