import { checkSeed } from '../simulation/replay.ts'
import { files } from './files.ts'
import { frames } from './frames.ts'
import { http } from './http.ts'
import { signaling } from './signaling.ts'
import type { FuzzOutcome, FuzzTarget } from './target.ts'

/** Whatever takes bytes from strangers. */
export const targets: readonly FuzzTarget[] = [signaling, frames, files, http]

/** Attacks a target as a seed says. errors: what it has found, and the command that shows it again. */
export const checkTarget = (target: FuzzTarget, seed: number): Promise<FuzzOutcome> =>
  checkSeed(seed, `npm run fuzz -- ${target.name} --seed ${seed}`, (own, trace) =>
    target.run(own, trace),
  )
