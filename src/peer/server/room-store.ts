import type { Env } from '../../util/env.ts'
import type { StoreCall, StoreMessage } from '../room/store-calls.ts'
import type { StoreAnswer, StoreValue } from '../room/store-messages.ts'
import { boxCharsOf } from '../store/box-chars.ts'
import { KeyTable } from '../store/key-table.ts'

/** Limits of a room's store; the refusal of what is more names the limit. */
export interface StoreLimits {
  storeKeysPerRoom: number
  storeKeyBytes: number
  storeValueBytes: number
  storeBytesPerRoom: number
  storeBytes: number
  storeWaits: number
}

export type StoreRefusal = 'too-large' | 'too-many' | 'store-full'

/** The part of the server that a room's store needs. */
export interface RoomStoreHost {
  readonly env: Env
  readonly limits: StoreLimits
  /** Bytes that the stores of all rooms hold together. */
  readonly held: { sizeBytes: number }
  answer(connectionId: string, id: number, answer: StoreAnswer): void
  refuse(connectionId: string, code: StoreRefusal, text: string, id: number): void
}

/** Cost of a key beside its text and value. units: bytes. */
const keyBytes = 64
/** Max number of keys that are named when they did not come. */
const maxMissing = 32

/**
 * The store of one room, on the server: calls of connections that are inside, and their answers.
 *
 * The server sees keys, counters and sealed values, whose tags it compares. A wait belongs to its connection and ends with it.
 */
export class RoomStore {
  private readonly table: KeyTable<StoreValue>
  /** Of each connection: what ends its waits. */
  private readonly waits = new Map<string, Set<() => void>>()
  private sizeBytes = 0

  constructor(private readonly host: RoomStoreHost) {
    this.table = new KeyTable(host.env)
  }

  receive(connectionId: string, { id, call }: StoreMessage): void {
    const refused = this.take(connectionId, id, call)
    if (refused) this.host.refuse(connectionId, refused[0], `store: ${refused[1]}`, id)
  }

  /** A connection has ended: so do its waits. */
  forget(connectionId: string): void {
    for (const end of [...(this.waits.get(connectionId) ?? [])]) end()
  }

  /** The room is over. */
  close(): void {
    for (const connectionId of [...this.waits.keys()]) this.forget(connectionId)
    this.table.close()
    this.charge(-this.sizeBytes)
  }

  private take(connectionId: string, id: number, call: StoreCall): Refused {
    const answer = (result: StoreAnswer) => this.host.answer(connectionId, id, result)
    switch (call.op) {
      case 'set': {
        const refused = this.put(call.key, call.value)
        if (!refused) answer({ kind: 'done' })
        return refused
      }
      case 'get':
        return this.wait(connectionId, [call.key], call.timeoutMs, answer, () => {
          answer({ kind: 'value', value: this.table.get(call.key)! })
        })
      case 'wait':
        return this.wait(connectionId, call.keys, call.timeoutMs, answer, () => {
          answer({ kind: 'done' })
        })
      case 'add': {
        const current = this.table.get(call.key) ?? { counter: 0 }
        if (!('counter' in current)) {
          answer({ kind: 'value', value: current })
          return null
        }
        const sum = current.counter + call.amount
        if (!Number.isSafeInteger(sum)) {
          const max = Number.MAX_SAFE_INTEGER
          return ['too-large', `expected a sum between ±${max}, got about ${sum}.`]
        }
        const refused = this.put(call.key, { counter: sum })
        if (!refused) answer({ kind: 'done', sum })
        return refused
      }
      case 'compareSet': {
        const current = this.table.get(call.key)
        if (current ? !isSame(current, call.expected) : !call.orAbsent) {
          answer({ kind: 'value', value: current ?? null })
          return null
        }
        const refused = this.put(call.key, call.desired)
        if (!refused) answer({ kind: 'done' })
        return refused
      }
      case 'deleteKey': {
        const current = this.table.get(call.key)
        if (current) this.charge(-(costOf(call.key) + sizeOf(current)))
        answer({ kind: 'count', count: this.table.delete(call.key) ? 1 : 0 })
        return null
      }
      case 'numKeys':
        answer({ kind: 'count', count: this.table.size })
        return null
    }
  }

  private put(key: string, value: StoreValue): Refused {
    const { storeValueBytes, storeKeysPerRoom } = this.host.limits
    const maxChars = boxCharsOf(storeValueBytes)
    if ('box' in value && value.box.length > maxChars) {
      return [
        'too-large',
        `expected a value of at most ${storeValueBytes} bytes (${maxChars} characters sealed), got ${value.box.length} characters.`,
      ]
    }
    const current = this.table.get(key)
    if (!current && this.table.size >= storeKeysPerRoom) {
      const text = `a room's store holds at most ${storeKeysPerRoom} keys. Delete keys that have been read.`
      return ['store-full', text]
    }
    const oldBytes = current ? costOf(key) + sizeOf(current) : 0
    const addedBytes = costOf(key) + sizeOf(value) - oldBytes
    const refused = this.refuseKey(key) ?? this.refuseBytes(addedBytes)
    if (refused) return refused
    this.charge(addedBytes)
    this.table.set(key, value)
    return null
  }

  private wait(
    connectionId: string,
    keys: readonly string[],
    timeoutMs: number,
    answer: (result: StoreAnswer) => void,
    there: () => void,
  ): Refused {
    if (keys.every((key) => this.table.get(key) !== undefined)) {
      there()
      return null
    }
    const { storeWaits } = this.host.limits
    const waits = this.waits.get(connectionId) ?? new Set()
    if (waits.size >= storeWaits) {
      const text = `a connection may have at most ${storeWaits} waits pending. Wait for several keys in one call.`
      return ['too-many', text]
    }
    const sizeBytes = keys.reduce((sum, key) => sum + costOf(key), 0)
    const refused =
      keys.map((key) => this.refuseKey(key)).find((one) => one) ?? this.refuseBytes(sizeBytes)
    if (refused) return refused
    const done = () => {
      this.charge(-sizeBytes)
      waits.delete(end)
      if (waits.size === 0) this.waits.delete(connectionId)
    }
    const end = () => {
      leave()
      done()
    }
    this.charge(sizeBytes)
    waits.add(end)
    this.waits.set(connectionId, waits)
    const leave = this.table.wait(keys, timeoutMs, (how) => {
      done()
      if (how.kind === 'there') there()
      else if (how.kind === 'late') {
        const { missing } = how
        answer({ kind: 'late', missing: missing.slice(0, maxMissing), count: missing.length })
      }
    })
    answer({ kind: 'waiting' })
    return null
  }

  private refuseKey(key: string): Refused {
    const { storeKeyBytes } = this.host.limits
    const sizeBytes = costOf(key) - keyBytes
    if (sizeBytes <= storeKeyBytes) return null
    return ['too-large', `expected a key of at most ${storeKeyBytes} bytes, got ${sizeBytes}.`]
  }

  private refuseBytes(addedBytes: number): Refused {
    const { limits, held } = this.host
    if (addedBytes <= 0) return null
    if (this.sizeBytes + addedBytes > limits.storeBytesPerRoom) {
      const text = `a room's store holds at most ${limits.storeBytesPerRoom} bytes of keys, sealed values and waits. Delete keys that have been read.`
      return ['store-full', text]
    }
    if (held.sizeBytes + addedBytes > limits.storeBytes) {
      const text = `the stores of all rooms hold at most ${limits.storeBytes} bytes. Try again later.`
      return ['store-full', text]
    }
    return null
  }

  private charge(addedBytes: number): void {
    this.sizeBytes += addedBytes
    this.host.held.sizeBytes += addedBytes
  }
}

type Refused = [StoreRefusal, string] | null

function isSame(value: StoreValue, expected: { tag: string } | { counter: number }): boolean {
  if ('counter' in value) return 'counter' in expected && expected.counter === value.counter
  return 'tag' in expected && expected.tag === value.tag
}

function costOf(key: string): number {
  return new TextEncoder().encode(key).length + keyBytes
}

function sizeOf(value: StoreValue): number {
  return 'counter' in value ? 8 : value.box.length + value.tag.length
}
