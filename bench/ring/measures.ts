import type { ProcessGroup } from '../../src/peer/group/group.ts'
import { measureLinks } from '../../src/peer/group/measure-links.ts'
import type { BareLane } from './bare-lane.ts'
import type {
  CollectiveTask,
  HopsTask,
  LinksTaken,
  PingTask,
  RawTask,
  RingTask,
  RingTimes,
} from './protocol.ts'
import type { RawLane } from './raw-lane.ts'

/** A group, and what its links stand on: the bare pipes by rank, as far as they are data channels or ports. */
export interface Measured {
  readonly group: ProcessGroup
  readonly lanes: ReadonlyMap<number, RawLane>
  readonly bareLanes: ReadonlyMap<number, BareLane>
}

/** The bytes that a ring all-reduce of `sizeBytes` sends per rank. */
const ringBytes = ({ size }: ProcessGroup, sizeBytes: number) =>
  Math.round((2 * (size - 1) * sizeBytes) / size)

async function ringSample(
  { group }: Measured,
  data: Float32Array,
  repeats: number,
): Promise<number> {
  await group.barrier()
  const began = performance.now()
  for (let repeat = 0; repeat < repeats; repeat++) await group.allReduce(data)
  return (performance.now() - began) / repeats
}

/** One sample: as many bytes as the all-reduce moves, to whom it moves them, on all links at once and with nothing in between. units: ms. */
export async function raw(
  { group, lanes }: Measured,
  { sizeBytes, to, repeats }: RawTask,
): Promise<number> {
  const { rank, size } = group
  const at = (distance: number) => lanes.get((rank + distance + size) % size)!
  const outgoing = to === 'next' ? [at(1)] : [...lanes.values()]
  const incoming = to === 'next' ? [at(-1)] : outgoing
  const bytes = Math.round(ringBytes(group, sizeBytes) / outgoing.length)
  await group.barrier()
  const began = performance.now()
  for (let repeat = 0; repeat < repeats; repeat++) {
    for (const lane of outgoing) lane.send(bytes)
    await Promise.all(incoming.map((lane) => lane.receive(bytes)))
  }
  return (performance.now() - began) / repeats
}

function framesSent(group: ProcessGroup): { data: number; control: number } {
  const all = [...group.stats().links.values()]
  return {
    data: all.reduce((sum, { dataFramesSent }) => sum + dataFramesSent, 0),
    control: all.reduce((sum, { controlFramesSent }) => sum + controlFramesSent, 0),
  }
}

/** The ring beside the raw channels, in turns. */
export async function measure(
  measured: Measured,
  { sizeBytes, rounds, repeats, warmUps }: RingTask,
): Promise<RingTimes> {
  const { group } = measured
  const data = new Float32Array(sizeBytes / 4)
  const times: RingTimes = { ringMs: [], rawMs: [], frames: { data: 0, control: 0 } }
  for (let round = -warmUps; round < rounds; round++) {
    data.fill(group.rank + 1)
    const sample: Record<'ring' | 'raw', number> = { ring: 0, raw: 0 }
    const order = round % 2 === 0 ? (['ring', 'raw'] as const) : (['raw', 'ring'] as const)
    for (const kind of order) {
      if (kind === 'raw') {
        sample.raw = await raw(measured, { sizeBytes, to: 'next', repeats })
        continue
      }
      const before = framesSent(group)
      sample.ring = await ringSample(measured, data, repeats)
      const after = framesSent(group)
      times.frames = { data: after.data - before.data, control: after.control - before.control }
    }
    check(group, data, repeats)
    if (round < 0) continue
    times.ringMs.push(sample.ring)
    times.rawMs.push(sample.raw)
  }
  return times
}

/** A fast ring that adds wrongly is no ring. Each all-reduce multiplies the values, equal on all ranks, by the number of ranks. */
function check({ size }: ProcessGroup, data: Float32Array, repeats: number): void {
  const first = (size * (size + 1)) / 2
  const expected = Math.fround(first * size ** (repeats - 1))
  for (const at of [0, data.length >> 1, data.length - 1]) {
    if (Math.abs(data[at] / expected - 1) > 1e-5)
      throw new Error(`allReduce: expected ${expected} at element ${at}, got ${data[at]}.`)
  }
}

/** Times rounds: in each the ranks synchronize, then run the collective `repeats` times. */
export async function time({ group }: Measured, task: CollectiveTask): Promise<number[]> {
  const { operation, algorithm, sizeBytes, rounds, repeats, warmUps } = task
  const data = new Float32Array(sizeBytes / 4)
  const { choice } = group
  // As if the ranks were on two machines.
  const machines = group.ranks.map((rank) => Number(2 * rank >= group.size))
  if (algorithm === 'hierarchical') group.choice = { ...choice, machines }
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
    if (operation === 'allReduce') check(group, data, repeats)
    if (round >= 0) times.push(ms)
  }
  group.choice = choice
  return times
}

/** Round trips on rank 0, by round; the others return an empty list. */
export async function ping(
  { group, bareLanes }: Measured,
  { sizeBytes, rounds }: PingTask,
): Promise<number[]> {
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
export async function hops(
  { group, bareLanes }: Measured,
  { sizeBytes, to, hops: count, repeats }: HopsTask,
): Promise<number[]> {
  const { rank, size } = group
  const at = (distance: number) => bareLanes.get((rank + distance + size) % size)!
  const outgoing = to === 'next' ? [at(1)] : [...bareLanes.values()]
  const incoming = to === 'next' ? [at(-1)] : outgoing
  await group.barrier()
  const began = performance.now()
  for (let hop = 0; hop < count * repeats; hop++) {
    for (const lane of outgoing) lane.send(sizeBytes)
    await Promise.all(incoming.map((lane) => lane.receive()))
  }
  return [(performance.now() - began) / repeats]
}

/** What `measureLinks` takes, and finds; the group's choice stays. */
export async function links({ group }: Measured): Promise<LinksTaken> {
  const { choice } = group
  await group.barrier()
  const began = performance.now()
  const found = await measureLinks(group)
  const ms = performance.now() - began
  group.choice = choice
  return { ...found, ms }
}
