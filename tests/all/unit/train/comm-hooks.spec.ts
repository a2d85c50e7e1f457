import { expect, test } from 'vitest'
import { classifiersOf, endAll, parametersOf, train } from '../../../support/classification.ts'
import {
  band,
  broken,
  builtIn,
  byteTests,
  type Register,
  runtime,
} from '../../../support/comm-hooks.ts'
import { meshOf } from '../../../support/process-ring.ts'

// More ranks than tests/unit/train/comm-hooks.spec.ts has.

byteTests([2, 4, 5])

test('5 ranks: every hook is in the band of the plain run', async () => {
  const end = async (register?: Register) => {
    const ranks = await classifiersOf(await meshOf(5), runtime, register)
    const loss = await train(ranks, 25)
    const [first, ...others] = await parametersOf(ranks)
    endAll(ranks)
    for (const own of others) expect(own).toEqual(first)
    return loss
  }
  const reference = await end()
  for (const [name, register] of Object.entries(builtIn)) {
    const loss = await end(register)
    expect(Math.abs(loss - reference), `${name}: ${loss}`).toBeLessThanOrEqual(band * reference)
  }
  const lost = await end((ddp) => ddp.registerCommHook(null, broken))
  expect(Math.abs(lost - reference), `broken: ${lost}`).toBeGreaterThan(band * reference)
}, 120_000)
