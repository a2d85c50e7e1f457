import { initProcessGroup } from '../../src/distributed/group/process-group.ts'
import { ProcessGroup } from '../../src/peer/group/group.ts'
import { ChannelLink } from '../../src/peer/link/channel.ts'
import { withLane } from '../../src/peer/link/lanes.ts'
import type { Link } from '../../src/peer/link/link.ts'
import { PortLink } from '../../src/peer/link/port.ts'
import { relayOver } from '../../src/peer/link/relay-link.ts'
import { systemEnv } from '../../src/util/env.ts'
import { messageOf } from '../../src/util/errors.ts'
import { BareLane } from './bare-lane.ts'
import { hops, measure, links as measuredLinks, ping, raw, time } from './measures.ts'
import { pipeTo } from './pipe-to.ts'
import type { FromWorker, ToWorker } from './protocol.ts'
import { RawLane } from './raw-lane.ts'

/** One rank: collectives and the bare links below them, in turns. Of a room's ring, or of a group that forms itself. */

const links = new Map<number, Link>()
const lanes = new Map<number, RawLane>()
const bareLanes = new Map<number, BareLane>()
let group: ProcessGroup

const post = (message: FromWorker) => postMessage(message)

function addBare(peerRank: number, pipe: RTCDataChannel | MessagePort): void {
  if (!(pipe instanceof MessagePort)) lanes.set(peerRank, new RawLane(pipe))
  bareLanes.set(peerRank, new BareLane(pipe))
}

function add({ peerRank, transport, lane }: Extract<ToWorker, { add: object }>['add']): void {
  if (transport.kind === 'channel') {
    const { channel } = transport
    links.set(peerRank, withLane(links.get(peerRank), new ChannelLink(channel), lane))
    if (lane === 0) addBare(peerRank, channel)
  } else if (transport.kind === 'port') {
    links.set(peerRank, new PortLink(transport.port))
    addBare(peerRank, transport.port)
  } else if (transport.kind === 'relay') links.set(peerRank, relayOver(transport.relay))
  else post({ failed: `expected a data channel that the worker owns, got "${transport.kind}".` })
}

async function begin(formed: ProcessGroup): Promise<void> {
  group = formed
  group.onfailure = (error) => post({ failed: error.message })
  await group.ready()
  await group.barrier()
}

async function init(options: Extract<ToWorker, { init: object }>['init']): Promise<void> {
  const formed = (await initProcessGroup(options)) as ProcessGroup
  for (const peer of formed.stats().links.keys()) {
    const pipe = pipeTo(formed, peer)
    if (pipe) addBare(peer, pipe)
  }
  await begin(formed)
}

addEventListener('message', async ({ data }: MessageEvent<ToWorker>) => {
  if ('add' in data) {
    add(data.add)
    return
  }
  const measured = { group, lanes, bareLanes }
  try {
    if ('begin' in data) {
      const { epoch, rank, worldSize } = data.begin
      await begin(new ProcessGroup({ rank, size: worldSize, epoch, links, env: systemEnv }))
      post({ ready: true })
    } else if ('init' in data) {
      await init(data.init)
      post({ ready: true })
    } else if ('time' in data) post({ timed: await time(measured, data.time) })
    else if ('ping' in data) post({ timed: await ping(measured, data.ping) })
    else if ('hops' in data) post({ timed: await hops(measured, data.hops) })
    else if ('raw' in data) post({ timed: [await raw(measured, data.raw)] })
    else if ('links' in data) post({ taken: await measuredLinks(measured) })
    else post({ measured: await measure(measured, data.measure) })
  } catch (thrown) {
    post({ failed: messageOf(thrown) })
  }
})
