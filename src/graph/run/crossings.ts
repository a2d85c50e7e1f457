import type { Gpu } from '../../gpu/device.ts'
import { mapped } from '../../gpu/readback.ts'
import { bufferUsage } from '../../gpu/usage.ts'
import { PeerError } from '../../util/errors.ts'
import { bytesOf } from '../../util/shape.ts'
import type { Prepared } from '../plan/prepare.ts'
import type { PreparedCrossing } from '../plan/stops.ts'
import type { RankMessages } from '../trace/exchange.ts'
import type { ProgramBuffers } from './program-buffers.ts'

export type Contents = Uint8Array<ArrayBuffer>

/** A transfer whose other end is on another rank. */
export interface RankEnd {
  readonly kind: PreparedCrossing['kind']
  readonly number: number
  readonly tag: number
  /** Its place in the group. */
  readonly rank: number
  readonly sizeBytes: number
  /** In a pipeline: as messages are labelled, and what errors call it. */
  readonly label?: string
  readonly task?: string
}

/** The error of a message with the layers of its stage. */
function named(error: unknown, { label, task }: RankEnd): unknown {
  if (!(error instanceof PeerError) || !label || !task) return error
  return new PeerError(error.code, error.message.replaceAll(label, task), { cause: error })
}

/** One value on its way. */
interface End {
  readonly promise: Promise<Contents>
  resolve(contents: Contents): void
  reject(error: unknown): void
}

function newEnd(): End {
  let [resolve, reject]: [End['resolve'], End['reject']] = [() => undefined, () => undefined]
  const promise = new Promise<Contents>((...given) => {
    ;[resolve, reject] = given
  })
  return { promise, resolve, reject }
}

/** Tags of messages are smaller; what has the same one keeps its order. */
const tagCount = 60_000

/**
 * Transfers between the parts of one run: contents by the transfer's number.
 *
 * What comes from other ranks is received as soon as it is sent, so that no rank waits for another to need it. No part gets it before the
 * ranks have `agreed`.
 */
export class Wires {
  readonly #ends = new Map<number, End>()
  readonly #sent: ReadonlyMap<number, RankEnd>
  readonly #messages: RankMessages | undefined
  #error: unknown

  constructor(remote: readonly RankEnd[] = [], messages?: RankMessages, agreed?: Promise<void>) {
    this.#messages = messages
    this.#sent = new Map(remote.flatMap((end) => (end.kind === 'send' ? [[end.number, end]] : [])))
    for (const one of remote) {
      const { kind, number, tag, rank, sizeBytes, label } = one
      if (kind === 'send') continue
      const contents = new Uint8Array(sizeBytes)
      const { resolve, reject } = this.#end(number)
      const received = messages!.recv(contents, rank, {
        tag: tag % tagCount,
        ...(label && { label }),
      })
      Promise.all([received, agreed]).then(
        () => resolve(contents),
        (error) => reject(named(error, one)),
      )
    }
  }

  /** Resolves when the contents are on their way. errors: those of the group. */
  async send(number: number, contents: Contents): Promise<void> {
    const end = this.#sent.get(number)
    if (!end) this.#end(number).resolve(contents)
    else {
      const { tag, label } = end
      await this.#messages!.send(contents, end.rank, {
        tag: tag % tagCount,
        ...(label && { label }),
      }).catch((error) => {
        throw named(error, end)
      })
    }
  }

  /** Resolves when the other part has sent. errors: the one with which a part failed; those of the group. */
  receive(number: number): Promise<Contents> {
    return this.#end(number).promise
  }

  /** Ends all waits, now and later. */
  fail(error: unknown): void {
    this.#error ??= error
    for (const { reject } of this.#ends.values()) reject(this.#error)
  }

  #end(number: number): End {
    let end = this.#ends.get(number)
    if (!end) {
      end = newEnd()
      // A part that failed reads no more.
      end.promise.catch(() => undefined)
      if (this.#error !== undefined) end.reject(this.#error)
      this.#ends.set(number, end)
    }
    return end
  }
}

/**
 * Where values leave one part of a step for another device, and where they arrive.
 *
 * Sends are submitted with what computes them and read back while the device computes; receives wait.
 * cost: a submit for each group of neighbours, a copy to the host and one from it.
 */
export class Crossings {
  readonly #gpu: Gpu
  readonly #prepared: Prepared
  readonly #buffers: ProgramBuffers
  /** By crossing that sends: where its values are read back. */
  readonly #stagings: ReadonlyMap<PreparedCrossing, GPUBuffer>
  #wires = new Wires()
  #sending: Promise<unknown>[] = []

  constructor(gpu: Gpu, prepared: Prepared, buffers: ProgramBuffers) {
    this.#gpu = gpu
    this.#prepared = prepared
    this.#buffers = buffers
    const usage = bufferUsage.MAP_READ | bufferUsage.COPY_DST
    this.#stagings = new Map(
      prepared.crossings
        .filter(({ kind }) => kind === 'send')
        .map((crossing) => [
          crossing,
          gpu.createBuffer(`transfer ${crossing.values[0].number}`, crossingBytes(crossing), usage),
        ]),
    )
  }

  get sizeBytes(): number {
    return [...this.#stagings.values()].reduce((sum, { size }) => sum + size, 0)
  }

  begin(wires: Wires): void {
    this.#wires = wires
    this.#sending = []
  }

  /** Submits what is recorded up to a crossing; after a receive the values are there. errors: those of the wires. */
  async hold(crossing: PreparedCrossing, encoder: GPUCommandEncoder): Promise<void> {
    const gpu = this.#gpu
    const { kind, values } = crossing
    const places = values.map(({ value }) =>
      this.#buffers.locate(gpu, this.#prepared.plan.placeOf(value)),
    )
    if (kind === 'receive') {
      gpu.submit(encoder)
      for (const [i, { number }] of values.entries())
        gpu.write(places[i].buffer, await this.#wires.receive(number), places[i].offset)
      return
    }
    const staging = this.#stagings.get(crossing)!
    let at = 0
    for (const [i, { value }] of values.entries()) {
      const sizeBytes = bytesOf(value.type)
      encoder.copyBufferToBuffer(places[i].buffer, places[i].offset, staging, at, sizeBytes)
      at += sizeBytes
    }
    gpu.submit(encoder)
    const sending = this.#send(crossing, staging)
    sending.catch((error) => this.#wires.fail(error))
    this.#sending.push(sending)
    if (this.#prepared.trace.stages?.order.overlapsSends === false) await sending
  }

  /** Resolves when all sends of the run have gone. */
  async ended(): Promise<void> {
    await Promise.all(this.#sending)
  }

  async #send({ values }: PreparedCrossing, staging: GPUBuffer): Promise<void> {
    const wires = this.#wires
    await mapped(this.#gpu, staging)
    const contents = staging.getMappedRange().slice(0)
    staging.unmap()
    let at = 0
    const sent: Promise<void>[] = []
    for (const { number, value } of values) {
      const sizeBytes = bytesOf(value.type)
      sent.push(wires.send(number, new Uint8Array(contents, at, sizeBytes)))
      at += sizeBytes
    }
    await Promise.all(sent)
  }

  destroy(): void {
    for (const staging of this.#stagings.values()) staging.destroy()
  }
}

/** The bytes that cross. */
export const crossingBytes = ({ values }: PreparedCrossing): number =>
  values.reduce((sum, { value }) => sum + bytesOf(value.type), 0)
