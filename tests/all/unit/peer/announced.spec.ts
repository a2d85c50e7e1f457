import { expect, test } from 'vitest'
import { ProcessGroup } from '../../../../src/peer/group/group.ts'
import { memoryPair } from '../../../../src/peer/link/memory-link.ts'
import { encodeFingerprint } from '../../../../src/peer/link/wire.ts'
import { Session } from '../../../../src/peer/session/session.ts'
import { VirtualEnv } from '../../../../src/util/virtual-env.ts'

test('a rank that announces collectives without end is named, and the group ends', async () => {
  const env = new VirtualEnv(1)
  const [near, far] = memoryPair(env, { delayMs: () => 0 })
  const links = new Map([[1, near]])
  const group = new ProcessGroup({ rank: 0, size: 2, epoch: 1, links, env })
  const liar = new Session({ link: far, env, epoch: 1, rank: 1, peerRank: 0, size: 2 })
  await env.advance(10)
  const facts = { elements: 1, alignment: 1, root: 0, reduction: 0, algorithm: 0, machines: 0 }
  const start = { begun: 1, fingerprint: encodeFingerprint({ ...facts, label: '' }) }
  for (let sequence = 0; sequence < 70_000 && !group.error; sequence++) {
    liar.sendStart({ kind: 0, group: 0, sequence, bucket: 0 }, start)
    if (sequence % 500 === 0) await env.advance(1)
  }
  expect(group.error?.message).toContain('rank 1: more than 65536 collectives announced')
}, 60_000)
