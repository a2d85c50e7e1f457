import { randomBytes } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import { type RawData, WebSocket } from 'ws'
import { parseMessage } from '../../../src/peer/room/messages.ts'
import { messageOf, PeerError, TabringError } from '../../../src/util/errors.ts'
import { closeReason } from '../../close-reason.ts'
import { connectPinned, type Pin } from '../pin.ts'
import { Follower } from './follower.ts'
import type { RunKeys } from './keys.ts'
import {
  coordinationVersion,
  type FromMember,
  type LauncherMember,
  launchersPath,
  type Order,
  toMemberSchema,
} from './messages.ts'

/** Where the leader is, and what it and this launcher must know. */
export interface LeaderPlace {
  host: string
  port: number
  keys: RunKeys
  /** The certificate that the leader must have; without it, whichever the leader proves to be its own. */
  pin?: Pin
}

export interface JoinOptions {
  /** Asked before each attempt: a leader that was started again is elsewhere. */
  place: () => Promise<LeaderPlace>
  /** True if `place` may report a run that is over, so that who is there and knows another key, or has another certificate, is not the end. */
  mayBeOld?: boolean
  member: LauncherMember
  launchers: number
  /** How long the leader may take to come up. */
  joinTimeoutMs: number
  /** Ends the waiting, with its reason. */
  signal: AbortSignal
  /** Called once where no leader is yet, with the reason. */
  onWaiting: (where: string) => void
}

export interface Joined {
  follower: Follower
  place: LeaderPlace
  /** Of the leader's certificate, given or proven. */
  pin: Pin
  /** Leaves; `reason` is sent to the leader. */
  close(reason?: string): Promise<void>
}

/** Between two attempts to reach the leader. */
const retryMs = 500
const closeTimeoutMs = 2_000

/**
 * Joins the run of the launcher at `host:port`; waits for that launcher to come up.
 *
 * errors: `peer.mismatch` for another certificate, run or key; `signal.refused` with the leader's reason;
 * `peer.timeout` when nobody answers in time.
 */
export async function joinCoordination(options: JoinOptions): Promise<Joined> {
  const { joinTimeoutMs, signal, onWaiting } = options
  const untilMs = performance.now() + joinTimeoutMs
  for (let attempt = 0; ; attempt++) {
    signal.throwIfAborted()
    const place = await options.place()
    try {
      return await joinOnce(options, place)
    } catch (thrown) {
      const isFinal =
        thrown instanceof TabringError &&
        thrown.code !== 'peer.timeout' &&
        thrown.code !== 'peer.unreachable' &&
        !(options.mayBeOld && thrown.code === 'peer.mismatch')
      if (isFinal) throw thrown
      const reason = messageOf(thrown)
      if (performance.now() + retryMs > untilMs) {
        throw new PeerError(
          'peer.timeout',
          `launcher: could not join the launcher of rank 0 at ${place.host}:${place.port} within ${joinTimeoutMs / 1000} s: ${reason}. Start it with --node-rank 0, and make that port reachable from this machine.`,
        )
      }
      if (attempt === 0) onWaiting(`${place.host}:${place.port} (${reason})`)
    }
    await sleep(retryMs, undefined, { signal }).catch(() => undefined)
  }
}

async function joinOnce({ member, launchers }: JoinOptions, place: LeaderPlace): Promise<Joined> {
  const { host, port, keys } = place
  let found: Pin | undefined
  const socket = new WebSocket(`wss://${hostInUrl(host)}:${port}${launchersPath}`, {
    perMessageDeflate: false,
    // ws types the callback form of Node's agents away.
    createConnection: ((_: unknown, done: (error: Error | null, socket?: unknown) => void) => {
      connectPinned({ host, port, pin: place.pin }, (error, connection, pin) => {
        found = pin
        done(error, connection)
      })
    }) as never,
  })
  const nonce = randomBytes(32).toString('hex')
  let challenge = ''
  let hasWelcome = false
  const say = (message: FromMember) => {
    if (socket.readyState === WebSocket.OPEN) socket.send(JSON.stringify(message))
  }
  const follower = new Follower(say)
  const closed = new Promise<void>((resolve) => socket.once('close', () => resolve()))

  const close = async (reason = '') => {
    const timer = setTimeout(() => socket.terminate(), closeTimeoutMs)
    socket.close(1000, closeReason(reason))
    await closed
    clearTimeout(timer)
  }

  await new Promise<void>((resolve, reject) => {
    const fail = (error: TabringError) => {
      reject(error)
      follower.lost(error)
      socket.terminate()
    }
    socket.on('error', (error) => {
      reject(
        error instanceof TabringError
          ? error
          : new PeerError('peer.unreachable', `${host}:${port}: ${messageOf(error)}`),
      )
    })
    socket.on('close', (code, reason) => {
      const lost = new PeerError(
        'signal.lost',
        `launcher: the launcher of rank 0 at ${host}:${port} ended before the run did (${String(reason) || code}). Check its output.`,
      )
      if (hasWelcome) follower.lost(lost)
      else
        reject(
          new PeerError('peer.unreachable', `${host}:${port}: closed the connection (${code})`),
        )
    })
    socket.on('message', (data: RawData) => {
      const parsed = parseMessage(toMemberSchema, String(data))
      if (!parsed.ok) {
        fail(
          new PeerError(
            'peer.protocol',
            `launcher: cannot understand the message of the launcher of rank 0 (${parsed.text}). Use the same version everywhere.`,
          ),
        )
        return
      }
      const { message } = parsed
      switch (message.type) {
        case 'challenge':
          challenge = message.nonce
          say({
            type: 'hello',
            version: coordinationVersion,
            runId: keys.runId,
            nonce,
            proof: keys.prove('launcher', [nonce, challenge], found!),
            launchers,
            member,
          })
          return
        case 'welcome':
          if (!keys.isProof(message.proof, 'leader', [nonce, challenge], found!)) {
            fail(
              new PeerError(
                'peer.mismatch',
                `launcher: the launcher at ${host}:${port} does not hold the run's key. Check its address; someone may be intercepting the connection.`,
              ),
            )
            return
          }
          hasWelcome = true
          resolve()
          return
        case 'refused':
          fail(
            new PeerError(
              message.isStranger ? 'peer.mismatch' : 'signal.refused',
              `launcher: the launcher at ${host}:${port} refused this one: ${message.text}.`,
            ),
          )
          return
        default:
          // Orders of one who has proved nothing yet do not count.
          if (hasWelcome) follower.receive(message satisfies Order)
      }
    })
  })
  return { follower, place, pin: found!, close }
}

/** A host name or address as it stands in a URL. */
export const hostInUrl = (host: string): string =>
  host.includes(':') && !host.startsWith('[') ? `[${host}]` : host
