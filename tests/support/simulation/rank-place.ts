import type { Link, LinkEnd } from '../../../src/peer/link/link.ts'
import type { Env } from '../../../src/util/env.ts'

/**
 * The world as one rank sees it: its clock, its timers and its links. It can crash (nothing runs any more, and nobody is informed),
 * stand still for a while (then timers run first, and after them what piled up), and its clock can jump ahead.
 */
export class RankPlace implements Env {
  readonly #world: Env
  #jumpedMs = 0
  #isPaused = false
  #late: (() => void)[] = []
  #piledUp: (() => void)[] = []
  isCrashed = false
  /** Called for each message that this rank takes. */
  onheard: (message: Uint8Array) => void = () => undefined

  constructor(world: Env) {
    this.#world = world
  }

  now(): number {
    return this.#world.now() + this.#jumpedMs
  }

  random(length: number): Uint8Array {
    return this.#world.random(length)
  }

  after(delayMs: number, run: () => void): () => void {
    let isCancelled = false
    const cancel = this.#world.after(delayMs, () => {
      if (this.#isPaused) this.#late.push(() => isCancelled || run())
      else if (!this.isCrashed) run()
    })
    return () => {
      isCancelled = true
      cancel()
    }
  }

  /** Does `run` now, or when this rank runs again. */
  event(run: () => void): void {
    if (this.#isPaused) this.#piledUp.push(run)
    else if (!this.isCrashed) run()
  }

  get isPaused(): boolean {
    return this.#isPaused
  }

  pause(): void {
    this.#isPaused = true
  }

  goOn(): void {
    this.#isPaused = false
    const all = [...this.#late, ...this.#piledUp]
    this.#late = []
    this.#piledUp = []
    for (const run of all) this.event(run)
  }

  jump(byMs: number): void {
    this.#jumpedMs += byMs
  }

  /** The end of a link at this rank. */
  linked(inner: Link): Link {
    return new PlacedLink(inner, this)
  }
}

class PlacedLink implements Link {
  readonly kind
  readonly maxMessageBytes
  readonly #inner: Link
  readonly #place: RankPlace

  constructor(inner: Link, place: RankPlace) {
    this.kind = inner.kind
    this.maxMessageBytes = inner.maxMessageBytes
    this.#inner = inner
    this.#place = place
  }

  room(): number {
    return this.#inner.room()
  }

  send(message: Uint8Array<ArrayBuffer>, transfer?: boolean): void {
    if (!this.#place.isCrashed) this.#inner.send(message, transfer)
  }

  set onmessage(listener: (message: Uint8Array<ArrayBuffer>) => void) {
    const place = this.#place
    this.#inner.onmessage = (message) =>
      place.event(() => {
        place.onheard(message)
        listener(message)
      })
  }

  set onroom(listener: () => void) {
    this.#inner.onroom = () => this.#place.event(listener)
  }

  set onend(listener: (end: LinkEnd) => void) {
    this.#inner.onend = (end) => this.#place.event(() => listener(end))
  }

  close(detail: string): void {
    if (!this.#place.isCrashed) this.#inner.close(detail)
  }

  stats(): ReturnType<Link['stats']> {
    return this.#inner.stats()
  }
}
