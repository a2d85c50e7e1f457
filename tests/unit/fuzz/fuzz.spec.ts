import { expect, test } from 'vitest'
import { checkTarget, targets } from '../../support/fuzz/targets.ts'
import { Trace } from '../../support/simulation/trace.ts'

// A share of the attacks, the same each time; tests/all/unit/fuzz/fuzz.spec.ts runs more, and `npm run fuzz` as many as you like.

const seeds: Readonly<Record<string, number>> = { signaling: 10, frames: 40, files: 120, http: 2 }

test.each(targets)('$name: the first seeds of $about', async (target) => {
  let fed = 0
  for (let seed = 1; seed <= seeds[target.name]!; seed++) {
    const { counts } = await checkTarget(target, seed)
    fed += Object.values(counts).reduce((sum, count) => sum + count, 0)
  }
  expect(fed).toBeGreaterThan(seeds[target.name]!)
})

// A server's sockets answer when they do.
test.each(targets.filter(({ name }) => name !== 'http'))(
  '$name: a seed decides all that is fed in',
  async ({ run }) => {
    const traces = [new Trace(), new Trace()]
    for (const trace of traces) await run(20, trace)
    expect(traces[0]!.lines.length).toBeGreaterThan(2)
    expect(traces[0]!.lines).toEqual(traces[1]!.lines)
  },
)
