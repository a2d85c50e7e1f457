import type { ProcessGroup } from '../peer/group.ts'

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
    const asked = await group.allGatherU32(Uint32Array.of(own ? 1 : 0))
    const by = [...asked].flatMap((isAsked, rank) => (isAsked ? [rank] : []))
    if (by.length === 0) return
    began(by)
    if (own) await untilEnd(this.#released, group, signal)
    // Those that did not ask are here at once, and wait.
    await group.allGatherU32(Uint32Array.of(1), { deadlineMs: Number.POSITIVE_INFINITY })
    signal?.throwIfAborted()
  }
}

/** Waits for `released`, the end of the group, or the signal. */
async function untilEnd(
  released: Promise<void>,
  group: ProcessGroup,
  signal: AbortSignal | undefined,
): Promise<void> {
  const failed = group.failed.then((error) => Promise.reject(error))
  let onAbort: () => void = () => undefined
  const aborted = new Promise<never>((_, reject) => {
    onAbort = () => reject(signal?.reason)
    signal?.addEventListener('abort', onAbort)
  })
  try {
    signal?.throwIfAborted()
    await Promise.race([released, failed, aborted])
  } finally {
    signal?.removeEventListener('abort', onAbort)
  }
}
