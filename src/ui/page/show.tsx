import { DemoPanel } from '../demo/demo-panel.tsx'
import { AskList } from '../members/members.tsx'
import { NameAsk } from '../members/name-ask.tsx'
import { People } from '../members/people.tsx'
import { RingView } from '../ring/ring-view.tsx'
import { Understood } from '../run/understood.tsx'
import { isMaker, tabCount } from '../state/room-facts.ts'
import type { ViewProps } from './page-view.ts'
import './show.css'

/** What the network learns, large, and who trains it: for a class, a projector, a phone. */
export function Show({ snapshot, acts, views }: ViewProps) {
  const { stage, lobby, checkpointNote } = snapshot
  return (
    <div class="show" data-is-host={isMaker(snapshot)}>
      <div class="show-notes">
        {lobby && tabCount(lobby) > 1 && <NameAsk name={snapshot.name} onName={acts.rename} />}
        {isMaker(snapshot) && <AskList asks={snapshot.asks} acts={acts} />}
        {checkpointNote?.isError && (
          <p class="error" role="alert">
            {checkpointNote.text}
          </p>
        )}
      </div>
      <Understood snapshot={snapshot} />
      {lobby ? (
        <DemoPanel snapshot={snapshot} acts={acts} views={views} />
      ) : (
        // Who leads decides what there is to set in it.
        <div class="panel" id="demo" />
      )}
      {stage !== 'outside' && (
        <>
          <section class="show-ring" aria-label="Ring">
            <RingView snapshot={snapshot} isOfPeople />
          </section>
          <People snapshot={snapshot} acts={acts} />
        </>
      )}
    </div>
  )
}
