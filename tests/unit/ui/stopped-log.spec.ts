import { describe, expect, it, vi } from 'vitest'
import { RunPanels } from '../../../src/ui/page/run-panels.tsx'
import { saveText } from '../../../src/ui/parts/save-file.ts'
import { StoppedLog } from '../../../src/ui/run/log-act.tsx'
import { runActs } from '../../../src/ui/run/run-acts.ts'
import { idleActs } from '../../../src/ui/state/acts.ts'
import type { Snapshot } from '../../../src/ui/state/snapshot.ts'
import { stopReason } from '../../../src/ui/state/stop-words.ts'
import { Store } from '../../../src/ui/state/store.ts'
import { makeResult, play, training } from '../../support/page-states.ts'

vi.mock('../../../src/ui/parts/save-file.ts', () => ({ saveText: vi.fn() }))

const pageless = {
  isHidden: () => true,
  frame: () => undefined,
  after: () => undefined,
  painted: () => undefined,
  now: () => 0,
}
const stop = { type: 'failed', code: 'peer.aborted', text: stopReason('host') } as const
const failure = { type: 'failed', code: 'train.nan', text: 'step 4: not finite' } as const
const finish = { type: 'finished', result: makeResult(2), bytesSent: 0 } as const
const trained = (steps: number, exact = true) => training(2, steps, 0, { config: { exact } })

/** Whether the page of a run offers the log of one that did not reach its end. */
function offersLog(snapshot: Snapshot): boolean {
  const { children } = RunPanels({ snapshot, run: snapshot.run!, acts: idleActs }).props
  return [children].flat().some((child) => (child as { type?: unknown })?.type === StoppedLog)
}

describe('the log of an exact run', () => {
  it('is offered once the run was stopped', () => {
    const snapshot = play(trained(3), stop)
    expect(snapshot.run!.end!.kind).toBe('stopped')
    expect(offersLog(snapshot)).toBe(true)
  })

  it('is offered once the run has failed', () => {
    const snapshot = play(trained(3), failure)
    expect(snapshot.run!.end!.kind).toBe('failed')
    expect(offersLog(snapshot)).toBe(true)
  })

  it('is not offered here while the run trains, nor once it has finished', () => {
    expect(offersLog(trained(3))).toBe(false)
    expect(offersLog(play(trained(3), finish))).toBe(false)
  })

  it('is not offered before a step has ended, nor of a run that is not exact', () => {
    expect(offersLog(play(trained(0), stop))).toBe(false)
    expect(offersLog(play(trained(3, false), stop))).toBe(false)
  })

  it('is not offered to an onlooker, who has none of it', () => {
    const snapshot = play(trained(3), stop)
    const run = { ...snapshot.run!, isWatched: true }
    expect(offersLog({ ...snapshot, run })).toBe(false)
  })

  it.each([
    ['stopped', stop],
    ['failed', failure],
  ])('of a run that was or has %s is saved without an end', async (_, ending) => {
    vi.mocked(saveText).mockClear()
    const snapshot = play(trained(3), ending)
    runActs(new Store(snapshot, pageless, () => undefined)).saveLog()
    await vi.waitFor(() => expect(saveText).toHaveBeenCalled())
    const [text, , name] = vi.mocked(saveText).mock.calls[0]
    expect(name).toBe('tabring-run.json')
    const { states, end } = JSON.parse(text)
    expect(end).toBeNull()
    expect(states.map(([step]: [number]) => step)).toEqual([0, 1, 2])
  })
})
