import type { PeerError } from '../../util/errors.ts'
import type { Membership } from '../api.ts'

/** The memberships of an elastic run, one after the other, as they come from the page and as the run comes to need them. */
export class Memberships {
  #epoch: number
  #newest: Membership | undefined
  #isClosed = false
  /** Called when a membership has come, or none will. */
  #wake: () => void = () => undefined
  /** Of the membership that was taken last. */
  #lost: PeerError | undefined
  /** Called when a rank of it is lost. */
  #lose: (error: PeerError) => void = () => undefined
  #given: { readonly epoch: number; readonly resolve: (isIn: boolean) => void }[] = []

  constructor({ epoch }: Membership) {
    this.#epoch = epoch
  }

  /** A membership has come; resolves when the run is in it, or in a later one, or with false when it has ended before. */
  give(membership: Membership): Promise<boolean> {
    this.#newest = membership
    this.#wake()
    return new Promise((resolve) => this.#given.push({ epoch: membership.epoch, resolve }))
  }

  /** A rank is lost of the group that the run is joining, or was to join: another membership will come. */
  lose(error: PeerError): void {
    if (this.#newest && this.#newest.epoch > this.#epoch) this.#newest = undefined
    this.#lost = error
    this.#lose(error)
  }

  /** Rejects when a rank of the membership that was taken last is lost. */
  lost(): Promise<never> {
    return new Promise((_, reject) => {
      if (this.#lost) reject(this.#lost)
      else this.#lose = reject
    })
  }

  /** None will come. */
  close(): void {
    this.#isClosed = true
    this.#wake()
  }

  /** The newest one that the run was not in yet. errors: `ended` where none will come. */
  async next(ended: PeerError | undefined): Promise<Membership> {
    for (;;) {
      if (this.#newest && this.#newest.epoch > this.#epoch) {
        this.#epoch = this.#newest.epoch
        this.#lost = undefined
        return this.#newest
      }
      if (this.#isClosed) throw ended ?? new Error('no membership follows')
      await new Promise<void>((resolve) => {
        this.#wake = resolve
      })
    }
  }

  /** The run is in the membership that it took last. */
  joined(): void {
    for (const { epoch, resolve } of this.#given) if (epoch <= this.#epoch) resolve(true)
    this.#given = this.#given.filter(({ epoch }) => epoch > this.#epoch)
  }

  /** The run has ended. */
  end(): void {
    for (const { resolve } of this.#given.splice(0)) resolve(false)
  }
}
