import { describe, expect, it } from 'vitest'
import { jsMemoryOf } from '../../../src/ui/live/js-memory.ts'
import { choose, hold, release, secondsBack, shownOf } from '../../../src/ui/live/look-back.ts'
import { roundsPerSec } from '../../../src/ui/ring/pace.ts'
import { training } from '../../support/page-states.ts'

const runAfter = (steps: number) => training(2, steps).run!
const stepOf = (shown: ReturnType<typeof shownOf>) => shown.sets[shown.at][0].step

describe('the sampled step that is shown', () => {
  it('is the newest, unless somebody inspects it', () => {
    expect(stepOf(shownOf(null, runAfter(60)))).toBe(53)
    const held = hold(null, runAfter(60))
    expect(stepOf(shownOf(held, runAfter(200)))).toBe(53)
    expect(shownOf(held, runAfter(200)).isHeld).toBe(true)
    expect(hold(held, runAfter(200))).toBe(held)
    expect(release(held)).toBeNull()
  })

  it('an earlier one that was chosen stays after nobody inspects it', () => {
    const early = choose(null, runAfter(200), 1)
    expect(stepOf(shownOf(early, runAfter(300)))).toBe(28)
    expect(release(early)).toBe(early)
    expect(secondsBack(shownOf(early, runAfter(300)), 0)).toBeCloseTo(6, 6)
    // Beyond those that are kept, too: they are as they were when looking began.
    const many = { ...runAfter(300), sampledSteps: runAfter(300).sampledSteps.slice(-2) }
    expect(stepOf(shownOf(early, many))).toBe(28)
  })

  it('at the right end it is the newest that there is by now', () => {
    const early = choose(null, runAfter(200), 1)
    const last = choose(early, runAfter(300), early!.sets.length - 1)
    expect(stepOf(shownOf(last, runAfter(300)))).toBe(278)
    expect(release(last)).toBeNull()
    expect(choose(early, runAfter(300), -3)!.at).toBe(0)
  })

  it('is never one of an earlier run', () => {
    const early = choose(null, runAfter(200), 1)
    const next = { ...runAfter(60), id: 'another' }
    expect(shownOf(early, next)).toMatchObject({ isHeld: false })
    expect(stepOf(shownOf(hold(early, next), next))).toBe(53)
    expect(hold(null, { ...next, sampledSteps: [] })).toBeNull()
  })
})

describe('what JavaScript holds in a tab', () => {
  it('is the page and its workers, as Chromium answers', () => {
    const part = (bytes: number, type: string, scope?: string) => ({
      bytes,
      types: type ? [type] : [],
      attribution: scope ? [{ scope, url: 'http://localhost/' }] : [],
    })
    expect(
      jsMemoryOf([
        part(702_562, 'Shared'),
        part(120_104, 'DOM'),
        part(3_842_453, 'JavaScript', 'DedicatedWorkerGlobalScope'),
        part(273_426, 'JavaScript', 'DedicatedWorkerGlobalScope'),
        part(0, ''),
        part(3_471_616, 'Canvas', 'Window'),
        part(3_903_489, 'JavaScript', 'Window'),
      ]),
    ).toEqual({ page: 3_903_489, workers: 4_115_879 })
  })
})

describe('the dots of a link', () => {
  it('are faster the more it carries, within what can be seen', () => {
    const paces = [0, 100, 1e4, 1e6, 1e8, 1e12].map(roundsPerSec)
    expect(paces).toEqual([...paces].sort((a, b) => a - b))
    expect(paces[3] / paces[2]).toBeGreaterThan(1.3)
    expect(paces[0]).toBeGreaterThan(0.1)
    expect(paces[5]).toBeLessThan(2)
  })
})
