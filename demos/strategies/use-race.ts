import { useEffect, useRef, useState } from 'preact/hooks'
import { type Trouble, troubleOf } from '../../src/ui/state/trouble.ts'
import { messageOf } from '../../src/util/errors.ts'
import { Race } from './race.ts'
import type { Settings } from './settings.ts'
import type { StrategyLog } from './strategy-log.ts'

export interface RaceState {
  readonly stage: 'idle' | 'running' | 'finished' | 'stopped' | 'failed'
  readonly race: Race | null
  /** The newest of each experiment, in the order of their beginnings. */
  readonly races: readonly Race[]
  readonly logs: readonly StrategyLog[]
  /** Another number for other points: logs grow in place. */
  readonly version: number
  /** Why it failed. */
  readonly error: string
  /** Where no device opened: what to do. */
  readonly trouble: Trouble | null
  run(settings: Settings): void
  cancel(): void
}

/** One comparison at a time; its events are drawn with the next frame, so never while the page is hidden. */
export function useRace(): RaceState {
  const [outcome, setOutcome] = useState<Outcome>({ stage: 'idle', error: '', trouble: null })
  const [version, setVersion] = useState(0)
  const all = useRef<readonly Race[]>([])
  const isCancelled = useRef(false)
  const isDue = useRef(false)
  useEffect(() => () => all.current.at(-1)?.cancel(), [])

  const onChange = () => {
    if (isDue.current) return
    isDue.current = true
    requestAnimationFrame(() => {
      isDue.current = false
      setVersion((before) => before + 1)
    })
  }
  const run = (settings: Settings) => {
    isCancelled.current = false
    const race = new Race(settings, {
      baseUrl: new URL('../../', location.href).href,
      onChange,
    })
    const others = all.current.filter((one) => one.settings.experiment !== settings.experiment)
    all.current = [...others, race]
    setOutcome({ stage: 'running', error: '', trouble: null })
    onChange()
    race.done.then(
      () => setOutcome({ stage: 'finished', error: '', trouble: null }),
      (thrown) => {
        race.current.stage = isCancelled.current ? 'stopped' : 'failed'
        if (isCancelled.current) setOutcome({ stage: 'stopped', error: '', trouble: null })
        else setOutcome({ stage: 'failed', error: messageOf(thrown), trouble: troubleIn(thrown) })
      },
    )
  }
  const cancel = () => {
    isCancelled.current = true
    all.current.at(-1)?.cancel()
  }
  const races = all.current
  const race = races.at(-1) ?? null
  return { ...outcome, race, races, logs: race?.logs ?? [], version, run, cancel }
}

type Outcome = Pick<RaceState, 'stage' | 'error' | 'trouble'>

function troubleIn(thrown: unknown): Trouble | null {
  const isOfDevice =
    thrown instanceof Error && 'code' in thrown && thrown.code === 'gpu.unavailable'
  return isOfDevice ? troubleOf(thrown) : null
}
