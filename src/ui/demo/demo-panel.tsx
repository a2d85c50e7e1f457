import { useEffect, useState } from 'preact/hooks'
import { metaOf } from '../../../demos/experiment.ts'
import { messageOf } from '../../util/errors.ts'
import type { Acts } from '../acts.ts'
import { Panel } from '../panel.tsx'
import { checkDraft } from '../settings.ts'
import { isMaker, isRunning, type Snapshot } from '../state.ts'
import type { View, ViewLoaders } from './view-props.ts'

interface DemoPanelProps {
  snapshot: Snapshot
  acts: Acts
  views: ViewLoaders
}

/** What the demo of the run shows, and takes from people; its view is loaded when it is first wanted. */
export function DemoPanel({ snapshot, acts, views }: DemoPanelProps) {
  const { run, draft, lobby } = snapshot
  const canSet = snapshot.stage === 'inside' && isMaker(snapshot) && !isRunning(snapshot)
  // While the maker chooses another demo, that one is shown; else the one that ran.
  const config = canSet ? checkDraft(draft, lobby?.members.length).config : (run?.config ?? null)
  const name = canSet ? draft.demo : (run?.config?.demo ?? draft.demo)
  const load = views[name]
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
  const { title, sentence } = metaOf(name)
  const View = loaded?.name === name ? loaded.View : null
  return (
    <Panel id="demo" title={title}>
      <p class="quiet">{sentence}</p>
      {failure !== null && (
        <p role="alert">This view could not be loaded: {failure} Reload the page.</p>
      )}
      {View && (
        <View
          config={config}
          // A run of another demo is not this view's.
          run={run?.config?.demo === name ? run : null}
          canSet={canSet}
          set={acts.set}
          look={acts.look}
          give={acts.give}
        />
      )}
    </Panel>
  )
}
