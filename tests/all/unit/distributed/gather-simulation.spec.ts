import { afterAll, describe, expect, test } from 'vitest'
import { type Gathered, gatherRanks } from '../../../../src/distributed/rendezvous/gather-ranks.ts'
import { HashStore } from '../../../../src/peer/store/hash-store.ts'
import { PrefixStore } from '../../../../src/peer/store/prefix-store.ts'
import { VirtualEnv } from '../../../../src/util/virtual-env.ts'
import { Draw } from '../../../support/simulation/draw.ts'
import {
  checkGathering,
  type FaultKind,
  faultKinds,
  joinTimeoutMs,
  Tab,
} from '../../../support/simulation/gathering.ts'
import { isReplay, seedsFrom } from '../../../support/simulation/replay.ts'

const spec = 'tests/all/unit/distributed/gather-simulation.spec.ts'

const injected = new Map<FaultKind, number>()
const counts = { formed: 0, failed: 0, lateRounds: 0 }

const range = { first: 5_000_001, count: 600 }

test(`${range.count} seeds of 1 to 64 ranks`, async () => {
  for (const seed of seedsFrom(range.first, range.count)) {
    const { fault, formed, failed, lateRounds } = await checkGathering(seed, spec)
    if (fault) injected.set(fault.kind, (injected.get(fault.kind) ?? 0) + 1)
    counts.formed += formed
    counts.failed += failed
    counts.lateRounds += lateRounds
  }
}, 120_000)

describe.skipIf(isReplay)('over all seeds', () => {
  test.each(faultKinds)('%s was injected', (kind) => {
    expect(injected.get(kind) ?? 0).toBeGreaterThanOrEqual(30)
  })
})

test.skipIf(isReplay)(
  '5,000 ranks in 100 groups of one store, and 512 in one, at once',
  async () => {
    const env = new VirtualEnv(3)
    const store = new HashStore({ env })
    const draw = new Draw(3)
    const joining: Promise<Gathered>[] = []
    const sizes = [...Array.from({ length: 100 }, () => 50), 512]
    sizes.forEach((size, group) => {
      const own = new PrefixStore(`group ${group}`, store)
      for (const rank of draw.shuffled(Array.from({ length: size }, (_, one) => one))) {
        const comesMs = draw.share() * 10_000
        const tab = new Tab(env, () => draw.share() * 20, undefined)
        joining.push(
          new Promise((resolve, reject) => {
            env.after(comesMs, () => {
              gatherRanks({
                store: tab.over(own),
                env,
                rank,
                terms: { worldSize: size, backend: 'auto', topology: 'auto', relay: 'off' },
                place: {
                  pageTag: '',
                  hostTag: '',
                  nodeTag: '',
                  hasWebRtc: true,
                  hasRelay: false,
                  name: `tab ${rank}`,
                },
                joinTimeoutMs,
              }).then(resolve, reject)
            })
          }),
        )
      }
    })
    const all = await env.until(Promise.all(joining))
    expect(all).toHaveLength(5512)
    for (const { round, members, rank } of all) {
      expect(round).toBe(0)
      expect(members[rank]!.name).toBe(`tab ${rank}`)
    }
    expect(env.now()).toBeLessThan(20_000)
  },
  60_000,
)

afterAll(() => {
  if (process.env.TABRING_COUNTS) console.log(Object.fromEntries(injected), counts)
})
