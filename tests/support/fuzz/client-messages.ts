import { ballotStep } from '../../../src/peer/room/ballots.ts'
import type { ClientMessage, MessageOf } from '../../../src/peer/room/client-messages.ts'
import { protocolVersion } from '../../../src/peer/room/messages.ts'
import type { StoreCall } from '../../../src/peer/room/store-calls.ts'
import { limits } from '../../../src/peer/server/limits.ts'
import type { JsonValue } from '../../../src/util/json-value.ts'
import { infoOf } from '../member-info.ts'
import type { Draw } from '../simulation/draw.ts'

/** What a hostile client knows of the server, the room and itself. */
export interface Known {
  readonly room: string
  readonly authKey: string
  /** Of the room's key, over the nonce of its connection; garbage from who has no key. */
  readonly proof: string
  readonly epoch: number
  /** Ids of members, its own among them. */
  readonly ids: readonly string[]
  /** Of the run, where there is an elastic one. */
  readonly runKey: string
  /** Stands in every free text, so that it shows where it gets to. */
  readonly marker: string
}

type Make = {
  readonly [T in ClientMessage['type']]: (draw: Draw, known: Known) => MessageOf<T>
}

const hex = (draw: Draw, bytes: number) =>
  Array.from({ length: 2 * bytes }, () => draw.whole(0, 15).toString(16)).join('')
const idIn = (draw: Draw, { ids }: Known) => (draw.isOneIn(6) ? hex(draw, 8) : draw.pick(ids))
const epochIn = (draw: Draw, { epoch }: Known) =>
  draw.isOneIn(4) ? draw.pick([1, epoch + 1, 2 ** 30, 2 ** 31]) : Math.max(1, epoch)
const ballotIn = (draw: Draw) =>
  draw.isOneIn(3)
    ? draw.pick([
        2 ** 31,
        2 ** 32 - 1,
        limits.rostersAhead * ballotStep,
        (limits.rostersAhead + 1) * ballotStep,
      ])
    : draw.pick([0, 1, 7])
const keyIn = (draw: Draw, { runKey }: Known) => (draw.isOneIn(4) ? hex(draw, 8) : runKey)
const someIds = (draw: Draw, known: Known) => [
  ...new Set(Array.from({ length: draw.whole(1, 4) }, () => idIn(draw, known))),
]
const box = (draw: Draw, { marker }: Known) =>
  marker + 'A'.repeat(draw.isOneIn(20) ? limits.boxChars - 40 : draw.whole(0, 200))
const settings = (draw: Draw, { marker }: Known) =>
  draw.pick<JsonValue>([
    { marker },
    [marker, 1],
    marker,
    { steps: 3, marker: 'é'.repeat(draw.whole(0, 3000)) },
  ])
const info = (draw: Draw, { marker }: Known) =>
  infoOf(`${marker} ${draw.whole(0, 9)}`, {
    adapter: draw.pick([null, marker, { marker }]),
    hostTag: draw.pick(['', 'cd'.repeat(16)]),
    transport: draw.pick(['auto', 'relay', 'port', 'webrtc', 'fallback']),
    ...(draw.isOneIn(3) && { tab: '0a0b0c0d' }),
    ...(draw.isOneIn(3) && {
      measured: { megaflops: draw.whole(0, 1e9), toNext: { id: 'ab'.repeat(8), us: null } },
    }),
  })
const again = (draw: Draw, known: Known, id = idIn(draw, known)) => ({
  id,
  epoch: draw.isOneIn(3) ? draw.pick([2 ** 29, 2 ** 30, 2 ** 31]) : known.epoch,
  ...(draw.isOneIn(2) && {
    run: {
      key: keyIn(draw, known),
      run: draw.pick([1, Math.max(1, known.epoch), 2 ** 30, 2 ** 31]),
      ballot: ballotIn(draw),
      ids: [...new Set([...(draw.isOneIn(4) ? [] : [id]), ...someIds(draw, known)])],
      settings: settings(draw, known),
      ...(draw.isOneIn(2) && { mayBeAhead: true }),
    },
  }),
})
const entry = (draw: Draw, known: Known) => ({
  version: protocolVersion as typeof protocolVersion,
  room: known.room,
  info: draw.isOneIn(4) ? null : info(draw, known),
  ...(draw.isOneIn(3) && { token: draw.pick(['ee'.repeat(16), hex(draw, 16)]) }),
  ...(draw.isOneIn(3) && { isFurther: draw.isOneIn(2) }),
  ...(draw.isOneIn(3) && { again: again(draw, known) }),
})

function call(draw: Draw, { marker }: Known): StoreCall {
  const key = () => draw.pick(['a', 'b', `${marker}`, 'k'.repeat(600), '', '__proto__'])
  const tag = 'T'.repeat(43)
  const value = () =>
    draw.isOneIn(2)
      ? { counter: draw.pick([0, 5, Number.MAX_SAFE_INTEGER]) }
      : { box: `${marker}${'B'.repeat(draw.isOneIn(9) ? 30_000 : draw.whole(0, 300))}`, tag }
  const timeoutMs = draw.pick([0, 1, 3000, 2 ** 31 - 1])
  const desired = value()
  return draw.pick<StoreCall>([
    { op: 'set', key: key(), value: { box: `${marker}${'B'.repeat(draw.whole(0, 4000))}`, tag } },
    { op: 'get', key: key(), timeoutMs },
    { op: 'add', key: key(), amount: draw.pick([1, -1, Number.MAX_SAFE_INTEGER]) },
    { op: 'wait', keys: Array.from({ length: draw.whole(0, 40) }, key), timeoutMs },
    { op: 'compareSet', key: key(), expected: { tag }, orAbsent: draw.isOneIn(2), desired },
    { op: 'deleteKey', key: key() },
    { op: 'numKeys' },
  ])
}

/** Every message that a client may send. */
const make: Make = {
  create: (draw, known) => ({
    type: 'create',
    ...entry(draw, known),
    // Its own, or that of a room which is there.
    room: draw.isOneIn(3) ? known.room : hex(draw, 16),
    authKey: known.authKey,
    ...(draw.isOneIn(5) && { keyProof: hex(draw, 32) }),
  }),
  join: (draw, known) => ({ type: 'join', ...entry(draw, known), proof: known.proof }),
  relay: (draw, { room, proof, marker }) => ({
    type: 'relay',
    version: protocolVersion,
    room,
    proof,
    ...(draw.isOneIn(3) && { token: draw.pick(['ee'.repeat(16), hex(draw, 16)]) }),
    channel: `${marker} ${draw.whole(0, 2)}`,
    side: draw.pick([0, 1]),
  }),
  giveCode: (draw, { room, proof }) => ({
    type: 'giveCode',
    version: protocolVersion,
    room,
    proof,
    token: draw.pick(['ee'.repeat(16), hex(draw, 16)]),
    ...(draw.isOneIn(2) && { name: draw.pick(['AB', 'ABC', 'Z9Z9']) }),
  }),
  useCode: (draw) => ({
    type: 'useCode',
    version: protocolVersion,
    name: draw.pick(['AB', 'ABC', 'Z9Z9']),
    box: 'A'.repeat(draw.whole(40, 100)),
  }),
  codeAnswer: (draw, known) => ({
    type: 'codeAnswer',
    guest: idIn(draw, known),
    box: draw.isOneIn(2) ? null : 'A'.repeat(draw.whole(40, 100)),
  }),
  update: (draw, known) => ({ type: 'update', info: info(draw, known) }),
  propose: (draw, known) => ({ type: 'propose', settings: settings(draw, known) }),
  handOver: (draw, known) => ({ type: 'handOver', id: idIn(draw, known) }),
  letIn: (draw, known) => ({ type: 'letIn', id: idIn(draw, known), isLetIn: draw.isOneIn(2) }),
  remove: (draw, known) => ({ type: 'remove', id: idIn(draw, known) }),
  reach: (draw, known) => ({ type: 'reach', to: idIn(draw, known), box: box(draw, known) }),
  start: (draw, known) => ({
    type: 'start',
    settings: settings(draw, known),
    ...(draw.isOneIn(2) && { isElastic: draw.isOneIn(2) }),
  }),
  signal: (draw, known) => ({
    type: 'signal',
    epoch: epochIn(draw, known),
    to: draw.pick([0, 1, 2, 63]),
    attempt: draw.whole(1, 8),
    box: box(draw, known),
  }),
  ready: (draw, known) => ({ type: 'ready', epoch: epochIn(draw, known) }),
  linkDown: (draw, known) => ({
    type: 'linkDown',
    epoch: epochIn(draw, known),
    peerRank: draw.pick([0, 1, 63]),
    text: known.marker,
  }),
  abort: (draw, known) => ({ type: 'abort', epoch: epochIn(draw, known), text: known.marker }),
  done: (draw, known) => ({ type: 'done', epoch: epochIn(draw, known) }),
  ranks: (draw, known) => ({
    type: 'ranks',
    key: keyIn(draw, known),
    ballot: ballotIn(draw),
    ids: someIds(draw, known),
  }),
  half: (draw, known) => ({
    type: 'half',
    key: keyIn(draw, known),
    ballot: ballotIn(draw),
    alive: someIds(draw, known).map((id) => `${id}.${known.epoch}`),
    lives: someIds(draw, known).map((id) => `${id}.${draw.whole(0, 3)}`),
  }),
  out: (draw, known) => ({ type: 'out', key: keyIn(draw, known) }),
  store: (draw, known) => ({ type: 'store', id: draw.whole(0, 40), call: call(draw, known) }),
  ice: () => ({ type: 'ice' }),
  ping: () => ({ type: 'ping' }),
  bye: () => ({ type: 'bye' }),
  pong: () => ({ type: 'pong' }),
}

const types = (Object.keys(make) as ClientMessage['type'][]).filter((type) => type !== 'bye')

/** A message that is right in its form, whether or not its moment is. */
export function drawMessage(
  draw: Draw,
  known: Known,
  type: ClientMessage['type'] = draw.isOneIn(60) ? 'bye' : draw.pick(types),
): ClientMessage {
  return make[type](draw, known)
}
