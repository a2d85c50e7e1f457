import { experiments } from '../demos/experiments.ts'
import { startWorker } from '../demos/start-worker.ts'
import { type TransportChoice, transportChoices } from './peer/room/messages.ts'
import { SignalError } from './peer/room/refusals.ts'
import { newRoomLink, parseFragment } from './peer/room/secret.ts'
import { DataError, endFactsOf, TabringError } from './util/errors.ts'
import { isTracing } from './util/spans.ts'
import type { AdapterFacts, RunEvent } from './worker/api.ts'
import { bytesSentIn, RoomMember, type RunEnd } from './worker/page/member.ts'

/**
 * The page of a headless rank: it does what its address says and reports to the launcher that opened it.
 *
 * `?role=host|join&ranks=N&transport=…&config={…}&checkpoints={…}&given=…&save=…&launcher={…}#key=…`. The maker starts as soon as `ranks` members are in the room.
 */
declare global {
  interface Window {
    __tabringMember?: (id: string) => void
    __tabringEvent?: (json: string) => void
    __tabringDone?: (json: string) => void
    __tabringTrace?: (json: string) => void
    /** For the launcher, after the event `undecided`: all that are missing have ended. */
    __tabringContinueWithout?: () => void
  }
}

const parameters = new URLSearchParams(location.search)
const ranks = Number(parameters.get('ranks') ?? 1)
const isMaker = parameters.get('role') !== 'join'
const chosen = parameters.get('transport') as TransportChoice
const config = JSON.parse(parameters.get('config') ?? '{}')
const report = (event: RunEvent) => window.__tabringEvent?.(JSON.stringify(event))
const done = (words: object) => window.__tabringDone?.(JSON.stringify(words))

const failed = (error: unknown, rank: number | null) =>
  done({
    ok: false,
    rank,
    code: error instanceof Error && 'code' in error ? error.code : 'unknown',
    message: error instanceof Error ? error.message : String(error),
    isLeftOut: endFactsOf(error).leftOut !== undefined,
  })

async function finished(end: RunEnd): Promise<void> {
  if (!end.ok) {
    failed(end.error, end.rank)
    // The launcher opens another tab in its place: this one must not come back into the run.
    if (endFactsOf(end.error).leftOut) member.close()
    return
  }
  const address = parameters.get('save')
  if (end.rank === 0 && address !== null) await sendParameters(address)
  if (isTracing()) window.__tabringTrace?.(JSON.stringify(await member.compute.traceEvents()))
  done({
    ok: true,
    rank: end.rank,
    result: end.result,
    bytesSent: bytesSentIn(end),
    links: end.links.map(({ kind }) => kind),
  })
}

/** Sends the trained parameters to the opener of this tab. */
async function sendParameters(address: string): Promise<void> {
  const file = await fetch(await member.compute.exportParameters())
  const answer = await fetch(new URL(address, location.href), {
    method: 'PUT',
    body: await file.blob(),
  })
  if (answer.ok) return
  throw new TabringError('file.unwritable', await answer.text())
}

let hasStarted = false
const member = new RoomMember({
  experiments,
  startWorker,
  link: parseFragment(location.hash) ?? newRoomLink(),
  name: isMaker ? 'host' : 'guest',
  transport: transportChoices.includes(chosen) ? chosen : 'webrtc',
  mode: isMaker ? 'create' : 'join',
  checkpoints: JSON.parse(parameters.get('checkpoints') ?? '{}'),
  onLobby: ({ members }) => {
    if (!isMaker || hasStarted || members.length < ranks) return
    hasStarted = true
    member.start(config)
  },
  onAssigned: ({ rank, members }) => window.__tabringMember?.(members[rank].id),
  onEvent: report,
  onEnd: (end) => void finished(end).catch((thrown) => failed(thrown, end.rank)),
  onDead: (error) => failed(error, null),
  onServerLost: (error) => failed(error, null),
  onRefused: (error) => failed(error, null),
})

window.__tabringContinueWithout = () => member.continueWithout()

/** Reads the data that the opener of this tab gives to the run. */
async function readGiven(address: string): Promise<void> {
  const answer = await fetch(new URL(address, location.href))
  if (!answer.ok) {
    throw new DataError(
      'data.missing',
      `data: cannot read the file at ${address} (status ${answer.status}). Start again.`,
    )
  }
  member.give(config.demo, new Uint8Array(await answer.arrayBuffer()))
}

/** The maker may be on another machine, and its page slower than this one. units: ms. */
const makerMs = 60_000
const againMs = 200

/** Enters the room as soon as its maker has made it. errors: those of `join`. */
async function enter(adapter: AdapterFacts): Promise<void> {
  const untilMs = performance.now() + makerMs
  for (;;) {
    try {
      return await member.join(adapter)
    } catch (error) {
      const isEarly = error instanceof SignalError && error.refusal === 'unknown-room'
      if (!isEarly || performance.now() > untilMs) throw error
      await new Promise((resolve) => setTimeout(resolve, againMs))
    }
  }
}

try {
  const given = parameters.get('given')
  if (given !== null) await readGiven(given)
  await enter(await member.open())
} catch (error) {
  failed(error, null)
}
