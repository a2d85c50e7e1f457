import { ChannelLink } from '../../src/peer/channel.ts'
import { linkOver } from '../../src/peer/channel-transport.ts'
import { ProcessGroup } from '../../src/peer/group.ts'
import { withLane } from '../../src/peer/lanes.ts'
import type { Link } from '../../src/peer/link.ts'
import { PortLink } from '../../src/peer/port.ts'
import { systemEnv } from '../../src/util/env.ts'
import { messageOf } from '../../src/util/errors.ts'
import { BareLane } from './bare-lane.ts'
import type {
  CollectiveTask,
  FromWorker,
  HopsTask,
  PingTask,
  RingTask,
  RingTimes,
  ToWorker,
} from './protocol.ts'
import { RawLane } from './raw-lane.ts'

/** One rank: collectives and the bare links below them, in turns. */

const links = new Map<number, Link>()
const lanes = new Map<number, RawLane>()
const bareLanes = new Map<number, BareLane>()
let group: ProcessGroup

const post = (message: FromWorker) => postMessage(message)

function add(peerRank: number, channel: RTCDataChannel, lane: number): void {
  links.set(peerRank, withLane(links.get(peerRank), new ChannelLink(channel), lane))
  if (lane > 0) return
  lanes.set(peerRank, new RawLane(channel))
  bareLanes.set(peerRank, new BareLane(channel))
}

function addPort(peerRank: number, port: MessagePort): void {
  links.set(peerRank, new PortLink(port))
  bareLanes.set(peerRank, new BareLane(port))
}

async function begin(epoch: number, rank: number, worldSize: number): Promise<void> {
  // As if the tabs were on two machines, for what goes inside a machine first.
  const machines = Array.from({ length: worldSize }, (_, one) => Number(2 * one >= worldSize))
  group = new ProcessGroup({ rank, size: worldSize, epoch, links, env: systemEnv, machines })
  group.onfailure = (error) => post({ failed: error.message })
  await group.ready()
  await group.barrier()
}

/** The bytes that a ring all-reduce of `sizeBytes` sends per rank. */
const ringBytes = (sizeBytes: number) => Math.round((2 * (group.size - 1) * sizeBytes) / group.size)

async function ringSample(data: Float32Array, repeats: number): Promise<number> {
  await group.barrier()
  const began = performance.now()
  for (let repeat = 0; repeat < repeats; repeat++) await group.allReduce(data)
  return (performance.now() - began) / repeats
}

/** As many bytes to the next rank and from the previous one as the ring moves, on all links at once. */
async function rawSample(sizeBytes: number, repeats: number): Promise<number> {
  const { rank, size } = group
  const next = lanes.get((rank + 1) % size)!
  const previous = lanes.get((rank + size - 1) % size)!
  const bytes = ringBytes(sizeBytes)
  await group.barrier()
  const began = performance.now()
  for (let repeat = 0; repeat < repeats; repeat++) {
    next.send(bytes)
    await previous.receive(bytes)
  }
  return (performance.now() - began) / repeats
}

function framesSent(): { data: number; control: number } {
  const all = [...group.stats().links.values()]
  return {
    data: all.reduce((sum, { dataFramesSent }) => sum + dataFramesSent, 0),
    control: all.reduce((sum, { controlFramesSent }) => sum + controlFramesSent, 0),
  }
}

async function measure({ sizeBytes, rounds, repeats, warmUps }: RingTask): Promise<RingTimes> {
  const data = new Float32Array(sizeBytes / 4)
  const times: RingTimes = { ringMs: [], rawMs: [], frames: { data: 0, control: 0 } }
  for (let round = -warmUps; round < rounds; round++) {
    data.fill(group.rank + 1)
    const sample: Record<'ring' | 'raw', number> = { ring: 0, raw: 0 }
    const order = round % 2 === 0 ? (['ring', 'raw'] as const) : (['raw', 'ring'] as const)
    for (const kind of order) {
      if (kind === 'raw') {
        sample.raw = await rawSample(sizeBytes, repeats)
        continue
      }
      const before = framesSent()
      sample.ring = await ringSample(data, repeats)
      const after = framesSent()
      times.frames = { data: after.data - before.data, control: after.control - before.control }
    }
    check(data, repeats)
    if (round < 0) continue
    times.ringMs.push(sample.ring)
    times.rawMs.push(sample.raw)
  }
  return times
}

/** A fast ring that adds wrongly is no ring. Each all-reduce multiplies what all ranks hold alike by their number. */
function check(data: Float32Array, repeats: number): void {
  const { size } = group
  const first = (size * (size + 1)) / 2
  const expected = Math.fround(first * size ** (repeats - 1))
  for (const at of [0, data.length >> 1, data.length - 1]) {
    if (Math.abs(data[at] / expected - 1) > 1e-5)
      throw new Error(`allReduce: expected ${expected} at element ${at}, got ${data[at]}.`)
  }
}

/** Each round: the ranks meet, then so many of the collective one after the other. */
async function time(task: CollectiveTask): Promise<number[]> {
  const { operation, algorithm, sizeBytes, rounds, repeats, warmUps } = task
  const data = new Float32Array(sizeBytes / 4)
  const run = () =>
    operation === 'broadcast'
      ? group.broadcast(data, 0, { algorithm })
      : group[operation](data, { algorithm })
  const times: number[] = []
  for (let round = -warmUps; round < rounds; round++) {
    data.fill(group.rank + 1)
    await group.barrier()
    const began = performance.now()
    for (let repeat = 0; repeat < repeats; repeat++) await run()
    const ms = (performance.now() - began) / repeats
    if (operation === 'allReduce') check(data, repeats)
    if (round >= 0) times.push(ms)
  }
  return times
}

/** The way there and back by round on rank 0; the others have nothing to tell. */
async function ping({ sizeBytes, rounds }: PingTask): Promise<number[]> {
  const times: number[] = []
  await group.barrier()
  if (group.rank > 1) return times
  const lane = bareLanes.get(1 - group.rank)!
  for (let round = 0; round < rounds; round++) {
    const began = performance.now()
    if (group.rank === 0) lane.send(sizeBytes)
    await lane.receive()
    if (group.rank === 1) lane.send(sizeBytes)
    else times.push(performance.now() - began)
  }
  return times
}

/** One sample: milliseconds of all hops. */
async function bareHops({ sizeBytes, to, hops, repeats }: HopsTask): Promise<number[]> {
  const { rank, size } = group
  const at = (distance: number) => bareLanes.get((rank + distance + size) % size)!
  const outgoing = to === 'next' ? [at(1)] : [...bareLanes.values()]
  const incoming = to === 'next' ? [at(-1)] : outgoing
  await group.barrier()
  const began = performance.now()
  for (let hop = 0; hop < hops * repeats; hop++) {
    for (const lane of outgoing) lane.send(sizeBytes)
    await Promise.all(incoming.map((lane) => lane.receive()))
  }
  return [(performance.now() - began) / repeats]
}

addEventListener('message', async ({ data }: MessageEvent<ToWorker>) => {
  if ('add' in data) {
    const { peerRank, transport, lane } = data.add
    if (transport.kind === 'channel') add(peerRank, transport.channel, lane)
    else if (transport.kind === 'port') addPort(peerRank, transport.port)
    else if (transport.kind === 'relay') links.set(peerRank, linkOver(transport))
    else post({ failed: `expected a data channel that the worker owns, got "${transport.kind}".` })
    return
  }
  try {
    if ('begin' in data) {
      const { epoch, rank, worldSize } = data.begin
      await begin(epoch, rank, worldSize)
      post({ ready: true })
    } else if ('time' in data) {
      post({ timed: await time(data.time) })
    } else if ('ping' in data) {
      post({ timed: await ping(data.ping) })
    } else if ('hops' in data) {
      post({ timed: await bareHops(data.hops) })
    } else {
      post({ measured: await measure(data.measure) })
    }
  } catch (thrown) {
    post({ failed: messageOf(thrown) })
  }
})
