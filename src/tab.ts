import { experiments } from '../demos/experiments.ts'
import { startWorker } from '../demos/start-worker.ts'
import { type TransportChoice, transportChoices } from './peer/room/messages.ts'
import { SignalError } from './peer/room/refusals.ts'
import { newRoomLink, parseFragment } from './peer/room/secret.ts'
import { DataError, endFactsOf, TabringError } from './util/errors.ts'
import { isTracing } from './util/spans.ts'
import type { AdapterFacts } from './worker/api.ts'
import { bytesSentIn, RoomMember } from './worker/page/member.ts'
import type { MemberEvent, RunEnd } from './worker/page/member-events.ts'

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
function take(event: MemberEvent): void {
  switch (event.type) {
    case 'lobby':
      if (!isMaker || hasStarted || event.lobby.members.length < ranks) break
      hasStarted = true
      member.start(config)
      break
    case 'assigned': {
      const { members, rank } = event.assignment
      window.__tabringMember?.(members[rank].id)
      break
    }
    case 'event':
      window.__tabringEvent?.(JSON.stringify(event.event))
      break
    case 'ended':
      finished(event.end).catch((thrown) => failed(thrown, event.end.rank))
      break
    case 'dead':
    case 'serverLost':
    case 'refused':
      failed(event.error, null)
  }
}

const member = new RoomMember({
  experiments,
  startWorker,
  link: parseFragment(location.hash) ?? newRoomLink(),
  name: isMaker ? 'host' : 'guest',
  transport: transportChoices.includes(chosen) ? chosen : 'webrtc',
  mode: isMaker ? 'create' : 'join',
  checkpoints: JSON.parse(parameters.get('checkpoints') ?? '{}'),
  on: take,
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
