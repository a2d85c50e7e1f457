import { describe, expect, it } from 'vitest'
import { SendWindow } from '../../../src/peer/session/credit.ts'
import { VirtualEnv } from '../../../src/util/virtual-env.ts'

describe('frames under way', () => {
  it('are counted one by one, small ones too', () => {
    const window = new SendWindow()
    window.windowBytes = 200_000
    for (let i = 0; i < 3; i++) window.sent(60_000)
    for (let i = 0; i < 40; i++) window.sent(30)
    expect(window.inFlightFrames).toBe(43)
    window.take(180_000)
    expect(window.inFlightFrames).toBe(40)
    window.take(181_200)
    expect(window.inFlightFrames).toBe(0)
  })

  it('are those whose last byte has no credit yet, and credit wraps at 32 bits', () => {
    const env = new VirtualEnv(5)
    const window = new SendWindow()
    window.windowBytes = 2 ** 32
    let left: number[] = []
    let sentBytes = 0
    let credited = 0
    for (let round = 0; round < 2000; round++) {
      const count = Math.floor(env.chance() * 40)
      for (let i = 0; i < count; i++) {
        const bytes = 24 + Math.floor(env.chance() ** 4 * 900_000)
        window.sent(bytes)
        sentBytes += bytes
        left.push(sentBytes)
      }
      // Credit comes for parts of frames too, and now and then for all.
      const share = round % 100 === 99 ? 1 : env.chance()
      credited += Math.floor(share * (sentBytes - credited))
      window.take(credited >>> 0)
      left = left.filter((end) => end > credited)
      expect(window.inFlightFrames).toBe(left.length)
    }
    expect(left).toEqual([])
    expect(credited).toBeGreaterThan(2 ** 32)
  })
})
