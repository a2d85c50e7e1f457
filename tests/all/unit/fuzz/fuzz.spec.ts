import { test } from 'vitest'
import { checkTarget, targets } from '../../../support/fuzz/targets.ts'

// Other seeds than those of tests/unit/fuzz/fuzz.spec.ts. `npm run fuzz -- --minutes 60` runs as many as fit.

const first = 1001
const seeds: Readonly<Record<string, number>> = {
  signaling: 1000,
  frames: 2500,
  files: 25_000,
  http: 100,
}

test.each(targets)(
  '$name: many seeds of $about',
  async (target) => {
    for (let seed = first; seed < first + seeds[target.name]!; seed++)
      await checkTarget(target, seed)
  },
  600_000,
)
