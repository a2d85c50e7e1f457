import { useEffect, useRef, useState } from 'preact/hooks'
import type { Acts } from '../state/acts.ts'
import { canReset, lostByReset } from '../state/reset-facts.ts'
import type { Snapshot } from '../state/snapshot.ts'

/** For the maker between runs: the page as after entering. Asks first where something would be gone for good. */
export function ResetAct({ snapshot, acts }: { snapshot: Snapshot; acts: Acts }) {
  const [isAsking, setAsking] = useState(false)
  if (!canReset(snapshot)) return null
  const lost = lostByReset(snapshot)
  return (
    <>
      <button
        type="button"
        class="reset"
        aria-haspopup={lost ? 'dialog' : undefined}
        onClick={() => (lost ? setAsking(true) : acts.reset())}
        title="Default settings, an empty chart, no model; ended runs stay in the table"
      >
        Reset
      </button>
      {isAsking && lost && (
        <ResetDialog lost={lost} onReset={acts.reset} onClose={() => setAsking(false)} />
      )}
    </>
  )
}

interface ResetDialogProps {
  readonly lost: string
  readonly onReset: () => void
  readonly onClose: () => void
}

function ResetDialog({ lost, onReset, onClose }: ResetDialogProps) {
  const dialog = useRef<HTMLDialogElement>(null)
  useEffect(() => dialog.current!.showModal(), [])
  return (
    <dialog ref={dialog} class="ask" aria-labelledby="reset-title" onClose={onClose}>
      <h2 id="reset-title">Reset this page?</h2>
      <p>{lost} Ended runs stay in the table, checkpoints in this browser.</p>
      <p class="acts">
        <button type="button" onClick={() => dialog.current!.close()}>
          Keep
        </button>
        <button
          type="button"
          class="stop"
          onClick={() => {
            dialog.current!.close()
            onReset()
          }}
        >
          Reset
        </button>
      </p>
    </dialog>
  )
}
