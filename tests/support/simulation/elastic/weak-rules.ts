import { vi } from 'vitest'
import type * as rights from '../../../../src/peer/elastic/rights.ts'
import type * as rosters from '../../../../src/peer/elastic/roster.ts'
import { memberOf } from '../../../../src/peer/room/lives.ts'
import type * as servers from '../../../../src/peer/server/halves.ts'
import type * as signers from '../../cheap-signer.ts'
import type { ElasticScenario } from './plan.ts'

type Judge = typeof rosters.judge
/** A module that lacks a rule. */
interface Weakness {
  readonly path: string
  readonly of: (real: never) => object
}

const judging = (weaken: (judge: Judge) => Judge): Weakness => ({
  path: '../../../../src/peer/elastic/roster.ts',
  of: (real: typeof rosters) => ({ ...real, judge: weaken(real.judge) }),
})

/** Rules that each lack something, by what they lack or allow: the simulator must find out. */
export const weakRules = {
  /** Members that are missing count as dead. */
  minority: judging((judge) => (evidence) => {
    const verdict = judge(evidence)
    if (verdict.kind !== 'missing') return verdict
    const gone = verdict.missing.map((id) => [id, 0] as const)
    return judge({ ...evidence, dead: new Map([...evidence.dead, ...gone]) })
  }),
  /** Each of two halves continues. */
  half: judging((judge) => (evidence) => {
    const verdict = judge(evidence)
    if (verdict.kind !== 'half') return verdict
    return { ...verdict, kind: 'agreed' }
  }),
  /** The newest roster counts alone, without those before it. */
  chain: judging((judge) => (evidence) => {
    const proved = [...evidence.reports].map(
      ([id, one]) => [id, { ...one, proved: one.roster?.ballot ?? 0 }] as const,
    )
    return judge({ ...evidence, reports: new Map(proved) })
  }),
  /** Every member with a link may say anything. */
  'no rights': {
    path: '../../../../src/peer/elastic/rights.ts',
    of: (real: typeof rights) => ({ ...real, breachOf: () => null }),
  },
  /** A member that passes a message on may change it, and invent others. */
  'no signatures': {
    path: '../../cheap-signer.ts',
    of: (real: typeof signers) => ({
      ...real,
      cheapSigner: (...of: Parameters<typeof real.cheapSigner>) => ({
        ...real.cheapSigner(...of),
        verify: async () => true,
      }),
    }),
  },
  /** A server that is another process than before takes the first half that asks for the first. */
  'new server': {
    path: '../../../../src/peer/server/halves.ts',
    of: ({ Halves }: typeof servers) => ({
      Halves: class extends Halves {
        override first(half: Parameters<typeof Halves.prototype.first>[0]) {
          for (const life of half.alive) this.heard(memberOf(life))
          return super.first(half, { ballot: 0, members: [] })
        }
      },
    }),
  },
} satisfies Record<string, Weakness>

/** What the first of the worlds violates that fails with that weakness; empty where none does. */
export async function violationOf(
  { path, of }: Weakness,
  worlds: readonly ElasticScenario[],
): Promise<string> {
  vi.resetModules()
  vi.doMock(path, async (original) => of((await original()) as never))
  try {
    const { simulateElastic } = await import('./elastic.ts')
    for (const world of worlds) {
      const { violations } = await simulateElastic(world)
      if (violations.length > 0) return violations.join()
    }
    return ''
  } finally {
    vi.doUnmock(path)
    vi.resetModules()
  }
}
