import { clipped } from '../../util/clipped.ts'
import { systemEnv } from '../../util/env.ts'
import { PeerError } from '../../util/errors.ts'
import { sameBytes } from '../../util/same-bytes.ts'
import { limits } from '../room/messages.ts'
import { SignalError } from '../room/refusals.ts'
import type { RoomOptions } from '../room/room-options.ts'
import type { StoreCall } from '../room/store-calls.ts'
import type { StoreAnswer, StoreValue } from '../room/store-messages.ts'
import {
  bytesOf,
  checkAmount,
  checkTimeout,
  keysOf,
  lateError,
  nameOf,
} from '../store/check-arguments.ts'
import { counterText, sumOf } from '../store/counter.ts'
import { defaultTimeoutMs, type Store } from '../store/store.ts'
import { TimedStore } from '../store/timed-store.ts'
import { RoomConnection } from './room-connection.ts'
import { ValueSeal } from './sealed-value.ts'
import { StoreCalls } from './store-calls.ts'

type Answer<K extends StoreAnswer['kind']> = Extract<StoreAnswer, { kind: K }>

/**
 * The store of a room of the signaling server, shared by everyone with the room's link; `openStore` opens one. It exists as long as
 * someone is in the room.
 *
 * Values are sealed end to end with a key derived from the room's link. The server sees keys, the length of values, which values of one key
 * are equal, and the numbers that `add` counts; it could return an older value of a key, or another count.
 *
 * order: calls of one store take effect in the order in which they are made. An `add` to a text that was set, and a `compareSet` of a
 * counter, take several messages, so they may take effect after calls made while they are in flight: await them first.
 * errors: `signal.refused` (a `SignalError`) with the limit that a call would exceed; `peer.lost` for calls that are pending when the
 * connection ends, and all later ones; `peer.protocol` for a value that the server has changed.
 */
export class WebSocketStore extends TimedStore implements Store {
  private readonly calls: StoreCalls
  private readonly connection: RoomConnection

  private constructor(
    options: RoomOptions,
    timeoutMs: number,
    private readonly seal: ValueSeal,
  ) {
    super()
    this.timeoutMs = timeoutMs
    const connection = new RoomConnection(
      { ...options, info: null },
      {
        message: (message) => {
          if (message.type === 'stored') this.calls.stored(message)
        },
        refused: (error, call) => {
          if (call !== undefined) this.calls.refused(call, error)
        },
        lost: (error) => this.calls.end(error),
      },
    )
    this.connection = connection
    this.calls = new StoreCalls(options.env ?? systemEnv, (message) => connection.send(message))
  }

  /** Enters the room as a guest. */
  static async open(options: RoomOptions, timeoutMs = defaultTimeoutMs): Promise<WebSocketStore> {
    const store = new WebSocketStore(options, timeoutMs, await ValueSeal.derive(options.link))
    await store.connection.open()
    return store
  }

  /** True if the server also relays links. */
  get hasRelay(): boolean {
    return this.connection.hasRelay
  }

  async set(key: string, value: string | Uint8Array): Promise<void> {
    const where = nameOf('set', key)
    const sealed = this.seal.seal(key, checkSize(bytesOf(where, value)))
    const call = sealed.then((value): StoreCall => ({ op: 'set', key, value }))
    await this.ask(where, call, ['done'])
  }

  async get(key: string): Promise<Uint8Array> {
    const where = nameOf('get', key)
    const timeoutMs = this.waitMs
    const answer = await this.ask(
      where,
      { op: 'get', key, timeoutMs },
      ['value', 'late'],
      timeoutMs,
    )
    if (answer.kind === 'late') throw lateError(where, answer.missing, answer.count, timeoutMs)
    if (!answer.value) throw unexpected(where, answer)
    return this.opened(key, answer.value)
  }

  async add(key: string, amount: number): Promise<number> {
    const where = nameOf('add', key)
    checkAmount(where, amount)
    for (;;) {
      const answer = await this.ask(where, { op: 'add', key, amount }, ['done', 'value'])
      if (answer.kind === 'done' && answer.sum !== undefined) return answer.sum
      if (answer.kind !== 'value' || !answer.value) throw unexpected(where, answer)
      // A text that was set: the server cannot read it, so that we make a counter of it, unless another was quicker.
      const text = await this.opened(key, answer.value)
      const sum = sumOf(where, text, amount)
      const made = await this.exchange(where, key, text, answer.value, { counter: sum })
      if (made.kind === 'done') return sum
    }
  }

  async wait(keys: readonly string[], timeoutMs = this.waitMs): Promise<void> {
    const where = 'store.wait'
    checkTimeout(where, timeoutMs)
    const call: StoreCall = { op: 'wait', keys: keysOf(keys), timeoutMs }
    const answer = await this.ask(where, call, ['done', 'late'], timeoutMs)
    if (answer.kind === 'late') throw lateError(where, answer.missing, answer.count, timeoutMs)
  }

  async compareSet(
    key: string,
    expected: string | Uint8Array,
    desired: string | Uint8Array,
  ): Promise<Uint8Array> {
    const where = nameOf('compareSet', key)
    const wanted = bytesOf(where, expected)
    const next = checkSize(bytesOf(where, desired))
    const sealed = this.seal.seal(key, next)
    let believed: StoreValue | null = null
    for (;;) {
      const answer = await this.exchange(where, key, wanted, believed, sealed)
      if (answer.kind === 'done') return next
      if (!answer.value) return wanted
      const current = await this.opened(key, answer.value)
      if (!sameBytes(current, wanted)) return current
      // Equal: so it must be in the other of the two forms, counted or sealed, than the server was asked for.
      if (isCounter(answer.value) === isCounter(believed)) throw unexpected(where, answer)
      believed = answer.value
    }
  }

  async deleteKey(key: string): Promise<boolean> {
    const where = nameOf('deleteKey', key)
    return (await this.ask(where, { op: 'deleteKey', key }, ['count'])).count > 0
  }

  async numKeys(): Promise<number> {
    return (await this.ask('store.numKeys', { op: 'numKeys' }, ['count'])).count
  }

  /** Returns the ICE servers that the signaling server offers, with fresh credentials; empty if it has none. errors: `signal.lost`. */
  iceServers(): Promise<readonly RTCIceServer[]> {
    return this.connection.askIceServers()
  }

  /** Leaves the room. The store ends with the room when nobody is left in it. */
  close(): void {
    this.connection.bye()
    this.calls.end(new PeerError('peer.lost', 'this store has been closed. Open it again.'))
  }

  /** Puts `desired` in the place of `expected`, which the server holds as `believed` (null: as something sealed, if at all). */
  private exchange(
    where: string,
    key: string,
    expected: Uint8Array,
    believed: StoreValue | null,
    desired: StoreValue | Promise<StoreValue>,
  ): Promise<Answer<'done' | 'value'>> {
    const call = async (): Promise<StoreCall> => ({
      op: 'compareSet',
      key,
      expected: isCounter(believed)
        ? { counter: believed.counter }
        : { tag: await this.seal.tag(key, expected) },
      orAbsent: expected.length === 0,
      desired: await desired,
    })
    return this.ask(where, call(), ['done', 'value'])
  }

  private async opened(key: string, value: StoreValue): Promise<Uint8Array> {
    return isCounter(value) ? counterText(value.counter) : this.seal.open(key, value.box)
  }

  /** The answer to a call, which is one of `kinds`. */
  private async ask<K extends StoreAnswer['kind']>(
    where: string,
    call: StoreCall | Promise<StoreCall>,
    kinds: readonly K[],
    timeoutMs?: number,
  ): Promise<Answer<K>> {
    const answer = await this.calls.call(where, Promise.resolve(call), timeoutMs)
    if ((kinds as readonly string[]).includes(answer.kind)) return answer as Answer<K>
    throw unexpected(where, answer)
  }
}

function isCounter(value: StoreValue | null): value is { counter: number } {
  return value !== null && 'counter' in value
}

/** Refused here already: a message that is too large for the server at all would end the connection. */
function checkSize<T extends Uint8Array>(value: T): T {
  const { storeValueBytes } = limits
  if (value.length <= storeValueBytes) return value
  const text = `store: expected a value of at most ${storeValueBytes} bytes, got ${value.length}. Keep large data out of the store.`
  throw new SignalError('too-large', text)
}

function unexpected(where: string, answer: StoreAnswer): PeerError {
  return new PeerError(
    'peer.protocol',
    `${where}: the server's answer does not fit this call: ${clipped(JSON.stringify(answer))}. Load the same version of the page on every rank and on the server.`,
  )
}
