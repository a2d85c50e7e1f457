import { expect, test } from 'vitest'
import { LeftOutRanks } from '../../../../src/ddp/hooks/left-out.ts'
import { honestNorms } from '../../../support/honest-norms.ts'

test.each([3, 8])(
  '%d honest strangers with uneven data are not left out in 100,000 steps',
  { timeout: 300_000 },
  (size) => {
    const ranks = new LeftOutRanks('strangers')
    let step = 0
    for (const norms of honestNorms(size, 100 + size)) {
      const { ranks: found } = ranks.judge(0, norms)
      if (found.length > 0) expect.fail(`step ${step}: ${found} of ${norms}`)
      if (++step === 100_000) break
    }
  },
)
