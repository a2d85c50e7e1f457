import { afterAll, beforeAll } from 'vitest'
import { ProcessGroup } from '../../../../src/peer/group/group.ts'
import type { Link } from '../../../../src/peer/link/link.ts'
import { meshEdges, ringEdges } from '../../../../src/peer/room/edges.ts'
import { systemEnv } from '../../../../src/util/env.ts'
import { collectiveMatrix, type MatrixWorld } from '../../../support/collective-matrix.ts'
import { type RelayServer, startRelay } from '../../../support/relay-server.ts'

// The matrix over real sockets and a real server. All collectives of one size go over the same links, one after another.

let relay: RelayServer
const worlds = new Map<string, MatrixWorld>()
beforeAll(async () => {
  relay = await startRelay()
})
afterAll(async () => {
  for (const { groups } of worlds.values()) for (const group of groups) group.destroy()
  await relay.close()
})

/** Groups whose links are still being made, which their first messages wait for. */
function join(kind: string, size: number): ProcessGroup[] {
  const links = Array.from({ length: size }, () => new Map<number, Link>())
  for (const [from, to] of kind === 'ring' ? ringEdges(size) : meshEdges(size)) {
    const channel = `${kind} ${size} ${from} ${to}`
    const more = { maxMessageBytes: 1024 }
    links[from].set(to, relay.end(channel, 0, more))
    links[to].set(from, relay.end(channel, 1, more))
  }
  return links.map(
    (own, rank) => new ProcessGroup({ rank, size, epoch: 1, links: own, env: systemEnv }),
  )
}

const world = (kind: string) => (size: number) => {
  const key = `${kind} ${size}`
  const found = worlds.get(key) ?? { groups: join(kind, size), until: (all) => all }
  worlds.set(key, found)
  return found
}

collectiveMatrix({ sizes: [2, 3, 4], links: { ring: world('ring'), all: world('all') } })
