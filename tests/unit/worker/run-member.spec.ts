import { expect, it } from 'vitest'
import { type ElasticMessage, encodeElasticMessage } from '../../../src/peer/elastic/messages.ts'
import type { ProcessGroup } from '../../../src/peer/group/group.ts'
import { EpochLinks } from '../../../src/peer/link/epoch-link.ts'
import { memoryPair } from '../../../src/peer/link/memory-link.ts'
import { VirtualEnv } from '../../../src/util/virtual-env.ts'
import type { RunEvent } from '../../../src/worker/api.ts'
import { RunMember } from '../../../src/worker/compute/run-member.ts'
import { cheapSigner } from '../../support/cheap-signer.ts'

/** Rank 0 of `size`, and the other ends of its links to the ranks after it. `happened`: its events, and the sizes of the groups that it has joined. */
function makeMember(size = 2, linked = 1) {
  const env = new VirtualEnv(1)
  const members = Array.from({ length: size }, (_, rank) => String.fromCharCode(97 + rank))
  const ids = members.map((member) => `${member}.1`)
  const pairs = Array.from({ length: linked }, () => memoryPair(env))
  const happened: (RunEvent | number)[] = []
  const elastic = new RunMember({
    env,
    place: {
      self: 'a.1',
      ids,
      members,
      machines: members,
      former: null,
    },
    signer: cheapSigner('a.1', env),
    membership: { epoch: 1, rank: 0, worldSize: size },
    links: new Map(pairs.map(([own], at) => [at + 1, own])),
    signal: new AbortController().signal,
    join: async ({ worldSize }) => {
      happened.push(worldSize)
      return {} as ProcessGroup
    },
    report: (event) => happened.push(event),
    request: () => undefined,
  })
  return { env, elastic, ids, others: pairs.map(([, other]) => other), happened }
}

it('names the member that broke the rules, and how', async () => {
  const { env, elastic, others, happened } = makeMember()
  const links = new EpochLinks(others[0]!)
  links.control(encodeElasticMessage({ type: 'hello', id: 'b.1' }))
  links.control(encodeElasticMessage({ type: 'bye', entered: 2 ** 31, isDone: false, why: '' }))
  await env.advance(100)
  elastic.end(false)
  const what = 'entered a roster that nobody has called for'
  expect(happened).toContainEqual({ event: 'broke', who: 'b.1', what, rank: 0 })
})

it('the first group does not wait for a member that is dead', async () => {
  const { env, elastic, happened } = makeMember()
  elastic.memberIsDead('b')
  await env.advance(200)
  await elastic.first()
  expect(happened).toMatchObject([{ event: 'roster', members: ['a.1'], rank: 0 }, 1])
})

it('the end of another life with the id of a rank leaves the rank in the run', async () => {
  const { env, elastic, others, happened } = makeMember()
  const [own, other] = memoryPair(env)
  other.onmessage = () => undefined
  const newcomers = [{ rank: 2, id: 'b.2', machine: 'x' }]
  elastic.admit({ epoch: 2, newcomers }, new Map([[2, own]]))
  const ended: string[] = []
  others[0]!.onmessage = () => undefined
  others[0]!.onend = () => ended.push('that of the rank')
  other.onend = () => ended.push('that of the tab')
  elastic.memberIsDead('b.2')
  await env.advance(1000)
  expect(ended).toEqual(['that of the tab'])
  expect(happened).toEqual([])
  elastic.end(false)
})

it('the server cannot end a link by naming another tab by its member, in an earlier epoch', async () => {
  const { env, elastic, ids, others } = makeMember()
  const [, rank] = ids
  const ended: string[] = []
  const name = (id: string, epoch: number) => {
    const [own, other] = memoryPair(env)
    other.onend = () => ended.push(id)
    elastic.admit({ epoch, newcomers: [{ rank: 0, id, machine: 'x' }] }, new Map([[0, own]]))
  }
  others[0]!.onend = () => ended.push('that of the rank')
  name('c.3', 3)
  for (const epoch of [1, 3]) name(rank!, epoch)
  await env.advance(10)
  expect(ended).toEqual([rank, rank])
  elastic.end(false)
})

it('a member of a ring that floods signals does not keep others from being linked', async () => {
  const { env, elastic, ids, others, happened } = makeMember(18, 2)
  const [leader, flood] = others.map((one) => new EpochLinks(one))
  const say = (from: EpochLinks, message: ElasticMessage) =>
    from.control(encodeElasticMessage(message))
  const ballot = 2 ** 17
  const signal = (data: string) => ({ type: 'signal', ballot, attempt: 1, data }) as const
  for (let count = 0; count < 300; count++) say(flood!, signal('a lie'))
  say(leader!, signal('an offer'))
  say(leader!, { type: 'call', ballot, entered: 1, isPlanned: false })
  const before = [{ ballot: 1, members: ids }]
  say(leader!, { type: 'roster', roster: { ballot, members: ids, before, isRing: true } })
  const next = elastic.after({ error: new Error('a member was lost') } as unknown as ProcessGroup)
  next.catch(() => undefined)
  await env.advance(100)
  elastic.end(false)
  const heard = happened.filter((one) => typeof one === 'object' && one.event === 'signal')
  expect(heard).toContainEqual(expect.objectContaining({ from: 1, data: 'an offer' }))
  expect(heard.length).toBeLessThan(64)
})
