import { useEffect, useState } from 'preact/hooks'
import { messageOf } from '../../util/errors.ts'
import { Panel } from '../parts/panel.tsx'
import type { Acts } from '../state/acts.ts'
import { canChange, checkedDraft, isMaker, settingsOfRoom } from '../state/room-facts.ts'
import { isRunning, ranksApart } from '../state/run-facts.ts'
import type { Snapshot } from '../state/snapshot.ts'
import type { View, ViewLoaders } from './view-props.ts'

interface DemoPanelProps {
  snapshot: Snapshot
  acts: Acts
  views: ViewLoaders
}

/** What the demo of the run shows, and takes from people; its view is loaded when it is first wanted. */
export function DemoPanel({ snapshot, acts, views }: DemoPanelProps) {
  const { experiments, run, draft, givenInLink } = snapshot
  const canSet = snapshot.stage === 'inside' && isMaker(snapshot) && !isRunning(snapshot)
  // While the maker chooses another demo, that one is shown, to all; else the one that ran.
  const config = canSet ? checkedDraft(snapshot).known : settingsOfRoom(snapshot)
  const name = canSet ? draft.demo : (settingsOfRoom(snapshot)?.demo ?? draft.demo)
  const load = Object.hasOwn(views, name) ? views[name] : undefined
  const [loaded, setLoaded] = useState<{ name: string; View: View } | null>(null)
  const [failure, setFailure] = useState<string | null>(null)
  useEffect(() => {
    if (!load) return
    let isCurrent = true
    setFailure(null)
    load().then(
      (View) => isCurrent && setLoaded({ name, View }),
      (error) => isCurrent && setFailure(messageOf(error)),
    )
    return () => {
      isCurrent = false
    }
  }, [name, load])
  if (!load) return null
  const { title, sentence } = experiments.metaOf(name)
  const View = loaded?.name === name ? loaded.View : null
  return (
    <Panel id="demo" title={title}>
      <p class="quiet">{sentence}</p>
      {failure !== null && (
        <p role="alert">This view could not be loaded: {failure} Reload the page.</p>
      )}
      {View && (
        <View
          key={snapshot.resets}
          config={config}
          // A run of another demo is not this view's.
          run={run?.config?.demo === name ? run : null}
          canSet={canSet}
          canChange={canChange(snapshot)}
          set={acts.set}
          query={acts.query}
          apart={ranksApart(run)}
          queryOn={(rank) => (query, input) => acts.query(query, input, rank)}
          give={(bytes, text, samples) => acts.give(name, bytes, text, samples)}
          refuseLink={() => acts.damagedInLink(name)}
          givenInLink={givenInLink?.demo === name ? givenInLink.text : null}
        />
      )}
    </Panel>
  )
}
