import type { Store } from '../../peer/store/store.ts'
import { messageOf, PeerError } from '../../util/errors.ts'
import { appear, read } from './store-values.ts'

/** One look into the box takes at most so long. units: ms. */
const pollMs = 2_000

interface Letter<T> {
  from: number
  /** Nothing for the letter with which a rank wakes itself to stop. */
  message: T | null
}

/**
 * Messages between ranks through a store: `box/r` counts what was sent to rank r, and `box/r/n` is the n-th of them, from 1.
 *
 * order: messages of one rank come in the order in which they were sent.
 */
export class Mailbox<T> {
  private isOver = false
  private readonly reading: Promise<void>

  constructor(
    private readonly store: Store,
    private readonly prefix: string,
    private readonly rank: number,
    onmessage: (from: number, message: T) => void,
    onerror: (error: PeerError) => void,
  ) {
    this.reading = this.readAll(onmessage).catch((thrown) => {
      if (this.isOver) return
      onerror(
        thrown instanceof PeerError
          ? thrown
          : new PeerError('peer.lost', `initProcessGroup: the store failed: ${messageOf(thrown)}`),
      )
    })
  }

  async send(to: number, message: T | null): Promise<void> {
    const letter: Letter<T> = { from: this.rank, message }
    const box = this.boxOf(to)
    const number = await this.store.add(box, 1)
    await this.store.set(`${box}/${number}`, JSON.stringify(letter))
  }

  /** Ends the reading; resolves when no call to the store is left. */
  async stop(): Promise<void> {
    if (this.isOver) return
    this.isOver = true
    // If the store has failed, reading has ended already.
    await this.send(this.rank, null).catch(() => undefined)
    await this.reading
  }

  private async readAll(onmessage: (from: number, message: T) => void): Promise<void> {
    for (let number = 1; !this.isOver; ) {
      const key = `${this.boxOf(this.rank)}/${number}`
      if (!(await appear(this.store, [key], pollMs))) continue
      const { from, message }: Letter<T> = JSON.parse(await read(this.store, key))
      await this.store.deleteKey(key)
      number += 1
      if (message !== null && !this.isOver) onmessage(from, message)
    }
  }

  private boxOf(rank: number): string {
    return `${this.prefix}/box/${rank}`
  }
}
