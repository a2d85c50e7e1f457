import { lookup } from 'node:dns/promises'
import { limits } from '../../src/peer/room/messages.ts'
import { systemEnv } from '../../src/util/env.ts'
import { TabringError } from '../../src/util/errors.ts'
import { hostNames, lanAddresses } from '../certificate.ts'
import { PortTaken } from '../listen.ts'
import type { Restarts } from '../restarts.ts'
import { Follower } from './coordination/follower.ts'
import { hostInUrl, joinCoordination, type LeaderPlace } from './coordination/join.ts'
import { newKey, RunKeys } from './coordination/keys.ts'
import { type LauncherHandle, Leader, maxComings } from './coordination/leader.ts'
import type { Failure, LauncherMember } from './coordination/messages.ts'
import { openMaster } from './master.ts'
import type { RankOptions } from './options.ts'
import type { Pin } from './pin.ts'
import type { Plan } from './plan.ts'
import { pollRendezvous, readRendezvous, writeRendezvous } from './rendezvous-file.ts'

/** This launcher's place in its run, once it is in touch with the others. */
export interface Coordination {
  readonly follower: Follower
  readonly keys: RunKeys
  /** Where the signaling server of the run is; null: this launcher is alone and opens it with its pages. */
  readonly signaling: { host: string; port: number; pin: Pin } | null
  /** For MASTER_ADDR and MASTER_PORT. */
  readonly masterAddr: string
  readonly masterPort: number
  /** Leaves; the others get the reason, where it is before the end. */
  close(reason?: string): Promise<void>
}

export interface RendezvousOptions {
  options: RankOptions
  plan: Plan
  restarts: Restarts
  member: LauncherMember
  signal: AbortSignal
  log: (line: string) => void
}

/** As torchrun has it. */
export const defaultJoinTimeoutMs = 600_000
/** Ports that a leader tries whose port nobody counts on. */
const portsTried = 200

/** Gets in touch with the run's other launchers. It resolves before they are all there: the first task comes then. errors: as joinCrew and openMaster. */
export async function rendezvous(all: RendezvousOptions): Promise<Coordination> {
  const { plan, signal } = all
  signal.throwIfAborted()
  if (plan.role === 'alone') return beAlone(all)
  if (plan.role === 'leader') return lead(all)
  if (plan.role === 'either' && (await isThisMachine(plan.masterAddr))) {
    try {
      return await lead(all)
    } catch (thrown) {
      // Another launcher of this machine was first.
      if (!(thrown instanceof PortTaken)) throw thrown
    }
  }
  return follow(all)
}

function makeLeader({ options, plan, log, restarts }: RendezvousOptions): Leader {
  return new Leader({
    env: systemEnv,
    launchers: plan.launchers,
    min: plan.minLaunchers,
    lastCallMs: options.rdzvConf?.lastCallMs,
    restarts,
    isKilling: options.killOnBadExit,
    maxRanks: limits.membersPerRoom,
    joinTimeoutMs: options.rdzvConf?.joinTimeoutMs ?? defaultJoinTimeoutMs,
    log,
  })
}

/** The leader's own launcher joins without a socket. errors: `config.invalid` with the leader's reason. */
function joinOwn(leader: Leader, { member, plan }: RendezvousOptions): Follower {
  let handle: LauncherHandle | null = null
  const follower = new Follower((report) => handle?.receive(report))
  const answer = leader.join(member, plan.launchers, (order) => follower.receive(order))
  if ('refusal' in answer) {
    throw new TabringError('config.invalid', `launcher: ${answer.refusal}.`)
  }
  handle = answer.handle
  return follower
}

function beAlone(all: RendezvousOptions): Coordination {
  const { options, plan } = all
  const leader = makeLeader(all)
  return {
    follower: joinOwn(leader, all),
    keys: new RunKeys(options.key ?? newKey(), plan.runId),
    signaling: null,
    masterAddr: plan.masterAddr,
    masterPort: plan.masterPort,
    close: () => Promise.resolve(),
  }
}

async function lead(all: RendezvousOptions): Promise<Coordination> {
  const { options, plan, member, log } = all
  const key = options.key ?? newKey()
  const keys = new RunKeys(key, plan.runId)
  const leader = makeLeader(all)
  const { masterAddr, masterPort, isPortFixed } = plan
  const isElastic = plan.minLaunchers < plan.launchers
  let master: Awaited<ReturnType<typeof openMaster>>
  try {
    master = await openMaster({
      host: masterAddr,
      port: masterPort,
      lastPort: isPortFixed ? masterPort : masterPort + portsTried,
      keys,
      maxRooms: 1 + options.maxRestarts + (isElastic ? maxComings : 0),
      leader,
      ice: options.ice,
      relay: options.relay ?? false,
    })
  } catch (thrown) {
    leader.abort(failureOf(member, 'it could not listen'))
    throw thrown
  }
  const { port, pin } = master
  const toClose = [() => master.close()]
  try {
    if (plan.rendezvousFile !== undefined) {
      toClose.push(await writeRendezvous(plan.rendezvousFile, { host: masterAddr, port, key, pin }))
    }
    for (const line of invitation(all, port, pin, key)) log(line)
    return {
      // Rank 0 stays on this machine when others come and go.
      follower: joinOwn(leader, isElastic ? { ...all, member: { ...member, index: 0 } } : all),
      keys,
      signaling: { host: '127.0.0.1', port, pin },
      masterAddr,
      masterPort: port,
      close: async (reason) => {
        if (reason) leader.abort(failureOf(member, reason))
        for (const close of toClose.reverse()) await close()
      },
    }
  } catch (thrown) {
    for (const close of toClose.reverse()) await close()
    throw thrown
  }
}

const failureOf = ({ name }: LauncherMember, reason: string): Failure => ({
  rank: null,
  host: name,
  code: 'worker.dead',
  text: `the launcher of rank 0 on ${name} ended before the run did (${reason}). Check its output.`,
})

/** What to type on the other machines. */
function invitation(
  { options, plan }: RendezvousOptions,
  port: number,
  pin: Pin,
  key: string,
): string[] {
  const at = `${hostInUrl(plan.masterAddr)}:${port}`
  const { launchers, minLaunchers: min } = plan
  const range = min < launchers ? `${min}:${launchers}` : `${launchers}`
  const fewest = min < launchers ? `${min - 1} to ` : ''
  const others =
    launchers === 2 ? `${fewest}1 more launcher` : `${fewest}${launchers - 1} more launchers`
  if (plan.rendezvousFile !== undefined) {
    return [`waiting at ${at} for ${others}, to be found through ${plan.rendezvousFile}`]
  }
  const flags = [
    `--nnodes ${range} --node-rank N`,
    `--master-addr ${plan.masterAddr} --master-port ${port}`,
    ...(options.rdzvId === undefined ? [] : [`--rdzv-id ${options.rdzvId}`]),
    `--master-fingerprint ${pin}`,
    ...(options.relay ? ['--relay'] : []),
  ]
  const secret = options.key === undefined ? `TABRING_ROOM_KEY=${key} ` : ''
  return [
    `waiting at ${at} for ${others}. On the other machines:`,
    `  ${secret}${options.command} ${flags.join(' ')} …`,
  ]
}

async function follow(all: RendezvousOptions): Promise<Coordination> {
  const { options, plan, member, signal, log } = all
  const { key, pin } = options
  const { masterAddr: host, masterPort: port, runId, rendezvousFile } = plan
  if (options.ice) log('--ice-servers: ignored, those of the launcher of rank 0 are used')
  const joinTimeoutMs = options.rdzvConf?.joinTimeoutMs ?? defaultJoinTimeoutMs
  let place: () => Promise<LeaderPlace>
  if (key !== undefined) {
    const fixed = { host, port, keys: new RunKeys(key, runId), pin }
    place = async () => fixed
  } else if (rendezvousFile !== undefined) {
    let latest = await readRendezvous(rendezvousFile, joinTimeoutMs, signal)
    place = async () => {
      // What a run before left there goes as soon as this one's leader writes its own.
      latest = (await pollRendezvous(rendezvousFile)) ?? latest
      const keys = new RunKeys(latest.key, runId)
      return { host, port: latest.port, keys, pin: pin ?? latest.pin }
    }
  } else {
    throw new TabringError(
      'config.invalid',
      'launcher: the key of the run is missing. Use the line that the launcher of machine 0 prints, with its TABRING_ROOM_KEY.',
    )
  }
  const joined = await joinCoordination({
    place,
    mayBeOld: key === undefined,
    member,
    launchers: plan.launchers,
    joinTimeoutMs,
    signal,
    onWaiting: (where) => log(`waiting for the launcher of rank 0 at ${where}`),
  })
  const { place: found } = joined
  return {
    follower: joined.follower,
    keys: found.keys,
    signaling: { host, port: found.port, pin: joined.pin },
    masterAddr: host,
    masterPort: found.port,
    close: (reason) => joined.close(reason),
  }
}

/** Returns whether an address is one of this machine's. */
async function isThisMachine(address: string): Promise<boolean> {
  const own = new Set(['localhost', '::1', ...hostNames(), ...lanAddresses()])
  const isOwn = (one: string) => own.has(one.toLowerCase()) || one.startsWith('127.')
  if (isOwn(address)) return true
  const found = await lookup(address, { all: true }).catch(() => [])
  return found.some((one) => isOwn(one.address))
}
