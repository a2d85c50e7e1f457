import type { ProcessGroup } from '../../src/peer/group/group.ts'
import { meshOf } from './process-ring.ts'

/** Groups of this process that follow one another with other members: what a signaling server does for tabs. */
export class ElasticRoom {
  #members: readonly string[]
  #epoch = 0
  readonly #waiting = new Map<string, (group: ProcessGroup) => void>()

  constructor(members: readonly string[]) {
    this.#members = members
  }

  /** The next group of a member: there as soon as all members wait for it. */
  async next(member: string): Promise<ProcessGroup> {
    const joined = new Promise<ProcessGroup>((resolve) => this.#waiting.set(member, resolve))
    void this.#join()
    return joined
  }

  /** From the next group on. Those who stay keep their order. */
  become(members: readonly string[]): void {
    this.#members = members
    void this.#join()
  }

  async #join(): Promise<void> {
    const resolves = this.#members.map((member) => this.#waiting.get(member))
    if (!resolves.every((resolve) => resolve !== undefined)) return
    this.#waiting.clear()
    const groups = await meshOf(resolves.length, ++this.#epoch)
    for (const [rank, resolve] of resolves.entries()) resolve(groups[rank])
  }
}
