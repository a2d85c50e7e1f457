import { expect, test } from 'vitest'
import { LeftOutRanks } from '../../../../src/ddp/hooks/left-out.ts'
import { honestNorms } from '../../../support/honest-norms.ts'

test.each([3, 8])(
  '%d honest strangers with uneven data are not left out in 100,000 steps, in a new group after each 500',
  { timeout: 300_000 },
  (size) => {
    let ranks = new LeftOutRanks('strangers')
    let step = 0
    for (const norms of honestNorms(size, 100 + size)) {
      const { ranks: found } = ranks.judge(0, 68, norms)
      if (found.length > 0) expect.fail(`step ${step}: ${found} of ${norms.claimed}`)
      if (++step === 100_000) break
      if (step % 500 > 0) continue
      const limits = ranks.stateDict()
      ranks = new LeftOutRanks('strangers')
      ranks.loadStateDict(limits)
    }
  },
)
