import { checkSeed } from './replay.ts'
import { drawScenario, type WorldBounds } from './scenario.ts'
import { type Outcome, simulate } from './simulate.ts'
import type { Trace } from './trace.ts'

/** Max number of times that a seed's faults are drawn again because one of them would come after the end. */
const maxRedrawn = 40

/** Runs a seed's world, in which all faults were injected. errors: what was violated, and the command that replays it. */
export async function checkWorld(
  seed: number,
  bounds: WorldBounds,
  spec: string,
): Promise<Outcome> {
  for (let redrawn = 0; redrawn <= maxRedrawn; redrawn++) {
    const { faults } = drawScenario(seed, bounds, redrawn)
    const outcome = await checkSeed(seed, spec, (_, trace?: Trace) =>
      simulate(drawScenario(seed, bounds, redrawn), trace),
    )
    if (outcome.fired.length === faults.length) return outcome
  }
  throw new Error(`seed ${seed}: in ${maxRedrawn + 1} draws, not all faults struck`)
}
