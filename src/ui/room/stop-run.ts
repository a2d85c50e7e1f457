import { makesSteps } from '../state/run-facts.ts'
import type { Snapshot } from '../state/snapshot.ts'
import { stopReason } from '../state/stop-words.ts'
import type { Store } from '../state/store.ts'

/** A run that takes no step meanwhile is stopped without one more save. units: ms. */
const patienceMs = 3000

interface Stopping {
  readonly store: Pick<Store, 'snapshot' | 'dispatch' | 'onChange'>
  readonly member: { pause(): void; stop(reason: string): void }
  readonly after: (delayMs: number, callback: () => void) => void
}

/** Ends the run on all ranks; one that saves itself pauses first, where it is saved, so that it can continue from there. */
export function stopRun({ store, member, after }: Stopping): void {
  const { run, name } = store.snapshot
  store.dispatch({ type: 'stopping' })
  const stop = once(() => member.stop(stopReason(name)))
  if (!run || !savesInPause(store.snapshot)) {
    stop()
    return
  }
  const goesOn = ({ run: now }: Snapshot) => now?.id === run.id && now.end === null
  const forget = store.onChange((now) => {
    if (goesOn(now) && !now.run?.paused) return
    forget()
    if (goesOn(now)) stop()
  })
  after(patienceMs, () => {
    forget()
    if (goesOn(store.snapshot)) stop()
  })
  member.pause()
}

/** Steps are made, not waited for, and this rank writes what they came to when they pause. */
const savesInPause = ({ run }: Snapshot): boolean =>
  run?.config?.saves === 'auto' &&
  run.config.strategy !== 'alone' &&
  run.rank === 0 &&
  run.step > 0 &&
  !run.paused &&
  !run.undecided &&
  makesSteps(run)

function once(act: () => void): () => void {
  let isDone = false
  return () => {
    if (!isDone) act()
    isDone = true
  }
}
