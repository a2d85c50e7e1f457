import { vi } from 'vitest'
import type * as rules from '../../../../src/peer/crew/roster.ts'
import type { Cell } from './plan.ts'

type Judge = typeof rules.judge
type Weaken = (judge: Judge) => Judge

/** Rules that each lack something, by what they lack or allow: the simulator must find out. */
export const weakRules = {
  /** Members that are missing count as dead. */
  minority: (judge) => (leader, reports, dead, most) => {
    const verdict = judge(leader, reports, dead, most)
    if (verdict.kind !== 'missing') return verdict
    const gone = verdict.missing.map((id) => [id, 0] as const)
    return judge(leader, reports, new Map([...dead, ...gone]), most)
  },
  /** Each of two halves continues. */
  half: (judge) => (leader, reports, dead, most) => {
    const verdict = judge(leader, reports, dead, most)
    if (verdict.kind !== 'half') return verdict
    return { kind: 'agreed', members: verdict.members, before: verdict.before }
  },
  /** The newest roster counts alone, without those before it. */
  chain: (judge) => (leader, reports, dead, most) => {
    const proved = [...reports].map(
      ([id, one]) => [id, { ...one, proved: one.roster?.ballot ?? 0 }] as const,
    )
    return judge(leader, new Map(proved), dead, most)
  },
} satisfies Record<string, Weaken>

const path = '../../../../src/peer/crew/roster.ts'

/** What the first seed violates that fails where the rules are weakened; empty where none of `count` does. */
export async function violationOf(
  weaken: Weaken,
  draw: { first: number; count: number; cell?: Cell | undefined; most?: number },
): Promise<string> {
  vi.resetModules()
  vi.doMock(path, async (original) => {
    const real = await original<typeof rules>()
    return { ...real, judge: weaken(real.judge) }
  })
  try {
    const { simulateElastic } = await import('./elastic.ts')
    const { drawElastic } = await import('./plan.ts')
    for (let seed = draw.first; seed < draw.first + draw.count; seed++) {
      const { violations } = await simulateElastic(drawElastic(seed, draw))
      if (violations.length > 0) return violations.join()
    }
    return ''
  } finally {
    vi.doUnmock(path)
    vi.resetModules()
  }
}
