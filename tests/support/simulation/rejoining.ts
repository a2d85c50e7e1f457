import { ProcessGroup } from '../../../src/peer/group/group.ts'
import { Rejoining } from '../../../src/peer/group/rejoin.ts'
import type { Link } from '../../../src/peer/link/link.ts'
import { type Fault, type MemoryLink, memoryPair } from '../../../src/peer/link/memory-link.ts'
import { FrameType, fieldOffset } from '../../../src/peer/link/wire.ts'
import { sessionDefaults } from '../../../src/peer/session/session-config.ts'
import { messageOf, PeerError } from '../../../src/util/errors.ts'
import { VirtualEnv } from '../../../src/util/virtual-env.ts'
import { Draw } from './draw.ts'
import { drawOperation, type Operation } from './operations.ts'
import { launchOrder } from './scenario.ts'
import type { Trace } from './trace.ts'

/** What a seed of groups that follow one another came to. */
export interface RejoiningOutcome {
  readonly violations: readonly string[]
  /** Groups that ended by a lost device, and those of them in which a rank lost it before all had joined. */
  readonly lost: number
  readonly lostWhileJoining: number
  /** Frames of earlier epochs that were sent again in later ones, and those that sessions dropped. */
  readonly stale: number
  readonly dropped: number
}

const firstEpoch = 3

const epochOf = (message: Uint8Array<ArrayBuffer>): number =>
  new DataView(message.buffer, message.byteOffset).getUint32(fieldOffset.epoch, true)

/**
 * Ranks that lose their devices in the middle of their collectives, time and again, and continue in the following group over the
 * same links, where frames of the groups before keep coming. What ends well must be right, and the last group's all must.
 */
export async function simulateRejoining(seed: number, trace?: Trace): Promise<RejoiningOutcome> {
  const draw = new Draw(seed)
  const env = new VirtualEnv(seed)
  const size = draw.whole(2, 6)
  const isMesh = draw.isOneIn(2)
  const violations: string[] = []
  const groups = new Map<number, ProcessGroup[]>()
  const count = { lost: 0, lostWhileJoining: 0, stale: 0 }
  const note = (text: string) => trace?.note(env.now(), text)

  // What a rank loses in the nth group, how long after it has joined, or after it began to join.
  const losses = Array.from({ length: draw.whole(1, 3) }, () => ({
    rank: draw.whole(0, size - 1),
    ms: draw.whole(0, draw.pick([0, 10, 200])),
    isWhileJoining: draw.isOneIn(3),
  }))
  let serial = 0
  const machines = Array.from({ length: size }, () => draw.whole(0, 1))
  const shape = { index: 0, size, machines, isFullyLinked: isMesh || size < 4 }
  const rounds = Array.from({ length: losses.length + 1 }, () =>
    Array.from({ length: draw.whole(1, 5) }, (): Operation => {
      serial += 1
      return drawOperation(draw, shape, serial, 6000)
    }),
  )
  const last = rounds.length - 1
  const roundOf = (epoch: number) => (epoch - firstEpoch) / 2 ** 16

  const windows = draw.pick([2048, 8192])
  const jitterMs = draw.pick([1, 5])
  const links = Array.from({ length: size }, () => new Map<number, Link>())
  const stale = draw.whole(1, 6)
  const transports: MemoryLink[] = []
  for (let a = 0; a < size; a++)
    for (let b = a + 1; b < size; b++) {
      if (!isMesh && b !== a + 1 && b - a !== size - 1) continue
      const again: Uint8Array<ArrayBuffer>[] = []
      let isAgain = false
      const watch = (from: number, to: number): Fault => ({
        kind: 'drop',
        matches: (message) => {
          trace?.frame(env.now(), from, to, message)
          const type = message[fieldOffset.type]
          const isKept = type === FrameType.data || type === FrameType.start
          if (from === a && isKept && !isAgain && again.length < stale) again.push(message.slice())
          return false
        },
      })
      const [there, back] = memoryPair(env, {
        delayMs: () => 1 + Math.floor(env.chance() * 2 * jitterMs) / 2,
        maxMessageBytes: 1024,
        forward: [watch(a, b)],
        backward: [watch(b, a)],
      })
      links[a]!.set(b, there)
      links[b]!.set(a, back)
      transports.push(there, back)
      // As if they had been on their way all the time: once the other side is in a later epoch.
      const newest = () => groups.get(b)?.at(-1)?.epoch ?? 0
      for (let ms = 5; ms < 3000; ms *= 1.5)
        env.after(ms, () => {
          const old = again.filter((message) => epochOf(message) < newest())
          for (const message of old) {
            again.splice(again.indexOf(message), 1)
            count.stale += 1
            isAgain = true
            there.send(message.slice())
            isAgain = false
          }
        })
    }

  const lose = (group: ProcessGroup, round: number, rank: number) => {
    const loss = losses[round]
    if (loss?.rank !== rank) return
    env.after(loss.ms, () => {
      if (group.error) return
      count.lost += 1
      if (loss.isWhileJoining) count.lostWhileJoining += 1
      note(`!! rank ${rank} loses its device in epoch ${group.epoch}`)
      group.abort(new PeerError('gpu.lost', `rank ${rank} lost its device`))
    })
  }

  const play = async (rank: number) => {
    const own = new Draw(seed, rank + 1)
    const mine: ProcessGroup[] = []
    groups.set(rank, mine)
    const ring = new Rejoining({
      epoch: firstEpoch,
      links: links[rank]!,
      follows: ({ code }) => code === 'gpu.lost',
      join: async (epoch, open) => {
        mine.at(-1)?.destroy()
        const windowBytes = { ...sessionDefaults.windowBytes, memory: windows }
        // A rank may be late in each round, and those that wait for it stand still as long as that adds up to.
        const config = { deadlineMs: 60_000, session: { windowBytes, helloMs: 60_000 } }
        const group = new ProcessGroup({ rank, size, epoch, links: open, env, machines, config })
        mine.push(group)
        const round = roundOf(epoch)
        if (losses[round]?.isWhileJoining) lose(group, round, rank)
        await group.ready()
        if (!losses[round]?.isWhileJoining) lose(group, round, rank)
        return group
      },
    })
    let group = await ring.first()
    for (;;) {
      const round = roundOf(group.epoch)
      const begun: Promise<void>[] = []
      for (const operation of launchOrder(own, rounds[round]!)) {
        if (own.isOneIn(3)) await sleep(own.whole(0, 30))
        if (operation.ranks.includes(rank)) begun.push(run(rank, group, operation, round))
      }
      await Promise.all(begun)
      if (round === last) break
      await group.failed
      // Some ranks come to it late, but for a lost device nobody waits longer than a heartbeat may be missing.
      if (own.isOneIn(3)) await sleep(own.whole(0, 12_000))
      group = await ring.after(group)
    }
    await group.leave()
  }
  const sleep = (ms: number) => new Promise<void>((resolve) => env.after(ms, resolve))
  const run = async (rank: number, group: ProcessGroup, operation: Operation, round: number) => {
    note(`rank ${rank} begins ${operation.name} in epoch ${group.epoch}`)
    const call = operation.start(rank, group, () => undefined, false)
    try {
      await call.promise
      if (!call.isRight())
        violations.push(`rank ${rank}: ${operation.name} ended well with a wrong result`)
    } catch (error) {
      const isLoss = error instanceof PeerError && error.code === 'gpu.lost'
      if (!isLoss || round === last)
        violations.push(`rank ${rank}: ${operation.name} in round ${round}: ${messageOf(error)}`)
    }
  }

  const everyone = Promise.all(Array.from({ length: size }, (_, rank) => play(rank)))
  try {
    await env.until(everyone, 200_000)
  } catch (thrown) {
    violations.push(messageOf(thrown))
  }
  let dropped = 0
  for (const [rank, all] of groups) {
    const epochs = all.map(({ epoch }) => roundOf(epoch))
    if (epochs.some((epoch, at) => epoch !== at))
      violations.push(`rank ${rank} was in groups ${epochs.join()}`)
    for (const group of all)
      for (const { foreignEpochFrames } of group.stats().links.values())
        dropped += foreignEpochFrames
    for (const group of all) group.destroy()
  }
  await env.advance(70_000)
  if (env.timers > 0 && violations.length === 0) violations.push(`${env.timers} timers are left`)
  return { violations, ...count, dropped }
}
