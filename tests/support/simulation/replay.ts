import { Trace } from './trace.ts'

/** The one seed that is asked for; undefined for all. */
const asked = process.env.TABRING_SEED ? Number(process.env.TABRING_SEED) : undefined

export const isReplay = asked !== undefined

/** Lines before and after the first violation. */
const shown = { before: 200, after: 60 }

/** Each kind of world has a million. */
const range = 1_000_000

/** `count` seeds from `first` on, or the one that is asked for if it is of this kind. */
export function seedsFrom(first: number, count: number): number[] {
  if (asked !== undefined) return asked >= first && asked < first + range ? [asked] : []
  return Array.from({ length: count }, (_, at) => first + at)
}

interface Checked {
  readonly violations: readonly string[]
}

/**
 * Runs a seed, and once more with a trace where it went wrong or is asked for. `replay`: the spec that has it, or the command that runs it again.
 *
 * errors: what was violated, and the command that replays it.
 */
export async function checkSeed<T extends Checked>(
  seed: number,
  replay: string,
  run: (seed: number, trace?: Trace) => Promise<T>,
): Promise<T> {
  const command = replay.startsWith('npm ') ? replay : `TABRING_SEED=${seed} npm test -- ${replay}`
  const howToReplay = `Replay it, with all that happened around it:\n  ${command}`
  const outcome = await run(seed).catch((cause) => {
    throw new Error(`seed ${seed}: ${cause}\n${howToReplay}`, { cause })
  })
  const { violations } = outcome
  if (violations.length === 0 && !isReplay) return outcome
  const trace = new Trace()
  const again = await run(seed, trace)
  if (again.violations.join() !== violations.join())
    throw new Error(
      `seed ${seed} gave "${violations.join('; ')}", then "${again.violations.join('; ')}": something in it does not depend on the seed alone`,
    )
  if (isReplay) console.log(around(trace))
  if (violations.length === 0) return outcome
  throw new Error(`seed ${seed}: ${violations.slice(0, 5).join('\n  ')}\n${howToReplay}`)
}

/** What happened around the first violation, or before the end. */
export function around({ lines }: Trace): string {
  const at = lines.findIndex((line) => line.includes('VIOLATION'))
  const centre = at < 0 ? lines.length : at
  return lines.slice(Math.max(0, centre - shown.before), centre + shown.after).join('\n')
}
