import { maxNameChars, plainName } from '../../peer/room/names.ts'
import type { RoomLink } from '../../peer/room/secret.ts'
import { messageOf } from '../../util/errors.ts'
import { type MemberChange, RoomMember, type RoomMemberOptions } from '../../worker/page/member.ts'

/**
 * The ranks of a tab besides the one that its page shows: each a member with its own compute worker, named after the tab with a number.
 *
 * They share the browser with the first, so links between them are ports. One whose worker ends leaves the room alone.
 */
export class MoreRanks {
  readonly #count: number
  #name: string
  readonly #common: Omit<RoomMemberOptions, 'name'>
  /** Takes what went wrong with one of them, in words. */
  readonly #report: (text: string) => void
  /** By the number in its name. */
  readonly #members = new Map<number, RoomMember>()
  #isClosed = false

  constructor(
    count: number,
    name: string,
    common: Omit<RoomMemberOptions, 'name'>,
    report: (text: string) => void,
  ) {
    this.#count = count
    this.#name = name
    this.#common = common
    this.#report = report
  }

  /** Opens all devices at once, then enters the room one after the other, so that ranks follow the numbers. */
  async enter(): Promise<void> {
    const opening = Array.from({ length: this.#count }, (_, index) => {
      const member = this.#make(index + 2)
      const opened = member.open()
      opened.catch(() => undefined)
      return { number: index + 2, member, opened }
    })
    for (const { number, member, opened } of opening) {
      try {
        const adapter = await opened
        if (this.#isClosed) return
        await member.join(adapter)
      } catch (thrown) {
        this.#drop(number, messageOf(thrown))
      }
    }
  }

  update(change: MemberChange): void {
    for (const member of this.#members.values()) member.update(change)
  }

  watch(watches: boolean): void {
    for (const member of this.#members.values()) member.watch(watches)
  }

  rename(name: string): void {
    this.#name = name
    for (const [number, member] of this.#members) member.update({ name: nameOf(name, number) })
  }

  forget(): void {
    for (const member of this.#members.values()) member.forget()
  }

  /** The one that has this rank in the run that is on, or had it in the last one. */
  at(rank: number): RoomMember | undefined {
    return [...this.#members.values()].find((member) => member.rank === rank)
  }

  /** All go to another room, one after the other. */
  async move(link: RoomLink): Promise<void> {
    for (const [number, member] of this.#members)
      await member.move(link, 'join').catch((thrown) => this.#drop(number, messageOf(thrown)))
  }

  close(): void {
    this.#isClosed = true
    for (const member of this.#members.values()) member.close()
    this.#members.clear()
  }

  #make(number: number): RoomMember {
    const member = new RoomMember({
      ...this.#common,
      name: nameOf(this.#name, number),
      isFurther: true,
      on: (event) => {
        if (event.type === 'dead' || event.type === 'removed')
          this.#drop(number, event.error.message)
        else if (event.type === 'refused')
          this.#report(`${nameOf(this.#name, number)}: ${event.error.message}`)
      },
    })
    this.#members.set(number, member)
    return member
  }

  #drop(number: number, why: string): void {
    const member = this.#members.get(number)
    if (!member || this.#isClosed) return
    this.#members.delete(number)
    member.close()
    const name = nameOf(this.#name, number)
    this.#report(`${name}, a rank of this tab, has left the room: ${why}`)
  }
}

/** `Ada's laptop · 2`, as long as the protocol takes it. */
export function nameOf(name: string, number: number): string {
  const end = ` · ${number}`
  return plainName(name.slice(0, maxNameChars - end.length)) + end
}
