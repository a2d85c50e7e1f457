import { noTimes, type StepTimes } from '../plan/step-program.ts'

type StepPart = keyof StepTimes

/** Parts of a step that may overlap, in the order in which its time is given out. */
const parts: readonly StepPart[] = ['forward', 'backward', 'wire', 'optimizer', 'wait']

/**
 * Where the host's time of a step goes, moment by moment: each moment counts for the first of the parts that are going on then.
 *
 * So the parts add up to the step, and what overlaps a part further ahead costs nothing: an exchange shows only where backward does not
 * hide it, waiting only where nothing else is done. Time in no part is the optimizer's (moving its sums and results).
 */
export class StepClock {
  readonly #now: () => number
  readonly #goingOn: Record<StepPart, number> = { ...noTimes }
  #ms: Record<StepPart, number> = { ...noTimes }
  #sinceMs = 0

  constructor(now: () => number = () => performance.now()) {
    this.#now = now
  }

  begin(atMs = this.#now()): void {
    this.#ms = { ...noTimes }
    for (const part of parts) this.#goingOn[part] = 0
    this.#sinceMs = atMs
  }

  /** Begins `part`; the returned function ends it. */
  enter(part: StepPart): () => void {
    this.#charge()
    this.#goingOn[part]++
    return () => {
      this.#charge()
      this.#goingOn[part]--
    }
  }

  /** Runs an exchange: waiting until it calls `onAllBegun`, since all ranks have begun it, on the wire from then on. */
  async exchange<T>(run: (onAllBegun: () => void) => Promise<T>): Promise<T> {
    let leave = this.enter('wait')
    try {
      return await run(() => {
        leave()
        leave = this.enter('wire')
      })
    } finally {
      leave()
    }
  }

  /** Milliseconds by part since `begin`. */
  read(atMs = this.#now()): StepTimes {
    this.#charge(atMs)
    return { ...this.#ms }
  }

  #charge(now = this.#now()): void {
    const part = parts.find((candidate) => this.#goingOn[candidate] > 0) ?? 'optimizer'
    this.#ms[part] += now - this.#sinceMs
    this.#sinceMs = now
  }
}
