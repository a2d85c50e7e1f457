import { expect, it } from 'vitest'
import { encodeCrewMessage } from '../../../src/peer/crew/messages.ts'
import type { ProcessGroup } from '../../../src/peer/group/group.ts'
import { EpochLinks } from '../../../src/peer/link/epoch-link.ts'
import { memoryPair } from '../../../src/peer/link/memory-link.ts'
import { isRankLost } from '../../../src/trainer/loop/recovery.ts'
import { VirtualEnv } from '../../../src/util/virtual-env.ts'
import type { RunEvent } from '../../../src/worker/api.ts'
import { RunCrew } from '../../../src/worker/compute/run-crew.ts'
import { cheapSigner } from '../../support/cheap-signer.ts'

/** Rank 0 of two, and its link's other end. `happened`: what it has told, and the sizes of the groups that it has joined. */
function makeCrew() {
  const env = new VirtualEnv(1)
  const [own, other] = memoryPair(env)
  const happened: (RunEvent | number)[] = []
  const crew = new RunCrew({
    env,
    place: {
      self: 'a.1',
      ids: ['a.1', 'b.1'],
      members: ['a', 'b'],
      machines: ['a', 'b'],
      former: null,
    },
    signer: cheapSigner('a.1', env),
    membership: { epoch: 1, rank: 0, worldSize: 2 },
    links: new Map([[1, own]]),
    signal: new AbortController().signal,
    join: async ({ worldSize }) => {
      happened.push(worldSize)
      return {} as ProcessGroup
    },
    tell: (event) => happened.push(event),
    wish: () => undefined,
    isRankLost,
  })
  return { env, crew, other, happened }
}

it('tells who broke the rules, and how', async () => {
  const { env, crew, other, happened } = makeCrew()
  const links = new EpochLinks(other)
  links.control(encodeCrewMessage({ type: 'hello', id: 'b.1' }))
  links.control(encodeCrewMessage({ type: 'bye', entered: 2 ** 31, isDone: false, why: '' }))
  await env.advance(100)
  crew.end(false)
  const what = 'entered a roster that nobody has called for'
  expect(happened).toContainEqual({ event: 'broke', who: 'b.1', what, rank: 0 })
})

it('a member that is dead before the first group is not waited for', async () => {
  const { crew, happened } = makeCrew()
  crew.memberIsDead('b', 1)
  await crew.first()
  expect(happened).toMatchObject([{ event: 'roster', members: ['a.1'], rank: 0 }, 1])
})
