import type { ProcessGroup } from '../../peer/group/group.ts'

const label = 'the pause'

/**
 * The pause of a run, on one rank: asked for here or elsewhere, begun by all ranks after the same step, and over when all who asked for it
 * have said so.
 *
 * Whether anybody asks travels with each step's gradients (`GradientExchange.ownWord`), so that ranks agree without a message. What they
 * wait for in the pause has no deadline; heartbeats go on, so that a rank that dies is missed as ever.
 */
export class Pause {
  #isAsked = false
  #release: () => void = () => undefined
  #released: Promise<void> = Promise.resolve()

  /** Whether this rank asks for a pause, or for one that goes on to stay. */
  get isAsked(): boolean {
    return this.#isAsked
  }

  ask(): void {
    if (this.#isAsked) return
    this.#isAsked = true
    this.#released = new Promise((resolve) => {
      this.#release = resolve
    })
  }

  /** Takes what was asked for back. */
  goOn(): void {
    this.#isAsked = false
    this.#release()
  }

  /** Lets one step pass: the pause that this rank asked for ends, and the next one begins behind the step that follows. */
  passStep(): void {
    this.goOn()
    this.ask()
  }

  /**
   * Holds all ranks, which call it after the same step, until those that asked for it go on. `began` is told by which ranks; it is not
   * called where all have taken it back meanwhile.
   *
   * errors: the group's, `signal`'s reason.
   */
  async hold(
    group: ProcessGroup,
    signal: AbortSignal | undefined,
    began: (by: readonly number[]) => void,
  ): Promise<void> {
    const own = this.#isAsked
    const asked = await group.allGatherU32(Uint32Array.of(own ? 1 : 0), { label })
    const by = [...asked].flatMap((isAsked, rank) => (isAsked ? [rank] : []))
    if (by.length === 0) return
    began(by)
    const sequence = group.takeSequence()
    const meet = (bucket: number) =>
      group.allGatherU32(Uint32Array.of(1), {
        label,
        sequence,
        bucket,
        deadlineMs: Number.POSITIVE_INFINITY,
      })
    if (own) {
      // Open all the while, so that a rank that leaves is missed here, too: it fails with the group.
      const end = meet(1)
      const over = group.failed.then((error) => Promise.reject(error))
      await untilReleased(Promise.race([this.#released, end.then(never), over]), signal)
      await meet(0)
      await end
    } else {
      // Here at once, and waiting for those that asked.
      await meet(0)
      await meet(1)
    }
    signal?.throwIfAborted()
  }
}

const never = () => new Promise<never>(() => undefined)

/** Waits for `released` or the signal. */
async function untilReleased(released: Promise<void>, signal?: AbortSignal): Promise<void> {
  let onAbort: () => void = () => undefined
  const aborted = new Promise<never>((_, reject) => {
    onAbort = () => reject(signal?.reason)
    signal?.addEventListener('abort', onAbort)
  })
  try {
    signal?.throwIfAborted()
    await Promise.race([released, aborted])
  } finally {
    signal?.removeEventListener('abort', onAbort)
  }
}
